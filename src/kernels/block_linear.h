// Matrix products of DeepSeek-V4.1 over weights as the checkpoint stores them: fp8 with a scale a 32x32 tile, fp4 with a scale per 32
// inputs, bf16. The rounding points are the model's (it was trained with them):
//   fp8, fp4  y = bf16(sum over blocks b of 32 inputs, in order, of dot(codes of x, codes of w) * scale_x[b] * scale_w[b]), sums in f32
//   bf16      y = sum of products in f32, rounded to bf16 or not
// Every output is summed in one fixed order: its bits depend neither on the other rows nor on the threads.
// All threads of the team call together; no barrier at the end. Outputs are split over the team.
#pragma once

#include <cstdint>

#include "base/float8.h"
#include "base/half.h"
#include "kernels/team.h"

namespace deepinfer {

struct Fp8Matrix {
  const e4m3* codes = nullptr;   // [rows, cols]
  const e8m0* scales = nullptr;  // [ceil(rows / 32), cols / 32]
  int64_t rows = 0, cols = 0;    // outputs, inputs; cols is a multiple of 32
};
struct Fp4Matrix {
  const uint8_t* codes = nullptr;  // [rows, cols / 2], packed e2m1
  const e8m0* scales = nullptr;    // [rows, cols / 32]
  int64_t rows = 0, cols = 0;
};
struct Bf16Matrix {
  const bf16* values = nullptr;  // [rows, cols]
  int64_t rows = 0, cols = 0;
};

// Rows [begin, begin + rows) of a matrix; begin is a multiple of 32.
inline Fp8Matrix rows_of(const Fp8Matrix& w, int64_t begin, int64_t rows) {
  return {w.codes + begin * w.cols, w.scales + begin / 32 * (w.cols / 32), rows, w.cols};
}

// Activations after quantize_fp8 with block 32.
struct Fp8Rows {
  const e4m3* codes;    // [num_rows, cols]
  const e8m0* scales;   // [num_rows, cols / 32]
  int64_t num_rows;
};

// y: [x.num_rows, w.rows] with row stride ldy (floats), bf16 values.
void linear_fp8(const Fp8Rows& x, const Fp8Matrix& w, float* y, int64_t ldy, Team& team);
void linear_fp4(const Fp8Rows& x, const Fp4Matrix& w, float* y, int64_t ldy, Team& team);
// The weights times their scales are bf16 numbers here, the activations stay as they are; y is rounded to bf16. x: row stride ldx.
void linear_fp8_as_bf16(const float* x, int64_t ldx, int64_t num_rows, const Fp8Matrix& w, float* y, int64_t ldy, Team& team);
// x: [num_rows, w.cols] bf16-valued floats with row stride ldx. round: y is rounded to bf16.
void linear_bf16(const float* x, int64_t ldx, int64_t num_rows, const Bf16Matrix& w, bool round, float* y, int64_t ldy, Team& team);

}  // namespace deepinfer
