// The kernel table of the 256-bit instruction sets, with and without VNNI. For files compiled for one of them (see tiles.h).
#pragma once

#include "kernels/cpu/avx2_float.h"
#include "kernels/cpu/avx2_linear.h"

namespace deepinfer::cpu {
namespace {

template <bool kVnni>
constexpr Kernels kAvx2Table{
    .quantize_row = quantize_row,
    .round_to_bf16 = nullptr,
    .integer_bias = 0,
    .bf16_products = false,
    .row_padding = 0,
    .apply_integer = apply_integer<kVnni>,
    .apply_bf16 = nullptr,
    .apply_float = apply_float,
};

}  // namespace
}  // namespace deepinfer::cpu
