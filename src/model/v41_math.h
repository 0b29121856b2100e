// Row-wise arithmetic of DeepSeek-V4.1 with the model's rounding points: bf16 values in floats, one row a call, on the calling thread.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "base/half.h"
#include "model/v41_config.h"

namespace deepinfer::model {

inline float round_bf16(float x) { return to_f32(to_bf16(x)); }

// Rotary embedding of the last rope dims of a head, adjacent pairs. Frequencies, angles, cosines and sines are f32, as the official code
// has them: a double-precision table would drift from it by 1e-4 rad at position 2000.
class V41Rope {
 public:
  // compressed: theta and YaRN of layers with a compress ratio; otherwise the plain table.
  V41Rope(const V41Config& config, bool compressed) {
    const int32_t dim = config.qk_rope_head_dim;
    const double theta = compressed ? config.compress_rope_theta : config.rope_theta;
    const auto correction = [&](double rotations) {
      return dim * std::log(config.rope_original_context / (rotations * 2 * M_PI)) / (2 * std::log(theta));
    };
    const float low = static_cast<float>(std::max(std::floor(correction(config.rope_beta_fast)), 0.0));
    const float high = static_cast<float>(std::min(std::ceil(correction(config.rope_beta_slow)), dim - 1.0));
    for (int32_t i = 0; i < dim / 2; ++i) {
      float f = 1.0f / std::pow(static_cast<float>(theta), static_cast<float>(2 * i) / static_cast<float>(dim));
      if (compressed) {
        const float smooth = 1.0f - std::clamp((static_cast<float>(i) - low) / std::max(high - low, 0.001f), 0.0f, 1.0f);
        f = f / static_cast<float>(config.rope_factor) * (1.0f - smooth) + f * smooth;
      }
      frequencies_.push_back(f);
    }
  }

  std::span<const float> frequencies() const { return frequencies_; }

  // cos_sin: [2, dim / 2].
  void angles(int64_t position, float* cos_sin) const {
    for (size_t i = 0; i < frequencies_.size(); ++i) {
      const float angle = static_cast<float>(position) * frequencies_[i];
      cos_sin[i] = std::cos(angle);
      cos_sin[frequencies_.size() + i] = std::sin(angle);
    }
  }

  // Rotates the last dims of x [head_dim] (by minus the angle if inverse) and rounds them to bf16.
  void rotate(float* x, int32_t head_dim, const float* cos_sin, bool inverse = false) const {
    const size_t pairs = frequencies_.size();
    float* tail = x + head_dim - 2 * static_cast<int64_t>(pairs);
    for (size_t i = 0; i < pairs; ++i) {
      const float c = cos_sin[i], s = inverse ? -cos_sin[pairs + i] : cos_sin[pairs + i];
      const float a = tail[2 * i], b = tail[2 * i + 1];
      tail[2 * i] = round_bf16(a * c - b * s);
      tail[2 * i + 1] = round_bf16(a * s + b * c);
    }
  }

 private:
  std::vector<float> frequencies_;
};

}  // namespace deepinfer::model
