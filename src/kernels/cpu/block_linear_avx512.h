// What the products of block_linear.h for AVX-512 share, whether they use dot products of bf16 pairs or multiply-adds of f32. For files
// compiled for AVX-512 only (see vec.h).
#pragma once

#include "kernels/cpu/block_linear_outputs.h"
#include "kernels/cpu/float8_vec.h"

namespace deepinfer::cpu {
namespace {

constexpr int kTileRows = 3;                // 24 sums; 8 registers for the rest
constexpr int64_t kRowBlock = 144;          // most rows whose partial sums wait while chunks pass
constexpr int64_t kCacheBytes = 768 << 10;  // of activations, in the L2 cache while weights pass

DI_INLINE __m512i load32(const void* p) { return _mm512_loadu_si512(p); }
DI_INLINE __m512i load_first32(const void* p, int64_t count) { return _mm512_maskz_loadu_epi16(static_cast<__mmask32>((uint64_t{1} << count) - 1), p); }

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

// Rows of activations that stay in the L2 cache while all weights pass.
DI_INLINE int64_t rows_at_a_time(int64_t cols) {
  const int64_t fitting = kCacheBytes / (cols * 2) / kTileRows * kTileRows;
  return fitting < 8 * kTileRows ? 8 * kTileRows : fitting > kRowBlock ? kRowBlock : fitting;
}

// A Kernel is an arithmetic: its Chunk holds up to kDepth inputs of kWideGroup outputs as decode() of a group of codes leaves them, and
// step() adds the products of 32 of those, from k on, with 32 inputs of MR rows of activations.

// MR rows against a chunk. sums [MR][kWideGroup][16]: partial sums of the chunks before and for those after; `last` has none after it.
template <class Kernel, int MR>
__attribute__((noinline)) void multiply_tile(const bf16* const* x, const typename Kernel::Chunk& chunk, int64_t count, bool first, bool last,
                                             float* sums, const TileOut& to) {
  __m512 sum[MR * kWideGroup];
  each<MR * kWideGroup>([&](auto i) __attribute__((always_inline)) { sum[i] = first ? _mm512_setzero_ps() : _mm512_load_ps(sums + i * 16); });
  const auto step = [&](int64_t k, auto load) __attribute__((always_inline)) {
    __m512i words[MR];
    each<MR>([&](auto i) __attribute__((always_inline)) { words[i] = load(x[i] + k); });
    Kernel::template step<MR>(chunk, k, words, sum);
  };
  int64_t k = 0;
  for (; k + 32 <= count; k += 32) step(k, [](const bf16* p) __attribute__((always_inline)) { return load32(p); });
  if (k < count) step(k, [&](const bf16* p) __attribute__((always_inline)) { return load_first32(p, count - k); });
  if (!last) {
    each<MR * kWideGroup>([&](auto i) __attribute__((always_inline)) { _mm512_store_ps(sums + i * 16, sum[i]); });
    return;
  }
  each<MR * kWideGroup / 4>([&](auto q) __attribute__((always_inline)) {
    constexpr int kQuads = kWideGroup / 4, kFirst = q % kQuads * 4;
    const int64_t outputs = to.outputs - kFirst;
    if (outputs > 0)
      store_outputs(to.out, to.row + q / kQuads, to.n + kFirst, outputs < 4 ? outputs : 4, Vec::sums(sum[q * 4], sum[q * 4 + 1], sum[q * 4 + 2], sum[q * 4 + 3]));
  });
}

// All rows against outputs [begin, end): eight outputs at a time are decoded into the L1 cache, chunk by chunk, and meet tiles of three rows.
// group_at(row, n, outputs, group): where the codes of outputs from n on lie; false if they have been seen to. Format::bytes: of a row's codes.
template <class Kernel, class Format, class Group, class Matrix, class GroupAt>
DI_INLINE void multiply_tiles(const Bf16Rows& x, const Matrix& w, int64_t begin, int64_t end, const ProductOut& out, GroupAt group_at) {
  constexpr int64_t kDepth = Kernel::kDepth;
  typename Kernel::Chunk chunk;
  alignas(64) float sums[kRowBlock * kWideGroup * 16];
  const int64_t block = rows_at_a_time(w.cols);
  for (int64_t row = 0; row < x.num_rows; row += block) {
    const int64_t rows = x.num_rows - row < block ? x.num_rows - row : block;
    const bf16* at[kRowBlock];
    for (int64_t i = 0; i < rows; ++i) at[i] = x.row(row + i);
    for (int64_t n = begin; n < end; n += kWideGroup) {
      const int64_t outputs = end - n < kWideGroup ? end - n : kWideGroup;
      Group group;
      if (!group_at(row, n, outputs, group)) continue;
      for (int64_t k = 0; k < w.cols; k += kDepth) {
        const int64_t count = w.cols - k < kDepth ? w.cols - k : kDepth;
        Kernel::template decode<Format>(group, k, count, chunk);
        const int64_t tiles = (rows + kTileRows - 1) / kTileRows;
        const Upcoming upcoming = upcoming_after<Format>(w, n, k, kDepth);
        for (int64_t i = 0; i < rows; i += kTileRows) {
          upcoming.fetch(i / kTileRows, tiles);
          const bf16* x_at[kTileRows];
          for (int64_t j = 0; j < kTileRows; ++j) x_at[j] = at[i + j < rows ? i + j : i] + k;
          float* place = sums + i * kWideGroup * 16;
          const bool first = k == 0, last = k + kDepth >= w.cols;
          const TileOut to{out, row + i, n, outputs};
          if (rows - i >= kTileRows) multiply_tile<Kernel, kTileRows>(x_at, chunk, count, first, last, place, to);
          else if (rows - i == 2) multiply_tile<Kernel, 2>(x_at, chunk, count, first, last, place, to);
          else multiply_tile<Kernel, 1>(x_at, chunk, count, first, last, place, to);
        }
      }
    }
  }
}

}  // namespace
}  // namespace deepinfer::cpu
