// The matrix product with 256-bit vectors, for AVX2 and AVX-VNNI alike: they differ in how bytes are multiplied (kVnni). Any number
// of rows shares one decoding of a chunk of a panel in the L1 cache; with 16 registers there is no room to decode on the way.
// For files compiled for AVX2 or later only (see tiles.h).
//
// Without VNNI, vpmaddubsw saturates at 16 bits. Codes below 64 cannot reach that, even two products added (63 * 127 * 4 < 2^15); codes
// of 8 bits take the sign trick: |w| times x with w's sign, 128 * 127 * 2 < 2^15. All sums are exact.
#pragma once

#include <immintrin.h>

#include <cstring>

#include "kernels/cpu/chunk_walk.h"
#include "kernels/cpu/linear_kernels.h"
#include "kernels/cpu/tiles.h"

namespace deepinfer::cpu {
namespace {

using panels::Codes;
using panels::Format;
using panels::kOutputs;
using panels::kQuadBytes;

constexpr int kLanes = 8;           // outputs of a vector: half a panel
constexpr int64_t kRowBlock = 192;  // rows whose int8 activations stay in the L2 cache while panels pass
constexpr int kTileRowsVnni = 6, kTileRowsPlain = 4, kTileRowsFloat = 6;

DI_INLINE inline __m256i load_bytes(const std::byte* p) { return _mm256_load_si256(reinterpret_cast<const __m256i*>(p)); }
DI_INLINE inline __m256 load_half8(const std::byte* p) { return _mm256_cvtph_ps(_mm_load_si128(reinterpret_cast<const __m128i*>(p))); }

// ---- activations -------------------------------------------------------------------------------------------------------------

DI_INLINE inline int32_t sum_of(__m256i v) {
  __m128i s = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4E));
  return _mm_cvtsi128_si32(_mm_add_epi32(s, _mm_shuffle_epi32(s, 0xB1)));
}
DI_INLINE inline int32_t max_of(__m256i v) {
  __m128i s = _mm_max_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  s = _mm_max_epi32(s, _mm_shuffle_epi32(s, 0x4E));
  return _mm_cvtsi128_si32(_mm_max_epi32(s, _mm_shuffle_epi32(s, 0xB1)));
}

void quantize_row(const float* x, int64_t cols, int8_t* q, float* scale, int32_t* sum16) {
  const __m256i magnitude_bits = _mm256_set1_epi32(0x7fffffff);
  for (int64_t g = 0; g < cols / 32; ++g, x += 32, q += 32) {
    __m256 v[4];
    __m256i magnitudes = _mm256_setzero_si256();
    each<4>([&](auto i) DI_INLINE {
      v[i] = _mm256_loadu_ps(x + i * kLanes);
      magnitudes = _mm256_max_epi32(magnitudes, _mm256_and_si256(_mm256_castps_si256(v[i]), magnitude_bits));
    });
    // As integers, magnitudes order like the numbers, and NaN is above all.
    const int32_t magnitude = max_of(magnitudes);
    float max;
    std::memcpy(&max, &magnitude, 4);
    const bool finite = magnitude < 0x7f800000;
    const bool zero = !finite || max < 1e-30f;
    const __m256 inverse = _mm256_set1_ps(zero ? 0.0f : 127.0f / max);
    scale[g] = !finite ? __builtin_nanf("") : zero ? 0.0f : max / 127.0f;
    const __m256i keep = _mm256_set1_epi32(finite ? -1 : 0);
    __m256i n[4];
    each<4>([&](auto i) DI_INLINE { n[i] = _mm256_and_si256(_mm256_cvtps_epi32(_mm256_mul_ps(v[i], inverse)), keep); });
    sum16[g * 2] = sum_of(_mm256_add_epi32(n[0], n[1]));
    sum16[g * 2 + 1] = sum_of(_mm256_add_epi32(n[2], n[3]));
    // Packing works within 128-bit halves: dwords come out as 0 4 1 5 2 6 3 7 of what is wanted.
    const __m256i bytes = _mm256_packs_epi16(_mm256_packs_epi32(n[0], n[1]), _mm256_packs_epi32(n[2], n[3]));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(q), _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7)));
  }
}

// ---- decoding ----------------------------------------------------------------------------------------------------------------

// Codes of quad J (0..7) of a group of 32, of half a panel: p is the group's place plus 32 for the second half.
template <Codes kCodes, int J>
DI_INLINE inline __m256i load_quad(const std::byte* p) {
  if constexpr (kCodes == Codes::k8) {
    return load_bytes(p + J * kQuadBytes);
  } else {
    const __m256i pair = load_bytes(p + J / 2 * kQuadBytes);
    const __m256i nibble = _mm256_and_si256(J % 2 == 0 ? pair : _mm256_srli_epi16(pair, 4), _mm256_set1_epi8(15));
    if constexpr (kCodes == Codes::k5) {
      const __m256i plane = load_bytes(p + 256);  // bit J belongs to quad J; it goes to bit 4
      const __m256i bit = J < 4 ? _mm256_slli_epi16(plane, J < 4 ? 4 - J : 0) : _mm256_srli_epi16(plane, J < 4 ? 0 : J - 4);
      return _mm256_or_si256(nibble, _mm256_and_si256(bit, _mm256_set1_epi8(16)));
    } else if constexpr (kCodes == Codes::k6) {
      const __m256i plane = load_bytes(p + 256 + J / 4 * kQuadBytes);
      constexpr int kBit = J % 4 * 2;
      const __m256i bits = kBit < 4 ? _mm256_slli_epi16(plane, kBit < 4 ? 4 - kBit : 0) : _mm256_srli_epi16(plane, kBit < 4 ? 0 : kBit - 4);
      return _mm256_or_si256(nibble, _mm256_and_si256(bits, _mm256_set1_epi8(48)));
    } else if constexpr (kCodes == Codes::kTable) {
      const __m256i table = _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(panels::kIq4Table)));
      return _mm256_xor_si256(_mm256_shuffle_epi8(table, nibble), _mm256_set1_epi8(-128));  // plus 128
    } else {
      return nibble;
    }
  }
}

// Scale and offset of sub group g of a block, of half a panel.
template <Format F>
struct BlockScales {
  DI_INLINE BlockScales(const std::byte* block, int half) : block_(block), half_(half) {
    if constexpr (F.super) {
      scale_ = load_half8(block + half * 16);
      if constexpr (F.offsets) offset_ = _mm256_xor_ps(load_half8(block + 32 + half * 16), _mm256_set1_ps(-0.0f));
    }
  }
  DI_INLINE __m256 scale(int g) const {
    if constexpr (!F.super) return load_half8(block_ + g * 32 + half_ * 16);
    const auto* sub = reinterpret_cast<const __m128i*>(block_ + 64 + g * kOutputs + half_ * kLanes);
    return _mm256_mul_ps(scale_, _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(sub))));
  }
  DI_INLINE __m256 offset(int g) const {
    if constexpr (!F.offsets) return _mm256_setzero_ps();
    if constexpr (!F.super) return load_half8(block_ + 64 + g * 32 + half_ * 16);
    constexpr int kSubGroups = F.block_sub_groups();
    const auto* sub = reinterpret_cast<const __m128i*>(block_ + 64 + (kSubGroups + g) * kOutputs + half_ * kLanes);
    return _mm256_mul_ps(offset_, _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64(sub))));
  }

 private:
  const std::byte* block_;
  int half_;
  __m256 scale_, offset_;
};

struct alignas(64) DecodedChunk {
  static constexpr int kDepth = 256;  // k
  std::byte codes[kDepth * kOutputs];
  float scale[kDepth / 16 * kOutputs];
  float offset[kDepth / 16 * kOutputs];
};

constexpr bool is_wide(Codes codes) { return codes == Codes::k8 || codes == Codes::kTable; }

// Blocks [first, first + count) of a panel. Signed codes have the zero point taken off.
template <Format F, bool kSigned>
void decode(const std::byte* panel, int64_t first, int64_t count, DecodedChunk& out) {
  constexpr int kGroups = F.block_groups(), kHeader = F.header_bytes(), kGroupBytes = F.group_bytes(), kBlock = F.block_bytes();
  constexpr int kSubGroups = F.block_sub_groups();
  for (int half = 0; half < 2; ++half) {
    const std::byte* p = panel + first * kBlock;
    std::byte* codes = out.codes + half * 32;
    float *scale = out.scale + half * kLanes, *offset = out.offset + half * kLanes;
    for (int64_t b = 0; b < count; ++b) {
      const BlockScales<F> scales(p, half);
      for (int s = 0; s < kSubGroups; ++s, scale += kOutputs, offset += kOutputs) {
        _mm256_store_ps(scale, scales.scale(s));
        if constexpr (F.offsets) _mm256_store_ps(offset, scales.offset(s));
      }
      p += kHeader;
      for (int g = 0; g < kGroups; ++g, p += kGroupBytes, codes += 8 * kQuadBytes) {
        each<8>([&](auto j) DI_INLINE {
          __m256i quad = load_quad<F.codes, j>(p + half * 32);
          if constexpr (kSigned) quad = _mm256_sub_epi8(quad, _mm256_set1_epi8(static_cast<char>(F.zero_point)));
          _mm256_store_si256(reinterpret_cast<__m256i*>(codes + j * kQuadBytes), quad);
        });
      }
    }
  }
}

// ---- integer formats ---------------------------------------------------------------------------------------------------------

// The activations of a tile: its first row's pointers at the chunk's k.
struct Tile {
  const int8_t* q;
  const float* scale;
  const int32_t* start;
  const float* sum;
  int64_t stride;  // bytes

  template <class T>
  DI_INLINE const T* row(const T* first, int i) const {
    return reinterpret_cast<const T*>(reinterpret_cast<const char*>(first) + i * stride);
  }
  DI_INLINE __m256i quad(int i, int64_t k) const {
    int32_t x;
    std::memcpy(&x, row(q, i) + k, 4);
    return _mm256_set1_epi32(x);
  }
};

// Adds the products of a sub group of kQuads quads at codes, k into the tile: dot [MR].
template <bool kVnni, bool kWide, int kQuads, int MR>
DI_INLINE inline void dot_quads(const Tile& t, const std::byte* codes, int64_t k, __m256i (&dot)[MR]) {
  const __m256i one = _mm256_set1_epi16(1);
  if constexpr (kVnni) {
#if defined(__AVXVNNI__)
    each<kQuads>([&](auto j) DI_INLINE {
      const __m256i w = load_bytes(codes + j * kQuadBytes);
      each<MR>([&](auto i) DI_INLINE { dot[i] = _mm256_dpbusd_avx_epi32(dot[i], w, t.quad(i, k + j * 4)); });
    });
#endif
  } else if constexpr (kWide) {
    each<kQuads>([&](auto j) DI_INLINE {
      const __m256i w = load_bytes(codes + j * kQuadBytes), magnitude = _mm256_abs_epi8(w);
      each<MR>([&](auto i) DI_INLINE {
        const __m256i pairs = _mm256_maddubs_epi16(magnitude, _mm256_sign_epi8(t.quad(i, k + j * 4), w));
        dot[i] = _mm256_add_epi32(dot[i], _mm256_madd_epi16(pairs, one));
      });
    });
  } else {
    each<kQuads / 2>([&](auto j) DI_INLINE {
      const __m256i w0 = load_bytes(codes + j * 2 * kQuadBytes), w1 = load_bytes(codes + (j * 2 + 1) * kQuadBytes);
      each<MR>([&](auto i) DI_INLINE {
        const __m256i pairs = _mm256_add_epi16(_mm256_maddubs_epi16(w0, t.quad(i, k + j * 8)), _mm256_maddubs_epi16(w1, t.quad(i, k + j * 8 + 4)));
        dot[i] = _mm256_add_epi32(dot[i], _mm256_madd_epi16(pairs, one));
      });
    });
  }
}

// MR rows against half a panel of a decoded chunk; acc [MR][16] (its half) is loaded and stored.
template <bool kVnni, bool kWide, int kSubGroup, bool kOffsets, int MR>
DI_INLINE inline void chunk_tile(const Tile& t, const DecodedChunk& chunk, int half, int64_t subs, Ahead next, float* acc_rows) {
  constexpr bool kSigned = kWide && !kVnni;
  __m256 acc[MR];
  each<MR>([&](auto i) DI_INLINE { acc[i] = _mm256_load_ps(acc_rows + i * kOutputs); });
  for (int64_t sub = 0; sub < subs; ++sub) {
    if (kSubGroup == 32 || sub % 2 == 0) next.fetch();
    __m256i dot[MR];
    each<MR>([&](auto i) DI_INLINE { dot[i] = kSigned ? _mm256_setzero_si256() : _mm256_set1_epi32(t.row(t.start, i)[sub]); });
    dot_quads<kVnni, kWide, kSubGroup / 4>(t, chunk.codes + sub * kSubGroup * kOutputs + half * 32, sub * kSubGroup, dot);
    const __m256 scale = _mm256_load_ps(chunk.scale + sub * kOutputs + half * kLanes);
    each<MR>([&](auto i) DI_INLINE {
      const __m256 sx = _mm256_set1_ps(t.row(t.scale, i)[sub * kSubGroup / 32]);
      acc[i] = _mm256_fmadd_ps(_mm256_mul_ps(_mm256_cvtepi32_ps(dot[i]), scale), sx, acc[i]);
      if constexpr (kOffsets) {
        const __m256 offset = _mm256_load_ps(chunk.offset + sub * kOutputs + half * kLanes);
        acc[i] = _mm256_fmadd_ps(offset, _mm256_set1_ps(t.row(t.sum, i)[sub]), acc[i]);
      }
    });
  }
  each<MR>([&](auto i) DI_INLINE { _mm256_store_ps(acc_rows + i * kOutputs, acc[i]); });
}

template <bool kVnni, bool kWide, int kSubGroup, bool kOffsets>
void chunk_rows(const Rows& rows, int64_t first_row, int64_t num_rows, int64_t k, const DecodedChunk& chunk, int64_t depth, const Ahead& next, float* acc) {
  constexpr int kTileRows = kVnni ? kTileRowsVnni : kTileRowsPlain;
  row_tiles<kTileRows>(num_rows, [&](int64_t first, int count) DI_INLINE {
    const int64_t row = first_row + first, s = rows.stride;
    const Tile tile{Rows::at<int8_t>(rows.q, s, row) + k, Rows::at<float>(rows.scale, s, row) + k / 32,
                    Rows::at<int32_t>(rows.start, s, row) + k / kSubGroup,
                    kOffsets ? Rows::at<float>(rows.sum, s, row) + k / kSubGroup : nullptr, s};
    with_count<kTileRows>(count, [&](auto n) DI_INLINE {
      for (int half = 0; half < 2; ++half) {
        chunk_tile<kVnni, kWide, kSubGroup, kOffsets, n>(tile, chunk, half, depth / kSubGroup, first == 0 && half == 0 ? next : Ahead{},
                                                         acc + first * kOutputs + half * kLanes);
      }
    });
  });
}

// Writes one row's outputs of a panel from acc [16], with the bias.
DI_INLINE inline void store_row(const Output& out, int64_t row, const PanelSet& set, int64_t panel, const float* acc) {
  const int64_t first = panel * kOutputs, left = set.rows - first;
  float* y = out.y + row * out.ldy + set.first_output + first;
  const float* bias = out.bias != nullptr ? out.bias + set.first_output + first : nullptr;
  for (int64_t o = 0; o < (left < kOutputs ? left : kOutputs); ++o) y[o] = bias != nullptr ? acc[o] + bias[o] : acc[o];
}

template <bool kVnni>
void apply_integer(const PanelSet& set, const Rows& rows, int64_t num_rows, const Output& out, int64_t begin, int64_t end) {
  with_format(set.dtype, [&]<Format F>() {
    constexpr bool kWide = is_wide(F.codes);
    walk_chunks<kRowBlock, DecodedChunk>(set, rows, num_rows, begin, end,
                                         {decode<F, kWide && !kVnni>, chunk_rows<kVnni, kWide, F.sub_group, F.offsets>},
                                         [&](int64_t row, int64_t panel, const float* acc) { store_row(out, row, set, panel, acc); });
  });
}

}  // namespace
}  // namespace deepinfer::cpu
