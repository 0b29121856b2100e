#include "kernels/engram_gate.h"

#include <algorithm>
#include <cmath>

namespace deepinfer {

void engram_gate(const EngramGateParams& p) {
  const float width = static_cast<float>(p.hidden);
  for (int stream = 0; stream < 4; ++stream) {
    float* x = p.streams + int64_t{stream} * p.hidden;
    const float* key = p.key + int64_t{stream} * p.hidden;
    const bf16* qw = p.q_weight + int64_t{stream} * p.hidden;
    const bf16* kw = p.k_weight + int64_t{stream} * p.hidden;
    float dot = 0, xx = 0, kk = 0;
    for (int32_t c = 0; c < p.hidden; ++c) {
      dot += x[c] * to_f32(qw[c]) * to_f32(kw[c]) * key[c];
      xx += x[c] * x[c];
      kk += key[c] * key[c];
    }
    dot *= 1.0f / std::sqrt(xx / width + p.eps) * (1.0f / std::sqrt(kk / width + p.eps)) / std::sqrt(width);
    const float gate = 1.0f / (1.0f + std::exp(-std::copysign(std::sqrt(std::max(std::fabs(dot), 1e-6f)), dot)));
    for (int32_t c = 0; c < p.hidden; ++c) x[c] = to_f32(to_bf16(x[c] + gate * p.value[c]));
  }
}

}  // namespace deepinfer
