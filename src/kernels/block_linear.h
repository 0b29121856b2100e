// Matrix products of DeepSeek-V4.1 over weights as the checkpoint stores them: fp8 with a scale a 32x32 tile, fp4 with a scale per 32
// inputs, bf16. Nothing is repacked: a row of codes becomes bf16 numbers in registers (few rows of activations) or in the L1 cache (many).
//
// Activations are bf16 numbers, those for fp8 and fp4 weights after their round trip through fp8 (round_to_fp8 of block_quantize.h).
// A code of fp8 or fp4 times its power-of-two scale is a bf16 number, and a product of two of those is exact in f32. So the model's
//   y = bf16(sum over blocks of 32 inputs of dot(codes of x, codes of w) * scale_x * scale_w)
// is a sum of exact products here too; only the order of the f32 sums is ours: partial sums in the lanes of a vector, each over
// ascending inputs, added in one order at the end. That order depends on the instruction set and the number of inputs alone: the bits
// of an output depend neither on the other rows nor on the threads.
#pragma once

#include <cstdint>
#include <string>

#include "base/float8.h"
#include "base/half.h"
#include "kernels/linear.h"
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
  int64_t rows = 0, cols = 0;      // cols is a multiple of 32
};
struct Bf16Matrix {
  const bf16* values = nullptr;  // [rows, cols]
  int64_t rows = 0, cols = 0;
};

// Rows [begin, begin + rows) of a matrix; begin is a multiple of 32.
inline Fp8Matrix rows_of(const Fp8Matrix& w, int64_t begin, int64_t rows) {
  return {w.codes + begin * w.cols, w.scales + begin / 32 * (w.cols / 32), rows, w.cols};
}
inline Fp4Matrix rows_of(const Fp4Matrix& w, int64_t begin, int64_t rows) {
  return {w.codes + begin * w.cols / 2, w.scales + begin * (w.cols / 32), rows, w.cols};
}

constexpr int64_t kMaxProductCols = 32768;

// Activations of a product: rows of w.cols numbers, those of an expert picked by number from among all of a step.
struct Bf16Rows {
  const bf16* values;            // row r: values + r * ld, or values + ids[r] * ld
  int64_t ld;
  int64_t num_rows;
  const int32_t* ids = nullptr;  // [num_rows]
  const bf16* row(int64_t r) const { return values + (ids != nullptr ? ids[r] : r) * ld; }
};

struct ProductOut {
  float* y;             // [x.num_rows, w.rows], row stride ldy
  int64_t ldy;
  bool round;           // to bf16 numbers
};

constexpr int64_t kProductUnit = 8;  // outputs that a kernel may take together

// Outputs [begin, end) of every row, on the calling thread; begin is a multiple of kProductUnit.
void linear(const Bf16Rows& x, const Fp8Matrix& w, int64_t begin, int64_t end, const ProductOut& out, Isa isa);
void linear(const Bf16Rows& x, const Fp4Matrix& w, int64_t begin, int64_t end, const ProductOut& out, Isa isa);
void linear(const Bf16Rows& x, const Bf16Matrix& w, int64_t begin, int64_t end, const ProductOut& out, Isa isa);

// All outputs, split over the team; all threads call together. No barrier at the end.
template <class Matrix>
void linear(const Bf16Rows& x, const Matrix& w, const ProductOut& out, Isa isa, Team& team) {
  const auto [begin, end] = team.range((w.rows + kProductUnit - 1) / kProductUnit);
  if (begin < end) linear(x, w, begin * kProductUnit, end * kProductUnit < w.rows ? end * kProductUnit : w.rows, out, isa);
}

// Which version runs: the name of the instruction set, "-f32" after it where that of bf16 pairs is not used, a number where the order of sums has
// changed since blocks were first stored. Two versions may differ in the last bits of an output.
std::string block_linear_version(Isa isa);

namespace ref {
// In double from the definition above; magnitude, if not null: the same sums of absolute values, which scale the bound on errors.
void linear(const Bf16Rows& x, const Fp8Matrix& w, double* y, double* magnitude);
void linear(const Bf16Rows& x, const Fp4Matrix& w, double* y, double* magnitude);
void linear(const Bf16Rows& x, const Bf16Matrix& w, double* y, double* magnitude);
}  // namespace ref

}  // namespace deepinfer
