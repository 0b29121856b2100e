// How a kernel file gets from numbers known at run time (rows, formats) to code for numbers known at compile time. Everything is in an unnamed namespace and always
// inlined: each file that includes this is compiled for its own instruction set, and must not share code with the others.
#pragma once

#include <cstdint>
#include <type_traits>
#include <utility>

#include "kernels/panels.h"

#define DI_INLINE __attribute__((always_inline))

namespace deepinfer::cpu {
namespace {

// f(integral_constant<int, 0>) ... f(integral_constant<int, N - 1>). Arrays of vectors indexed this way stay in registers; gcc 12
// leaves them in memory when an ordinary loop runs over them, even a fully unrolled one (half the speed in the int8 kernel).
template <int N, class F>
DI_INLINE inline void each(F f) {
  [&]<int... I>(std::integer_sequence<int, I...>) DI_INLINE { (f(std::integral_constant<int, I>()), ...); }
  (std::make_integer_sequence<int, N>());
}

// f(integral_constant<int, n>) for n in 1..Max.
template <int Max, class F>
DI_INLINE inline void with_count(int n, F f) {
  [&]<int... I>(std::integer_sequence<int, I...>) DI_INLINE {
    (void)((n == I + 1 ? (f(std::integral_constant<int, I + 1>()), true) : false) || ...);
  }
  (std::make_integer_sequence<int, Max>());
}

// Cuts num_rows into tiles of at most Max rows, of nearly equal size (13 rows are 7 and 6, not 12 and 1): f(first, count).
template <int Max, class F>
DI_INLINE inline void row_tiles(int64_t num_rows, F f) {
  const int64_t tiles = (num_rows + Max - 1) / Max;
  for (int64_t tile = 0; tile < tiles; ++tile) {
    const int64_t first = num_rows * tile / tiles;
    f(first, static_cast<int>(num_rows * (tile + 1) / tiles - first));
  }
}

// f(format as a template argument) for the set's format: f.template operator()<Format>().
template <class F>
DI_INLINE inline void with_format(DType dtype, F f) {
  switch (dtype) {
    case DType::kQ4_0: return f.template operator()<panels::format_of(DType::kQ4_0)>();
    case DType::kQ4_1: return f.template operator()<panels::format_of(DType::kQ4_1)>();
    case DType::kQ5_0: return f.template operator()<panels::format_of(DType::kQ5_0)>();
    case DType::kQ5_1: return f.template operator()<panels::format_of(DType::kQ5_1)>();
    case DType::kQ8_0: return f.template operator()<panels::format_of(DType::kQ8_0)>();
    case DType::kQ2_K: return f.template operator()<panels::format_of(DType::kQ2_K)>();
    case DType::kQ3_K: return f.template operator()<panels::format_of(DType::kQ3_K)>();
    case DType::kQ4_K: return f.template operator()<panels::format_of(DType::kQ4_K)>();
    case DType::kQ5_K: return f.template operator()<panels::format_of(DType::kQ5_K)>();
    case DType::kQ6_K: return f.template operator()<panels::format_of(DType::kQ6_K)>();
    case DType::kIQ4_NL: return f.template operator()<panels::format_of(DType::kIQ4_NL)>();
    case DType::kIQ4_XS: return f.template operator()<panels::format_of(DType::kIQ4_XS)>();
    case DType::kF32:
    case DType::kF16:
    case DType::kBF16:
    case DType::kF8_E4M3:
    case DType::kF8_E8M0:
    case DType::kI8: return;
  }
}

}  // namespace
}  // namespace deepinfer::cpu
