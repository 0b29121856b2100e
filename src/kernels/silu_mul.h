// The gate of a SwiGLU feed-forward layer.
#pragma once

#include <cstdint>

#include "kernels/linear.h"

namespace deepinfer {

struct SiluMulParams {
  const float* gate_up;  // [num_rows, 2 * cols]: the gates, then the values; row stride ld_in
  int64_t ld_in;
  float* out;            // [num_rows, cols], row stride ld_out; not gate_up itself
  int64_t ld_out;
  int64_t num_rows, cols;
};
// out[t, i] = g / (1 + e^-g) * u, g = gate_up[t, i], u = gate_up[t, cols + i]. Runs on the calling thread alone.
void silu_mul(const SiluMulParams& p, Isa isa);

namespace ref {
void silu_mul(const SiluMulParams& p);
}
namespace cpu {
void silu_mul_portable(const SiluMulParams& p);
void silu_mul_avx2(const SiluMulParams& p);
void silu_mul_avx512(const SiluMulParams& p);
}  // namespace cpu

}  // namespace deepinfer
