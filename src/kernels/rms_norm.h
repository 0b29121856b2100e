// Root-mean-square normalisation of rows, with the residual addition that precedes it in a decoder layer.
#pragma once

#include <cstdint>

#include "kernels/linear.h"

namespace deepinfer {

struct RmsNormParams {
  float* x;             // [num_rows, cols], row stride ldx; delta is added to it if given
  int64_t ldx;
  const float* delta;   // [num_rows, cols], row stride ld_delta; null: none
  int64_t ld_delta;
  const float* weight;  // [cols]
  float* out;           // [num_rows, cols], row stride ld_out; may be x itself if x is not needed afterwards
  int64_t ld_out;
  int64_t num_rows, cols;
  float eps;            // added to the mean of squares
};
// x += delta; out[t, i] = x[t, i] / sqrt(mean(x[t, :]^2) + eps) * weight[i]. Runs on the calling thread alone. A row is summed in
// one order that cols and the instruction set fix, so its bits do not depend on the other rows. Source: Zhang & Sennrich 2019, eq. 4.
void rms_norm(const RmsNormParams& p, Isa isa);

namespace ref {
void rms_norm(const RmsNormParams& p);  // sums in f64
}
namespace cpu {
void rms_norm_portable(const RmsNormParams& p);
void rms_norm_avx2(const RmsNormParams& p);
void rms_norm_avx512(const RmsNormParams& p);
}  // namespace cpu

}  // namespace deepinfer
