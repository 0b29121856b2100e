#include "kernels/ref/linear.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/half.h"
#include "kernels/dequantize.h"

namespace deepinfer::ref {
namespace {

constexpr int64_t kGroup = 32;

// Quantised and multiplied back. The value q * scale is rounded to float here, which the kernels do not do: half an ulp of it.
void quantize_group(std::span<const float> x, float* out) {
  float max = 0;
  bool finite = true;
  for (float value : x) {
    finite = finite && std::isfinite(value);
    max = std::max(max, std::abs(value));
  }
  for (size_t i = 0; i < x.size(); ++i) {
    if (!finite) {
      out[i] = std::numeric_limits<float>::quiet_NaN();
    } else if (max < 1e-30f) {
      out[i] = 0;
    } else {
      out[i] = std::nearbyint(x[i] * (127.0f / max)) * (max / 127.0f);
    }
  }
}

}  // namespace

std::vector<float> rounded_activations(std::span<const float> x, DType dtype, Activations activations) {
  std::vector<float> out(x.begin(), x.end());
  if (activations == Activations::kF32 || dtype == DType::kF32 || dtype == DType::kF16) return out;
  if (dtype == DType::kBF16) {
    for (float& value : out) value = to_f32(to_bf16(value));
    return out;
  }
  for (size_t i = 0; i < x.size(); i += kGroup) quantize_group(x.subspan(i, kGroup), out.data() + i);
  return out;
}

Product linear(std::span<const float> x, int64_t num_rows, int64_t cols, DType dtype, const std::byte* weights, int64_t outputs) {
  Product out;
  out.y.resize(num_rows * outputs);
  out.magnitude.resize(num_rows * outputs);
  std::vector<float> w(cols);
  for (int64_t n = 0; n < outputs; ++n) {
    dequantize(dtype, weights + n * row_bytes(dtype, cols), w.data(), cols);
    for (int64_t t = 0; t < num_rows; ++t) {
      double sum = 0, magnitude = 0;
      for (int64_t k = 0; k < cols; ++k) {
        const double product = double{x[t * cols + k]} * double{w[k]};
        sum += product;
        magnitude += std::abs(product);
      }
      out.y[t * outputs + n] = sum;
      out.magnitude[t * outputs + n] = magnitude;
    }
  }
  return out;
}

}  // namespace deepinfer::ref
