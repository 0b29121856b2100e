// What differs between instruction sets in the products of block_linear.h: one table of functions each.
#pragma once

#include "kernels/block_linear.h"

namespace deepinfer::cpu {

struct BlockLinearKernels {
  void (*fp8)(const Bf16Rows& x, const Fp8Matrix& w, int64_t begin, int64_t end, const ProductOut& out);
  void (*fp4)(const Bf16Rows& x, const Fp4Matrix& w, int64_t begin, int64_t end, const ProductOut& out);
  void (*bf16)(const Bf16Rows& x, const Bf16Matrix& w, int64_t begin, int64_t end, const ProductOut& out);
};
const BlockLinearKernels& block_linear_portable();
const BlockLinearKernels& block_linear_avx2();
const BlockLinearKernels& block_linear_avx512f();
const BlockLinearKernels& block_linear_avx512();      // dot products of bf16 pairs
const BlockLinearKernels& block_linear_f32_avx512();  // multiply-adds of f32

}  // namespace deepinfer::cpu
