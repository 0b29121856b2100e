// What a version of the matrix product for one instruction set consists of, and the views it works on. linear.cc owns the memory,
// cuts the work and picks the table; the functions here are pure, run on the calling thread and allocate nothing.
//
// Order of sums, the same in all versions, so that integer formats give the same bits everywhere (F: a fused multiply-add):
//   for each sub group g of K, ascending:  acc = F(rounded(float(sum_k code*x) * scale[n,g]), sx[t,g], acc)
//                                          acc = F(offset[n,g], sum[t,g], acc)      formats with offsets only
// The sum over k is an integer and exact. Float formats and kF32: K in chunks of 256; within one, acc = F(x[k], w[k], acc) from zero
// (the portable version multiplies and adds); the chunks' sums are added in order. The bias comes last.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/panels.h"

namespace deepinfer::cpu {

constexpr int kChunk = 256;  // numbers along K of one float partial sum

// Panels of one source.
struct PanelSet {
  DType dtype;
  panels::Format format;  // of integer dtypes
  const std::byte* data;
  int64_t stride;         // bytes from panel to panel
  int64_t rows, cols;
  int64_t num_panels;
  int64_t first_output;   // of y
};

// Activations of a step as one record a row, `stride` bytes apart; each pointer is the first row's. Those that a Linear does not
// need are null.
struct Rows {
  int64_t stride;
  const std::byte* q;       // int8 [K up to a multiple of 64], zeros past K
  const std::byte* scale;   // f32 a group of 32
  const std::byte* start;   // int32 a sub group: what sums of products start from, integer_bias - zero_point * sum of q
  const std::byte* sum;     // f32 a sub group: scale * sum of q
  const std::byte* f32;     // [K]: as given, or rounded to bf16 for BF16 weights without bf16 instructions
  const std::byte* bf16;    // [K up to a multiple of 32], zeros past K

  // Always inlined: an out-of-line copy compiled for a newer instruction set could be linked into the older ones' code.
  template <class T>
  [[gnu::always_inline]] static const T* at(const std::byte* first, int64_t stride, int64_t row) {
    return reinterpret_cast<const T*>(first + row * stride);
  }
};

struct Output {
  float* y;
  int64_t ldy;
  const float* bias;  // of all outputs, or null
};

struct Kernels {
  // x [cols] -> q [cols], scale and sum of each group of 32; sums: of each 16. cols is a multiple of 32.
  // scale = max|x| / 127, q = x / scale to nearest even. A group with a NaN or infinity: q = 0 and scale NaN; below 1e-30: zeros.
  void (*quantize_row)(const float* x, int64_t cols, int8_t* q, float* scale, int32_t* sum16);
  void (*round_to_bf16)(const float* x, int64_t cols, uint16_t* out);
  int32_t integer_bias;    // see Rows::start
  bool bf16_products;      // BF16 weights take Rows::bf16 in kFast
  int64_t row_padding;     // rows past the last that may be read (not written)
  // Panels [begin, end) of a set, all rows. apply_integer and apply_bf16 serve kFast; apply_float everything else.
  void (*apply_integer)(const PanelSet&, const Rows&, int64_t num_rows, const Output&, int64_t begin, int64_t end);
  void (*apply_bf16)(const PanelSet&, const Rows&, int64_t num_rows, const Output&, int64_t begin, int64_t end);
  void (*apply_float)(const PanelSet&, const Rows&, int64_t num_rows, const Output&, int64_t begin, int64_t end);
};

// The tables; null where this build has none for the set.
const Kernels* portable_kernels();
const Kernels* avx2_kernels();
const Kernels* avxvnni_kernels();
const Kernels* avx512_kernels();
const Kernels* amx_kernels();

}  // namespace deepinfer::cpu
