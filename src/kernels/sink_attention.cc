#include "kernels/sink_attention.h"

#include <algorithm>
#include <cmath>

#include "base/half.h"
#include "kernels/lane_dot.h"

namespace deepinfer {
namespace {

constexpr int32_t kBlock = 64;
constexpr float kLowest = -1e30f;

}  // namespace

void sink_attention(const SinkAttentionParams& p) {
  const float scale = 1.0f / std::sqrt(static_cast<float>(p.head_dim));
  for (int32_t h = 0; h < p.num_heads; ++h) {
    const float* q = p.q + int64_t{h} * p.head_dim;
    float* out = p.out + int64_t{h} * p.head_dim;
    std::fill(out, out + p.head_dim, 0.0f);
    float top = kLowest, denominator = 0;
    for (int32_t begin = 0; begin < p.num_rows; begin += kBlock) {
      const int32_t count = std::min(kBlock, p.num_rows - begin);
      const float* const* rows = p.rows + begin;
      float scores[kBlock], new_top = top;
      for (int32_t i = 0; i < count; ++i) {
        if (rows[i] == nullptr) continue;
        scores[i] = lane_dot(q, rows[i], p.head_dim) * scale;
        new_top = std::max(new_top, scores[i]);
      }
      const float rescale = std::exp(top - new_top);
      denominator *= rescale;
      for (int32_t d = 0; d < p.head_dim; ++d) out[d] *= rescale;
      for (int32_t i = 0; i < count; ++i) {
        if (rows[i] == nullptr) continue;
        const float probability = std::exp(scores[i] - new_top);
        denominator += probability;
        const float weight = to_f32(to_bf16(probability));
        for (int32_t d = 0; d < p.head_dim; ++d) out[d] += weight * rows[i][d];
      }
      top = new_top;
    }
    denominator += std::exp(p.sinks[h] - top);
    for (int32_t d = 0; d < p.head_dim; ++d) out[d] = to_f32(to_bf16(out[d] / denominator));
  }
}

}  // namespace deepinfer
