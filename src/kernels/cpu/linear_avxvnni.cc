// AVX2 with 256-bit VNNI (AVX-VNNI).
#include "kernels/cpu/linear_kernels.h"

#if defined(__x86_64__)
#include "kernels/cpu/avx2_float.h"
#include "kernels/cpu/avx2_linear.h"

namespace deepinfer::cpu {

const Kernels* avxvnni_kernels() {
  static constexpr Kernels kTable{
      .quantize_row = quantize_row,
      .round_to_bf16 = nullptr,
      .integer_bias = 0,
      .bf16_products = false,
      .row_padding = 0,
      .apply_integer = apply_integer<true>,
      .apply_bf16 = nullptr,
      .apply_float = apply_float,
  };
  return &kTable;
}

}  // namespace deepinfer::cpu
#else
namespace deepinfer::cpu {
const Kernels* avxvnni_kernels() { return nullptr; }
}  // namespace deepinfer::cpu
#endif
