// The definition of Linear's products, in double: what every version is tested against.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/dtype.h"
#include "kernels/linear.h"

namespace deepinfer::ref {

// y[t, n] = sum_k x[t, k] * w[n, k], and magnitude[t, n] = sum_k |x[t, k] * w[n, k]|, which scales the bound on rounding errors.
struct Product {
  std::vector<double> y, magnitude;  // [num_rows, outputs]
};

// What kFast makes of a row of activations for weights of this dtype: quantised to 8 bits in groups of 32 (integer dtypes), rounded
// to bf16 (BF16), or left as they are. In kF32: left as they are.
std::vector<float> rounded_activations(std::span<const float> x, DType dtype, Activations activations);

// x: [num_rows, cols], already rounded; weights: rows of dtype's blocks [outputs, cols].
Product linear(std::span<const float> x, int64_t num_rows, int64_t cols, DType dtype, const std::byte* weights, int64_t outputs);

}  // namespace deepinfer::ref
