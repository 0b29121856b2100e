// What decides the ties of the V4.1 goldens (docs/decisions/v41-products.md): an observer that gives a step the coefficients of its
// hyper-connections as the library below the official code added them up where the goldens were made, in f32: one product after the other,
// fused, in blocks of 256 inputs. The engine adds in double, which is nearer to the truth, and so has streams near a tie of their rounding
// fall the other way. In this order it is 1e-6 from the goldens wherever no other tie lies before.
#pragma once

#include <cmath>
#include <vector>

#include "kernels/hyper_connection.h"
#include "v41_tiny.h"

namespace deepinfer::model {

// Whether the kernels add all else in orders of which this was measured. Those for AVX-512 have others, and so perhaps other ties.
inline bool falls_as_measured(Isa isa) { return isa == Isa::kPortable || isa == Isa::kAvx2 || isa == Isa::kAvxVnni; }

class OfficialOrder : public V41Observer {
 public:
  OfficialOrder()
      : checkpoint_(Safetensors::open(kTiny).value()),
        config_(v41_config_from_json(read_file(kTiny + "/config.json"), "config.json").value()),
        weights_(bind_v41(*checkpoint_, config_).value()) {}

  void floats(std::string_view name, int32_t layer, int64_t rows, int64_t width, float* data) override {
    if (name == "embed") {
      streams_.clear();
      for (int64_t r = 0; r < rows; ++r)
        for (int32_t k = 0; k < kHyperStreams; ++k) streams_.insert(streams_.end(), data + r * width, data + (r + 1) * width);
    } else if (name == "X_engram" || name == "X") {
      streams_.assign(data, data + rows * width);
    } else if (name == "hc.attn" || name == "hc.ffn") {
      const V41Block& block = weights_.layers[static_cast<size_t>(layer)];
      weigh(name == "hc.attn" ? block.hc_attn : block.hc_ffn, rows, reinterpret_cast<HyperCoefficients*>(data));
    } else if (name == "attn_out") {
      leave(rows, data);
    }
  }
  void integers(std::string_view, int32_t, int64_t, int64_t, const int32_t*) override {}

 private:
  HyperParams params() const { return {config_.hidden_size, config_.rms_norm_eps, config_.hc_eps, config_.hc_sinkhorn_iters}; }

  void weigh(const HyperWeights& w, int64_t rows, HyperCoefficients* out) {
    constexpr int64_t kBlock = 256;
    const int64_t width = kHyperStreams * config_.hidden_size;
    for (int64_t r = 0; r < rows; ++r) {
      const float* x = streams_.data() + r * width;
      float m[kHyperDots];
      for (int64_t i = 0; i < kHyperDots; ++i) {
        m[i] = 0;
        for (int64_t begin = 0; begin < width; begin += kBlock) {
          float sum = 0;
          for (int64_t k = begin; k < std::min(begin + kBlock, width); ++k) sum = std::fma(x[k], w.fn[i * width + k], sum);
          m[i] += sum;
        }
      }
      hyper_coefficients(params(), w, x, m, out[r], default_isa());
    }
    coefficients_.assign(out, out + rows);
  }

  // Streams between the sublayers, which no array shows. Narrowing leaves the last rows.
  void leave(int64_t rows, const float* y) {
    const int64_t d = config_.hidden_size, width = kHyperStreams * d;
    streams_.erase(streams_.begin(), streams_.end() - rows * width);
    coefficients_.erase(coefficients_.begin(), coefficients_.end() - rows);
    for (int64_t r = 0; r < rows; ++r) hyper_expand(params(), coefficients_[static_cast<size_t>(r)], y + r * d, 0, d, streams_.data() + r * width, default_isa());
  }

  std::unique_ptr<Safetensors> checkpoint_;
  V41Config config_;
  V41Weights weights_;
  std::vector<float> streams_;
  std::vector<HyperCoefficients> coefficients_;
};

}  // namespace deepinfer::model
