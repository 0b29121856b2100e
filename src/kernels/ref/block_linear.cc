#include "kernels/block_linear.h"

#include <cmath>

namespace deepinfer::ref {
namespace {

// weight(n, k): the exact value of one weight.
template <class Weight>
void product(const Bf16Rows& x, int64_t rows, int64_t cols, double* y, double* magnitude, const Weight& weight) {
  for (int64_t t = 0; t < x.num_rows; ++t)
    for (int64_t n = 0; n < rows; ++n) {
      double sum = 0, size = 0;
      for (int64_t k = 0; k < cols; ++k) {
        const double term = static_cast<double>(to_f32(x.row(t)[k])) * weight(n, k);
        sum += term;
        size += std::fabs(term);
      }
      y[t * rows + n] = sum;
      if (magnitude != nullptr) magnitude[t * rows + n] = size;
    }
}

}  // namespace

void linear(const Bf16Rows& x, const Fp8Matrix& w, double* y, double* magnitude) {
  product(x, w.rows, w.cols, y, magnitude, [&](int64_t n, int64_t k) {
    return static_cast<double>(to_f32(w.codes[n * w.cols + k])) * to_f32(w.scales[n / 32 * (w.cols / 32) + k / 32]);
  });
}
void linear(const Bf16Rows& x, const Fp4Matrix& w, double* y, double* magnitude) {
  product(x, w.rows, w.cols, y, magnitude, [&](int64_t n, int64_t k) {
    const uint32_t byte = w.codes[(n * w.cols + k) / 2];
    return static_cast<double>(e2m1_to_f32(k % 2 == 0 ? byte & 15 : byte >> 4)) * to_f32(w.scales[n * (w.cols / 32) + k / 32]);
  });
}
void linear(const Bf16Rows& x, const Bf16Matrix& w, double* y, double* magnitude) {
  product(x, w.rows, w.cols, y, magnitude, [&](int64_t n, int64_t k) { return static_cast<double>(to_f32(w.values[n * w.cols + k])); });
}

}  // namespace deepinfer::ref
