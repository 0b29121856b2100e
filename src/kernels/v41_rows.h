// DeepSeek-V4.1's operations on single rows with the model's rounding points: f32 inside, bf16 numbers out. On the calling thread; a row's
// sums have one order that its length and the instruction set fix.
#pragma once

#include <cstdint>

#include "base/half.h"
#include "kernels/linear.h"

namespace deepinfer {

// out = bf16(w * (x / sqrt(mean(x^2) + eps))); out may be x. (kernels/rms_norm.h has f32 weights and does not round.)
void v41_norm(const float* x, const bf16* w, int64_t n, float eps, float* out, Isa isa);

struct SwigluParams {
  const float* gate;  // [n], bf16 numbers
  const float* up;    // [n], bf16 numbers
  float weight;       // of the expert in its token's mix: enters before the second product, and so before that one's fp8
  float limit;
  int64_t n;          // a multiple of 32
  bf16* out;          // [n]: fp8_round_trip(bf16(silu(min(gate, limit)) * clamp(up, -limit, limit) * weight))
};
void v41_swiglu(const SwigluParams& p, Isa isa);

namespace ref {
void v41_norm(const float* x, const bf16* w, int64_t n, float eps, float* out);
void v41_swiglu(const SwigluParams& p);
}  // namespace ref

}  // namespace deepinfer
