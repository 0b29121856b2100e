// What the products of block_linear.h for AVX-512 share, whether they use dot products of bf16 pairs or multiply-adds of f32. For files
// compiled for AVX-512 only (see vec.h).
#pragma once

#include "kernels/cpu/block_linear_kernels.h"
#include "kernels/cpu/float8_vec.h"

namespace deepinfer::cpu {
namespace {

constexpr int kWideGroup = 8;               // outputs taken together for many rows: the wider, the fewer reads of activations from the L2 cache
constexpr int kTileRows = 3;                // 24 sums; 8 registers for the rest
constexpr int64_t kRowBlock = 144;          // most rows whose partial sums wait while chunks pass
constexpr int64_t kCacheBytes = 768 << 10;  // of activations, in the L2 cache while weights pass

DI_INLINE __m512i load32(const void* p) { return _mm512_loadu_si512(p); }
DI_INLINE __m512i load_first32(const void* p, int64_t count) { return _mm512_maskz_loadu_epi16(static_cast<__mmask32>((uint64_t{1} << count) - 1), p); }

DI_INLINE const bf16* row_of(const Bf16Rows& x, int64_t r) { return x.values + (x.ids != nullptr ? x.ids[r] : r) * x.ld; }

DI_INLINE const uint8_t* codes_of(const Fp8Matrix& w) { return reinterpret_cast<const uint8_t*>(w.codes); }
DI_INLINE const uint8_t* codes_of(const Fp4Matrix& w) { return w.codes; }
DI_INLINE const uint8_t* codes_of(const Bf16Matrix& w) { return reinterpret_cast<const uint8_t*>(w.values); }

DI_INLINE __m128 round_bf16(__m128 x) {
  const __m128i bits = _mm_castps_si128(x), odd = _mm_and_si128(_mm_srli_epi32(bits, 16), _mm_set1_epi32(1));
  const __m128i rounded = _mm_add_epi32(_mm_add_epi32(bits, _mm_set1_epi32(0x7fff)), odd);
  const __m128i kept = _mm_mask_or_epi32(rounded, _mm_cmp_ps_mask(x, x, _CMP_UNORD_Q), bits, _mm_set1_epi32(0x400000));
  return _mm_castsi128_ps(_mm_and_si128(kept, _mm_set1_epi32(static_cast<int>(0xffff0000u))));
}

DI_INLINE void store_outputs(const ProductOut& out, int64_t row, int64_t n, int64_t outputs, __m128 sums) {
  _mm_mask_storeu_ps(out.y + row * out.ldy + n, static_cast<__mmask8>((1u << outputs) - 1), out.round ? round_bf16(sums) : sums);
}

// Where a tile's outputs go.
struct TileOut {
  const ProductOut& out;
  int64_t row, n, outputs;
};

// The codes of a chunk of kWideGroup rows, fetched piece by piece while the tiles of the chunk before it are multiplied.
struct Upcoming {
  const uint8_t* first;
  int64_t row_bytes, bytes;  // between rows; of a row
  DI_INLINE void fetch(int64_t piece, int64_t pieces) const {
    const int64_t all = (bytes + 63) / 64 * kWideGroup;  // lines, line l being the l / kWideGroup th of row l % kWideGroup
    for (int64_t l = all * piece / pieces; l < all * (piece + 1) / pieces; ++l)
      _mm_prefetch(reinterpret_cast<const char*>(first) + l % kWideGroup * row_bytes + l / kWideGroup * 64, _MM_HINT_T0);
  }
};

// Rows of activations that stay in the L2 cache while all weights pass.
DI_INLINE int64_t rows_at_a_time(int64_t cols) {
  const int64_t fitting = kCacheBytes / (cols * 2) / kTileRows * kTileRows;
  return fitting < 8 * kTileRows ? 8 * kTileRows : fitting > kRowBlock ? kRowBlock : fitting;
}

}  // namespace
}  // namespace deepinfer::cpu
