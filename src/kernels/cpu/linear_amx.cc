// Matrix tiles (AMX) for many rows of integer formats and for BF16 weights of any number of rows; the rest is AVX-512's.
//
// Integers: a tile product of a group of 32 (or a sub group of 16) gives 32-bit sums, exact as those of the dot product instruction,
// and the scaling that follows is the same, so few rows (AVX-512) and many (here) get the same bits. The scaling bounds the speed:
// 3 vector instructions for each 16 sums against 1/2 of a tile row, which is why a group of 32 cannot reach the tiles' own peak.
//
// BF16: sums stay in the tile for all of K. The instruction's rounding (and its flushing of subnormals) is its own, so it serves every
// batch size, one row too.
#include "kernels/cpu/linear_kernels.h"

#if defined(__x86_64__)
#include <cstring>

#include "kernels/cpu/avx512_panels.h"
// After the above, which quiets a false warning about the intrinsics.
#include "kernels/cpu/amx_tiles.h"

namespace deepinfer::cpu {
namespace {

constexpr int kTileRows = 12;        // times two panels: 24 accumulators, and 8 registers for the rest
constexpr int kMinRows = 6;          // below, the vector kernels are faster
constexpr int64_t kRowBlock = 192;   // rows whose int8 activations stay in the L2 cache while panels pass

// The compiler does not know what the tile instructions read.
DI_INLINE inline void memory_barrier() { asm volatile("" ::: "memory"); }

// ---- integer formats ---------------------------------------------------------------------------------------------------------

struct IntegerTile {
  const int8_t* q;      // first row, at the chunk's k
  const float* scale;
  const float* sum;
  int64_t stride;       // bytes from row to row

  template <class T>
  DI_INLINE const T* row(const T* first, int i) const {
    return reinterpret_cast<const T*>(reinterpret_cast<const char*>(first) + i * stride);
  }
};

// Sums of one sub group: [row][panel][16].
template <int MR>
struct alignas(64) Sums {
  int32_t of[2][MR * kOutputs];
};

// Tiles 0 and 1 (even sub groups) or 2 and 3 (odd ones) hold sums, 4 activations, 5 and 6 the two panels' weights.
template <int kSubGroup>
DI_INLINE inline void multiply_sub_group(const IntegerTile& t, const DecodedChunk (&chunk)[2], int64_t sub, bool odd) {
  const int8_t* q = t.q + sub * kSubGroup;
  const std::byte *w0 = chunk[0].codes + sub * kSubGroup * kOutputs, *w1 = chunk[1].codes + sub * kSubGroup * kOutputs;
  _tile_loadd(4, q, t.stride);
  _tile_loadd(5, w0, kQuadBytes);
  _tile_loadd(6, w1, kQuadBytes);
  if (odd) {
    _tile_zero(2);
    _tile_zero(3);
    _tile_dpbssd(2, 4, 5);
    _tile_dpbssd(3, 4, 6);
  } else {
    _tile_zero(0);
    _tile_zero(1);
    _tile_dpbssd(0, 4, 5);
    _tile_dpbssd(1, 4, 6);
  }
}

template <int MR>
DI_INLINE inline void store_sums(Sums<MR>& sums, bool odd) {
  if (odd) {
    _tile_stored(2, sums.of[0], kQuadBytes);
    _tile_stored(3, sums.of[1], kQuadBytes);
  } else {
    _tile_stored(0, sums.of[0], kQuadBytes);
    _tile_stored(1, sums.of[1], kQuadBytes);
  }
}

template <int kSubGroup, bool kOffsets, int MR>
DI_INLINE inline void scale_sums(const IntegerTile& t, const DecodedChunk (&chunk)[2], int64_t sub, const Sums<MR>& sums,
                                 __m512 (&acc)[2 * MR]) {
  const int64_t g = sub * kSubGroup / 32;
  __m512 scale[2], offset[2];
  each<2>([&](auto p) DI_INLINE {
    scale[p] = _mm512_load_ps(chunk[p].scale + sub * kOutputs);
    if constexpr (kOffsets) offset[p] = _mm512_load_ps(chunk[p].offset + sub * kOutputs);
  });
  each<MR>([&](auto i) DI_INLINE {
    const __m512 sx = _mm512_set1_ps(t.row(t.scale, i)[g]);
    each<2>([&](auto p) DI_INLINE {
      const __m512 sum = _mm512_cvtepi32_ps(_mm512_load_si512(sums.of[p] + i * kOutputs));
      acc[i * 2 + p] = _mm512_fmadd_ps(_mm512_mul_ps(sum, scale[p]), sx, acc[i * 2 + p]);
      if constexpr (kOffsets) acc[i * 2 + p] = _mm512_fmadd_ps(offset[p], _mm512_set1_ps(t.row(t.sum, i)[sub]), acc[i * 2 + p]);
    });
  });
}

// MR rows against a decoded chunk of two panels; acc [MR][2][16] is loaded and stored. The tile products of the next sub group run
// while the vector units scale this one's.
template <int kSubGroup, bool kOffsets, int MR>
DI_INLINE inline void chunk_tile(const IntegerTile& t, const DecodedChunk (&chunk)[2], int64_t subs, float* acc_rows) {
  __m512 acc[2 * MR];
  each<2 * MR>([&](auto i) DI_INLINE { acc[i] = _mm512_load_ps(acc_rows + i * kOutputs); });
  Sums<MR> sums[2];
  multiply_sub_group<kSubGroup>(t, chunk, 0, false);
  store_sums(sums[0], false);
  for (int64_t sub = 0; sub < subs; sub += 2) {  // always an even number: chunks are multiples of 64
    multiply_sub_group<kSubGroup>(t, chunk, sub + 1, true);
    scale_sums<kSubGroup, kOffsets>(t, chunk, sub, sums[0], acc);
    store_sums(sums[1], true);
    if (sub + 2 < subs) multiply_sub_group<kSubGroup>(t, chunk, sub + 2, false);
    scale_sums<kSubGroup, kOffsets>(t, chunk, sub + 1, sums[1], acc);
    if (sub + 2 < subs) store_sums(sums[0], false);
  }
  each<2 * MR>([&](auto i) DI_INLINE { _mm512_store_ps(acc_rows + i * kOutputs, acc[i]); });
}

// A block of rows cut into equal tiles; the last may reach past the rows (into padding that nobody stores).
struct RowCut {
  int64_t tiles;
  int tile_rows;
};
DI_INLINE inline RowCut cut_rows(int64_t num_rows, int max_tile) {
  const int64_t tiles = (num_rows + max_tile - 1) / max_tile;
  return {tiles, static_cast<int>((num_rows + tiles - 1) / tiles)};
}

template <int kSubGroup, bool kOffsets>
void chunk_rows(const Rows& rows, int64_t first_row, const RowCut& cut, int64_t k, const DecodedChunk (&chunk)[2], int64_t depth, float* acc) {
  memory_barrier();
  with_count<kTileRows>(cut.tile_rows, [&](auto count) DI_INLINE {
    for (int64_t tile = 0; tile < cut.tiles; ++tile) {
      const int64_t row = first_row + tile * count;
      const IntegerTile t{Rows::at<int8_t>(rows.q, rows.stride, row) + k, Rows::at<float>(rows.scale, rows.stride, row) + k / 32,
                          kOffsets ? Rows::at<float>(rows.sum, rows.stride, row) + k / kSubGroup : nullptr, rows.stride};
      chunk_tile<kSubGroup, kOffsets, count>(t, chunk, depth / kSubGroup, acc + tile * count * 2 * kOutputs);
    }
  });
}

TileConfig integer_tiles(int tile_rows, int sub_group) {
  TileConfig config;
  for (int tile = 0; tile < 4; ++tile) config.set(tile, tile_rows, kQuadBytes);
  config.set(4, tile_rows, sub_group);
  config.set(5, sub_group / 4, kQuadBytes);
  config.set(6, sub_group / 4, kQuadBytes);
  return config;
}

struct ChunkKernels {
  void (*decode)(const std::byte* panel, int64_t first, int64_t count, DecodedChunk& out);
  void (*rows)(const Rows&, int64_t first_row, const RowCut&, int64_t k, const DecodedChunk (&)[2], int64_t depth, float* acc);
};

void apply_chunks(const PanelSet& set, const Rows& rows, int64_t num_rows, const Output& out, int64_t begin, int64_t end,
                  const ChunkKernels& kernels) {
  const int64_t block_k = set.format.block_k(), blocks = (set.cols + block_k - 1) / block_k, step = DecodedChunk::kDepth / block_k;
  DecodedChunk chunk[2];
  alignas(64) float acc[kRowBlock * 2 * kOutputs];
  for (int64_t row = 0; row < num_rows; row += kRowBlock) {
    const int64_t count = num_rows - row < kRowBlock ? num_rows - row : kRowBlock;
    const RowCut cut = cut_rows(count, kTileRows);
    const TileConfig config = integer_tiles(cut.tile_rows, set.format.sub_group);
    _tile_loadconfig(&config);
    for (int64_t panel = begin; panel < end; panel += 2) {
      const int64_t second = panel + 1 < end ? panel + 1 : panel;  // a lone last panel is computed twice and stored once
      std::memset(acc, 0, static_cast<size_t>(cut.tiles * cut.tile_rows) * 2 * kOutputs * sizeof(float));
      for (int64_t b = 0; b < blocks; b += step) {
        const int64_t here = blocks - b < step ? blocks - b : step;
        kernels.decode(set.data + panel * set.stride, b, here, chunk[0]);
        kernels.decode(set.data + second * set.stride, b, here, chunk[1]);
        kernels.rows(rows, row, cut, b * block_k, chunk, here * block_k, acc);
      }
      for (int64_t i = 0; i < count; ++i) {
        store_outputs(out, row + i, set, panel, _mm512_load_ps(acc + i * 2 * kOutputs));
        if (second != panel) store_outputs(out, row + i, set, second, _mm512_load_ps(acc + (i * 2 + 1) * kOutputs));
      }
    }
  }
  _tile_release();
}

void apply_integer(const PanelSet& set, const Rows& rows, int64_t num_rows, const Output& out, int64_t begin, int64_t end) {
  if (num_rows < kMinRows) return avx512_kernels()->apply_integer(set, rows, num_rows, out, begin, end);
  with_format(set.dtype, [&]<Format F>() {
    apply_chunks(set, rows, num_rows, out, begin, end, {decode<F, true>, chunk_rows<F.sub_group, F.offsets>});
  });
}

// ---- BF16 --------------------------------------------------------------------------------------------------------------------

constexpr int kBf16TileRows = 16;
constexpr int64_t kBf16RowBlock = 96;
constexpr int64_t kBf16Depth = 256;  // k whose weights of two panels (16 KiB) stay in the L1 cache while rows pass
constexpr int kStepBytes = 32 * 2;   // of a row, in one tile product

// Two row tiles (or one) against two panels, k in steps of 32; sums [tile rows * 2][2][16] are loaded and stored.
template <bool kTwo>
DI_INLINE inline void bf16_tiles(const std::byte* x, int64_t stride, int tile_rows, const std::byte* w0, const std::byte* w1, int64_t steps,
                                 float* acc) {
  constexpr int kRowBytes = 2 * kQuadBytes;
  float* second = acc + int64_t{2} * tile_rows * kOutputs;
  _tile_loadd(0, acc, kRowBytes);
  _tile_loadd(1, acc + kOutputs, kRowBytes);
  if constexpr (kTwo) {
    _tile_loadd(2, second, kRowBytes);
    _tile_loadd(3, second + kOutputs, kRowBytes);
  }
  for (int64_t s = 0; s < steps; ++s, x += kStepBytes, w0 += 16 * kQuadBytes, w1 += 16 * kQuadBytes) {
    _tile_loadd(4, x, stride);
    _tile_loadd(6, w0, kQuadBytes);
    _tile_loadd(7, w1, kQuadBytes);
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    if constexpr (kTwo) {
      _tile_loadd(5, x + tile_rows * stride, stride);
      _tile_dpbf16ps(2, 5, 6);
      _tile_dpbf16ps(3, 5, 7);
    }
  }
  _tile_stored(0, acc, kRowBytes);
  _tile_stored(1, acc + kOutputs, kRowBytes);
  if constexpr (kTwo) {
    _tile_stored(2, second, kRowBytes);
    _tile_stored(3, second + kOutputs, kRowBytes);
  }
}

void apply_bf16(const PanelSet& set, const Rows& rows, int64_t num_rows, const Output& out, int64_t begin, int64_t end) {
  alignas(64) float acc[kBf16RowBlock * 2 * kOutputs];
  const int64_t depth = (set.cols + 31) / 32 * 32;
  for (int64_t row = 0; row < num_rows; row += kBf16RowBlock) {
    const int64_t count = num_rows - row < kBf16RowBlock ? num_rows - row : kBf16RowBlock;
    const RowCut cut = cut_rows(count, kBf16TileRows);
    TileConfig config;
    for (int tile = 0; tile < 6; ++tile) config.set(tile, cut.tile_rows, kQuadBytes);
    for (int tile = 6; tile < 8; ++tile) config.set(tile, 16, kQuadBytes);
    _tile_loadconfig(&config);
    for (int64_t panel = begin; panel < end; panel += 2) {
      const int64_t other = panel + 1 < end ? panel + 1 : panel;
      std::memset(acc, 0, static_cast<size_t>(cut.tiles * cut.tile_rows) * 2 * kOutputs * sizeof(float));
      memory_barrier();
      for (int64_t k = 0; k < depth; k += kBf16Depth) {
        const int64_t steps = (depth - k < kBf16Depth ? depth - k : kBf16Depth) / 32;
        const std::byte* w0 = set.data + panel * set.stride + k / 2 * kQuadBytes;
        const std::byte* w1 = set.data + other * set.stride + k / 2 * kQuadBytes;
        for (int64_t tile = 0; tile < cut.tiles; tile += 2) {
          const int64_t first = tile * cut.tile_rows;
          const std::byte* x = rows.bf16 + (row + first) * rows.stride + k * 2;
          if (tile + 1 < cut.tiles) {
            bf16_tiles<true>(x, rows.stride, cut.tile_rows, w0, w1, steps, acc + first * 2 * kOutputs);
          } else {
            bf16_tiles<false>(x, rows.stride, cut.tile_rows, w0, w1, steps, acc + first * 2 * kOutputs);
          }
        }
      }
      memory_barrier();
      for (int64_t i = 0; i < count; ++i) {
        store_outputs(out, row + i, set, panel, _mm512_load_ps(acc + i * 2 * kOutputs));
        if (other != panel) store_outputs(out, row + i, set, other, _mm512_load_ps(acc + (i * 2 + 1) * kOutputs));
      }
    }
  }
  _tile_release();
}

}  // namespace

const Kernels* amx_kernels() {
  static const Kernels kTable = [] {
    Kernels table = *avx512_kernels();
    table.row_padding = 16;  // at most one row a tile, and a block has 16 tiles
    table.apply_integer = apply_integer;
    table.apply_bf16 = apply_bf16;
    return table;
  }();
  return &kTable;
}

}  // namespace deepinfer::cpu
#else
namespace deepinfer::cpu {
const Kernels* amx_kernels() { return nullptr; }
}  // namespace deepinfer::cpu
#endif
