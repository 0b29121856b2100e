// Where the codes of outputs lie, for the products of block_linear.h in whatever vectors. For files compiled for x86 vectors only (see vec.h).
//
// A Format says how codes are stored: bytes(k), those of k inputs; kSharedScales, the outputs that share a row of scales, 0 for formats without.
#pragma once

#include "kernels/cpu/block_linear_kernels.h"
#include "kernels/cpu/vec.h"

namespace deepinfer::cpu {
namespace {

constexpr int kWideGroup = 8;  // outputs decoded together for many rows: the wider, the fewer reads of activations from the L2 cache

DI_INLINE const uint8_t* codes_of(const Fp8Matrix& w) { return reinterpret_cast<const uint8_t*>(w.codes); }
DI_INLINE const uint8_t* codes_of(const Fp4Matrix& w) { return w.codes; }
DI_INLINE const uint8_t* codes_of(const Bf16Matrix& w) { return reinterpret_cast<const uint8_t*>(w.values); }

// N outputs. A missing one is the first once more.
template <int N>
struct Outputs {
  const uint8_t* codes[N];
  const e8m0* scales[N];  // null without
};
template <class Format, int N, class Matrix>
[[maybe_unused]] DI_INLINE Outputs<N> outputs_at(const Matrix& w, int64_t n, int64_t outputs) {
  Outputs<N> at;
  for (int64_t i = 0; i < N; ++i) {
    const int64_t output = n + (i < outputs ? i : 0);
    at.codes[i] = codes_of(w) + output * Format::bytes(w.cols);
    at.scales[i] = nullptr;
    if constexpr (Format::kSharedScales > 0) at.scales[i] = w.scales + output / Format::kSharedScales * (w.cols / 32);
  }
  return at;
}

// The codes of a chunk of kWideGroup outputs, fetched piece by piece while the tiles of the chunk before it are multiplied.
struct Upcoming {
  const uint8_t* first;
  int64_t row_bytes, bytes;  // between outputs; of each
  DI_INLINE void fetch(int64_t piece, int64_t pieces) const {
    const int64_t all = (bytes + 63) / 64 * kWideGroup;  // lines, line l being the l / kWideGroup th of output l % kWideGroup
    for (int64_t l = all * piece / pieces; l < all * (piece + 1) / pieces; ++l)
      _mm_prefetch(reinterpret_cast<const char*>(first) + l % kWideGroup * row_bytes + l / kWideGroup * 64, _MM_HINT_T0);
  }
};
// Of chunks of `depth` inputs: the one after inputs [k, ...) of the outputs from n on.
template <class Format, class Matrix>
[[maybe_unused]] DI_INLINE Upcoming upcoming_after(const Matrix& w, int64_t n, int64_t k, int64_t depth) {
  const int64_t next = k + depth < w.cols ? k + depth : 0, rest = w.cols - next;
  return {codes_of(w) + Format::bytes((next > 0 ? n : n + kWideGroup) * w.cols + next), Format::bytes(w.cols), Format::bytes(rest < depth ? rest : depth)};
}

}  // namespace
}  // namespace deepinfer::cpu
