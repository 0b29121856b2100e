// The definitions of the row operations, in f64: what every version is tested against.
#include <cmath>

#include "kernels/rms_norm.h"
#include "kernels/rope.h"
#include "kernels/silu_mul.h"

namespace deepinfer::ref {


void rms_norm(const RmsNormParams& p) {
  for (int64_t t = 0; t < p.num_rows; ++t) {
    float* x = p.x + t * p.ldx;
    double sum_sq = 0;
    for (int64_t i = 0; i < p.cols; ++i) {
      if (p.delta != nullptr) x[i] += p.delta[t * p.ld_delta + i];
      sum_sq += static_cast<double>(x[i]) * x[i];
    }
    const double scale = 1 / std::sqrt(sum_sq / static_cast<double>(p.cols) + p.eps);
    for (int64_t i = 0; i < p.cols; ++i) p.out[t * p.ld_out + i] = static_cast<float>(x[i] * scale * p.weight[i]);
  }
}

void silu_mul(const SiluMulParams& p) {
  for (int64_t t = 0; t < p.num_rows; ++t) {
    for (int64_t i = 0; i < p.cols; ++i) {
      const double gate = p.gate_up[t * p.ld_in + i], up = p.gate_up[t * p.ld_in + p.cols + i];
      p.out[t * p.ld_out + i] = static_cast<float>(gate / (1 + std::exp(-gate)) * up);
    }
  }
}

void rope(const RopeParams& p) {
  const int64_t half = p.head_dim / 2;
  for (int64_t h = 0; h < p.num_heads; ++h) {
    for (int64_t i = 0; i < half; ++i) {
      float& a = p.x[h * p.head_dim + (p.interleaved ? 2 * i : i)];
      float& b = p.x[h * p.head_dim + (p.interleaved ? 2 * i + 1 : i + half)];
      const double c = p.cos_sin[i], s = p.cos_sin[half + i], x = a, y = b;
      a = static_cast<float>(x * c - y * s);
      b = static_cast<float>(y * c + x * s);
    }
  }
}

}  // namespace deepinfer::ref
