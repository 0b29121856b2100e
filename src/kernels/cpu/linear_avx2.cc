// AVX2 without VNNI.
#include "kernels/cpu/linear_kernels.h"

#if defined(__x86_64__)
#include "kernels/cpu/avx2_float.h"
#include "kernels/cpu/avx2_linear.h"

namespace deepinfer::cpu {

const Kernels* avx2_kernels() {
  static constexpr Kernels kTable{
      .quantize_row = quantize_row,
      .round_to_bf16 = nullptr,
      .integer_bias = 0,
      .bf16_products = false,
      .row_padding = 0,
      .apply_integer = apply_integer<false>,
      .apply_bf16 = nullptr,
      .apply_float = apply_float,
  };
  return &kTable;
}

}  // namespace deepinfer::cpu
#else
namespace deepinfer::cpu {
const Kernels* avx2_kernels() { return nullptr; }
}  // namespace deepinfer::cpu
#endif
