// AVX-512 with VNNI and BF16. Up to kDirectRows rows read the panel as it lies, so that a product of few rows runs at the memory's
// speed; more rows share one decoding of a chunk of the panel into plain bytes in the L1 cache.
//
// Integer sums start at Rows::start, whose bias makes the integer the bits of the float 1.5 * 2^23 + sum (exact: |sum| < 2^22). Then
// fmsub(that, scale, 1.5 * 2^23 * scale) is sum * scale, rounded once: no conversion instruction, and the same bits as one.
#include "kernels/cpu/linear_kernels.h"

#if defined(__x86_64__)
#include <cstring>

#include "kernels/cpu/avx512_panels.h"
#include "kernels/cpu/chunk_walk.h"

namespace deepinfer::cpu {
namespace {

constexpr int32_t kFloatBias = 0x4B400000;
constexpr float kFloatBiasValue = 12582912.0f;  // its bits as a float
constexpr int kTileRows = 12;                   // 12 integer and 12 float accumulators, and 8 registers for the rest
constexpr int kDirectRows = 4;
constexpr int kStreams = 2;                      // panels that few rows read at once
constexpr int64_t kRowBlock = 192;              // rows whose int8 activations stay in the L2 cache while panels pass

constexpr int32_t kInfinityBits = 0x7f800000;
constexpr float kSmallest = 1e-30f;             // a group below it counts as zeros: 127 / max would overflow

// The activation operand is broadcast from memory inside the instruction: no register and no instruction for it.
DI_INLINE inline void dot_u8s8(__m512i& sum, __m512i codes, const int8_t* x) {
  asm("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(sum) : "v"(codes), "m"(*reinterpret_cast<const int*>(x)));
}
DI_INLINE inline void dot_bf16(__m512& sum, __m512i pairs, const uint16_t* x) {
  asm("vdpbf16ps %2%{1to16%}, %1, %0" : "+v"(sum) : "v"(pairs), "m"(*reinterpret_cast<const int*>(x)));
}

// ---- activations -------------------------------------------------------------------------------------------------------------

// One group: the general case, NaN and infinity included.
void quantize_group(const float* x, int8_t* q, float* scale, int32_t* sum16) {
  const __m512i magnitude_bits = _mm512_set1_epi32(0x7fffffff);
  const __m512 low = _mm512_loadu_ps(x), high = _mm512_loadu_ps(x + 16);
  // As integers, magnitudes order like the numbers, and NaN is above all.
  const int32_t magnitude =
      _mm512_reduce_max_epi32(_mm512_max_epi32(_mm512_and_si512(_mm512_castps_si512(low), magnitude_bits),
                                               _mm512_and_si512(_mm512_castps_si512(high), magnitude_bits)));
  float max;
  std::memcpy(&max, &magnitude, 4);
  const bool finite = magnitude < kInfinityBits;
  const bool zero = !finite || max < kSmallest;
  const __m512 inverse = _mm512_set1_ps(zero ? 0.0f : 127.0f / max);
  *scale = !finite ? __builtin_nanf("") : zero ? 0.0f : max / 127.0f;
  const __mmask16 keep = finite ? __mmask16{0xffff} : __mmask16{0};
  const __m512i a = _mm512_maskz_cvtps_epi32(keep, _mm512_mul_ps(low, inverse));
  const __m512i b = _mm512_maskz_cvtps_epi32(keep, _mm512_mul_ps(high, inverse));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(q), _mm512_cvtsepi32_epi8(a));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(q + 16), _mm512_cvtsepi32_epi8(b));
  sum16[0] = _mm512_reduce_add_epi32(a);
  sum16[1] = _mm512_reduce_add_epi32(b);
}

// Largest element of each of four vectors.
DI_INLINE inline __m128i max_of_four(const __m512i (&v)[4]) {
  const auto max2 = [](__m512i a, __m512i b) DI_INLINE { return _mm512_max_epi32(a, b); };
  const __m512i v01 = max2(_mm512_unpacklo_epi32(v[0], v[1]), _mm512_unpackhi_epi32(v[0], v[1]));
  const __m512i v23 = max2(_mm512_unpacklo_epi32(v[2], v[3]), _mm512_unpackhi_epi32(v[2], v[3]));
  const __m512i all = max2(_mm512_unpacklo_epi64(v01, v23), _mm512_unpackhi_epi64(v01, v23));  // each lane: of 0, 1, 2, 3
  const __m256i half = _mm256_max_epi32(_mm512_castsi512_si256(all), _mm512_extracti64x4_epi64(all, 1));
  return _mm_max_epi32(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
}

// Two finite groups with their inverse scales: 64 numbers.
DI_INLINE inline void quantize_pair(const float* x, __m512 inverse0, __m512 inverse1, int8_t* q, int32_t* sum16) {
  const auto number = [&](int i, __m512 inverse) DI_INLINE { return _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(x + i * 16), inverse)); };
  // Packing works within 128-bit lanes: of dword d of lane l comes dword 4 d + l of what is wanted.
  const __m512i words0 = _mm512_packs_epi32(number(0, inverse0), number(1, inverse0));
  const __m512i words1 = _mm512_packs_epi32(number(2, inverse1), number(3, inverse1));
  const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  const __m512i bytes = _mm512_permutexvar_epi32(order, _mm512_packs_epi16(words0, words1));
  _mm512_storeu_si512(q, bytes);
  __m512i sums = _mm512_dpbusd_epi32(_mm512_setzero_si512(), _mm512_set1_epi8(1), bytes);  // of 4; a lane is 16 numbers
  sums = _mm512_add_epi32(sums, _mm512_shuffle_epi32(sums, _MM_PERM_BADC));
  sums = _mm512_add_epi32(sums, _mm512_shuffle_epi32(sums, _MM_PERM_CDAB));
  const __m512i firsts = _mm512_permutexvar_epi32(_mm512_setr_epi32(0, 4, 8, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0), sums);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(sum16), _mm512_castsi512_si128(firsts));
}

void quantize_row(const float* x, int64_t cols, int8_t* q, float* scale, int32_t* sum16) {
  const __m512i magnitude_bits = _mm512_set1_epi32(0x7fffffff);
  const int64_t groups = cols / 32;
  int64_t g = 0;
  for (; g + 4 <= groups; g += 4, x += 128, q += 128) {
    __m512i largest[4];
    each<4>([&](auto i) DI_INLINE {
      largest[i] = _mm512_max_epi32(_mm512_and_si512(_mm512_loadu_si512(x + i * 32), magnitude_bits),
                                    _mm512_and_si512(_mm512_loadu_si512(x + i * 32 + 16), magnitude_bits));
    });
    const __m128i magnitude = max_of_four(largest);
    const __m128 max = _mm_castsi128_ps(magnitude);
    if (_mm_cmplt_epi32_mask(magnitude, _mm_set1_epi32(kInfinityBits)) != 15) {
      for (int i = 0; i < 4; ++i) quantize_group(x + i * 32, q + i * 32, scale + g + i, sum16 + (g + i) * 2);
      continue;
    }
    const __mmask8 nonzero = _mm_cmp_ps_mask(max, _mm_set1_ps(kSmallest), _CMP_GE_OQ);
    const __m128 unit = _mm_set1_ps(127.0f);
    _mm_storeu_ps(scale + g, _mm_maskz_div_ps(nonzero, max, unit));
    const __m512 inverse = _mm512_castps128_ps512(_mm_maskz_div_ps(nonzero, unit, max));
    const auto of = [&](int i) DI_INLINE { return _mm512_permutexvar_ps(_mm512_set1_epi32(i), inverse); };
    quantize_pair(x, of(0), of(1), q, sum16 + g * 2);
    quantize_pair(x + 64, of(2), of(3), q + 64, sum16 + g * 2 + 4);
  }
  for (; g < groups; ++g, x += 32, q += 32) quantize_group(x, q, scale + g, sum16 + g * 2);
}

void round_to_bf16(const float* x, int64_t cols, uint16_t* out) {
  int64_t i = 0;
  // In integers: the conversion instruction would flush subnormals, which the other versions keep.
  for (; i < cols; i += 16) {
    const __mmask16 mask = cols - i >= 16 ? __mmask16{0xffff} : static_cast<__mmask16>((1u << (cols - i)) - 1);
    const __m512i bits = _mm512_maskz_loadu_epi32(mask, x + i);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    __m512i rounded = _mm512_srli_epi32(_mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd), 16);
    const __mmask16 nan = _mm512_cmpgt_epi32_mask(_mm512_and_si512(bits, _mm512_set1_epi32(0x7fffffff)), _mm512_set1_epi32(0x7f800000));
    rounded = _mm512_mask_or_epi32(rounded, nan, _mm512_srli_epi32(bits, 16), _mm512_set1_epi32(0x40));
    _mm512_mask_cvtepi32_storeu_epi16(out + i, mask, rounded);
  }
}

// ---- integer formats ---------------------------------------------------------------------------------------------------------

// The activations of a tile: its first row's pointers at some k.
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
};

DI_INLINE inline Tile tile_at(const Rows& rows, int64_t row, int64_t k, int sub_group) {
  const int64_t s = rows.stride;
  return {Rows::at<int8_t>(rows.q, s, row) + k, Rows::at<float>(rows.scale, s, row) + k / 32,
          Rows::at<int32_t>(rows.start, s, row) + k / sub_group,
          rows.sum != nullptr ? Rows::at<float>(rows.sum, s, row) + k / sub_group : nullptr, s};
}

// One sub group (kQuads quads from quad kFirst of its group of 32) of MR rows; quad(J) gives codes. g and sub: the group's and the
// sub group's index in the tile.
template <int MR, int kFirst, int kQuads, bool kOffsets, class Quad>
DI_INLINE inline void sub_group(const Tile& t, int64_t g, int64_t sub, Quad quad, __m512 scale, __m512 offset, __m512 (&acc)[MR]) {
  __m512i dot[MR];
  each<MR>([&](auto i) DI_INLINE { dot[i] = _mm512_set1_epi32(t.row(t.start, i)[sub]); });
  each<kQuads>([&](auto j) DI_INLINE {
    constexpr int kQuad = kFirst + j;
    const __m512i codes = quad(std::integral_constant<int, kQuad>());
    each<MR>([&](auto i) DI_INLINE { dot_u8s8(dot[i], codes, t.row(t.q, i) + g * 32 + kQuad * 4); });
  });
  const __m512 bias = _mm512_mul_ps(scale, _mm512_set1_ps(kFloatBiasValue));
  each<MR>([&](auto i) DI_INLINE {
    const __m512 product = _mm512_fmsub_ps(_mm512_castsi512_ps(dot[i]), scale, bias);
    acc[i] = _mm512_fmadd_ps(product, _mm512_set1_ps(t.row(t.scale, i)[g]), acc[i]);
    if constexpr (kOffsets) acc[i] = _mm512_fmadd_ps(offset, _mm512_set1_ps(t.row(t.sum, i)[sub]), acc[i]);
  });
}

// MR rows against one block of a panel, read as it lies; g: its first group.
template <Format F, int MR>
DI_INLINE inline void direct_block(const Tile& t, int64_t g, const std::byte* block, __m512 (&acc)[MR]) {
  constexpr int kGroups = F.block_groups(), kHeader = F.header_bytes(), kGroupBytes = F.group_bytes();
  const BlockScales<F> scales(block);
  const std::byte* p = block + kHeader;
  for (int in_block = 0; in_block < kGroups; ++in_block, ++g, p += kGroupBytes) {
    const auto quad = [&](auto j) DI_INLINE { return load_quad<F.codes, j>(p); };
    if constexpr (F.sub_group == 32) {
      sub_group<MR, 0, 8, F.offsets>(t, g, g, quad, scales.scale(in_block), scales.offset(in_block), acc);
    } else {
      const int s = in_block * 2;
      sub_group<MR, 0, 4, F.offsets>(t, g, g * 2, quad, scales.scale(s), scales.offset(s), acc);
      sub_group<MR, 4, 4, F.offsets>(t, g, g * 2 + 1, quad, scales.scale(s + 1), scales.offset(s + 1), acc);
    }
  }
}

// MR rows against NP panels, `gap` apart: as many streams from memory, which keep more reads in flight than one.
template <Format F, int MR, int NP>
DI_INLINE inline void direct_tile(const Tile& t, const PanelSet& set, int64_t panel, int64_t gap, const Output& out) {
  constexpr int kGroups = F.block_groups(), kBlock = F.block_bytes(), kBlockK = F.block_k();
  const int64_t blocks = (set.cols + kBlockK - 1) / kBlockK;
  __m512 acc[NP][MR];
  each<NP>([&](auto p) DI_INLINE { each<MR>([&](auto i) DI_INLINE { acc[p][i] = _mm512_setzero_ps(); }); });
  const std::byte* block = set.data + panel * set.stride;
  for (int64_t b = 0; b < blocks; ++b, block += kBlock) {
    each<NP>([&](auto p) DI_INLINE { direct_block<F>(t, b * kGroups, block + p * gap * set.stride, acc[p]); });
  }
  each<NP>([&](auto p) DI_INLINE { each<MR>([&](auto i) DI_INLINE { store_outputs(out, i, set, panel + p * gap, acc[p][i]); }); });
}

template <Format F>
void apply_direct(const PanelSet& set, const Rows& rows, int64_t num_rows, const Output& out, int64_t begin, int64_t end) {
  constexpr int kSubGroup = F.sub_group;
  const Tile tile = tile_at(rows, 0, 0, kSubGroup);
  const int64_t gap = (end - begin) / kStreams;
  with_count<kDirectRows>(static_cast<int>(num_rows), [&](auto count) DI_INLINE {
    int64_t panel = begin;
    for (; panel < begin + gap; ++panel) direct_tile<F, count, kStreams>(tile, set, panel, gap, out);
    // What is left over is done kStreams times in place: a case of its own would be as much code again for one panel.
    for (panel = begin + gap * kStreams; panel < end; ++panel) direct_tile<F, count, kStreams>(tile, set, panel, 0, out);
  });
}

// MR rows against `groups` groups of a decoded chunk; acc [MR][16] is loaded and stored.
template <int kSubGroup, bool kOffsets, int MR>
DI_INLINE inline void chunk_tile(const Tile& t, const DecodedChunk& chunk, int64_t groups, Ahead next, float* acc_rows) {
  __m512 acc[MR];
  each<MR>([&](auto i) DI_INLINE { acc[i] = _mm512_load_ps(acc_rows + i * kOutputs); });
  const std::byte* codes = chunk.codes;
  const float *scale = chunk.scale, *offset = chunk.offset;
  for (int64_t g = 0; g < groups; ++g, codes += 8 * kQuadBytes) {
    next.fetch();
    const auto quad = [&](auto j) DI_INLINE { return load_quad<Codes::k8, j>(codes); };
    each<32 / kSubGroup>([&](auto s) DI_INLINE {
      constexpr int kQuads = kSubGroup / 4;
      const int64_t sub = g * (32 / kSubGroup) + s;
      sub_group<MR, s * kQuads, kQuads, kOffsets>(t, g, sub, quad, _mm512_load_ps(scale + sub * kOutputs),
                                                  _mm512_load_ps(offset + sub * kOutputs), acc);
    });
  }
  each<MR>([&](auto i) DI_INLINE { _mm512_store_ps(acc_rows + i * kOutputs, acc[i]); });
}

template <int kSubGroup, bool kOffsets>
void chunk_rows(const Rows& rows, int64_t first_row, int64_t num_rows, int64_t k, const DecodedChunk& chunk, int64_t depth, const Ahead& next, float* acc) {
  row_tiles<kTileRows>(num_rows, [&](int64_t first, int count) DI_INLINE {
    const Tile tile = tile_at(rows, first_row + first, k, kSubGroup);
    with_count<kTileRows>(count, [&](auto n) DI_INLINE {
      chunk_tile<kSubGroup, kOffsets, n>(tile, chunk, depth / 32, first == 0 ? next : Ahead{}, acc + first * kOutputs);
    });
  });
}

void apply_integer(const PanelSet& set, const Rows& rows, int64_t num_rows, const Output& out, int64_t begin, int64_t end) {
  with_format(set.dtype, [&]<Format F>() {
    if (num_rows <= kDirectRows) return apply_direct<F>(set, rows, num_rows, out, begin, end);
    walk_chunks<kRowBlock, DecodedChunk>(set, rows, num_rows, begin, end, {decode<F, false>, chunk_rows<F.sub_group, F.offsets>},
                                         [&](int64_t row, int64_t panel, const float* acc) DI_INLINE {
                                           store_outputs(out, row, set, panel, _mm512_load_ps(acc));
                                         });
  });
}

// ---- BF16 --------------------------------------------------------------------------------------------------------------------

// MR rows against NP neighbouring panels. pairs: K / 2, rounded up.
template <int MR, int NP>
DI_INLINE inline void bf16_tile(const PanelSet& set, const Rows& rows, int64_t row, const Output& out, int64_t panel, int64_t pairs) {
  __m512 acc[MR * NP];
  each<MR * NP>([&](auto i) DI_INLINE { acc[i] = _mm512_setzero_ps(); });
  const std::byte* w = set.data + panel * set.stride;
  const auto* x = Rows::at<uint16_t>(rows.bf16, rows.stride, row);
  for (int64_t k = 0; k < pairs; ++k) {
    each<NP>([&](auto p) DI_INLINE {
      const __m512i weights = _mm512_load_si512(w + p * set.stride + k * kQuadBytes);
      each<MR>([&](auto i) DI_INLINE {
        dot_bf16(acc[i * NP + p], weights, Rows::at<uint16_t>(reinterpret_cast<const std::byte*>(x), rows.stride, i) + k * 2);
      });
    });
  }
  each<MR>([&](auto i) DI_INLINE {
    each<NP>([&](auto p) DI_INLINE { store_outputs(out, row + i, set, panel + p, acc[i * NP + p]); });
  });
}

void apply_bf16(const PanelSet& set, const Rows& rows, int64_t num_rows, const Output& out, int64_t begin, int64_t end) {
  constexpr int64_t kBf16RowBlock = 96;
  const int64_t pairs = (set.cols + 1) / 2;
  for (int64_t row = 0; row < num_rows; row += kBf16RowBlock) {
    const int64_t count = num_rows - row < kBf16RowBlock ? num_rows - row : kBf16RowBlock;
    for (int64_t panel = begin; panel < end; panel += 2) {
      row_tiles<kTileRows>(count, [&](int64_t first, int rows_here) DI_INLINE {
        with_count<kTileRows>(rows_here, [&](auto n) DI_INLINE {
          if (panel + 1 < end) {
            bf16_tile<n, 2>(set, rows, row + first, out, panel, pairs);
          } else {
            bf16_tile<n, 1>(set, rows, row + first, out, panel, pairs);
          }
        });
      });
    }
  }
}

// ---- float32 sums ------------------------------------------------------------------------------------------------------------

struct alignas(64) FloatChunk {
  float weights[2][kChunk * kOutputs];  // of two panels, [k][16]
};

// A group of 32 k of an integer format as floats, each exactly as dequantize() makes it.
template <Format F>
DI_INLINE inline void decode_float_group(const std::byte* p, const BlockScales<F>& scales, int in_block, float* out) {
  constexpr int kSubs = 32 / F.sub_group, kQuads = 8 / kSubs;
  const __m512i low = _mm512_set1_epi32(255), zero_point = _mm512_set1_epi32(F.zero_point);
  each<kSubs>([&](auto s) DI_INLINE {
    const __m512 scale = scales.scale(in_block * kSubs + s), offset = scales.offset(in_block * kSubs + s);
    each<kQuads>([&](auto j) DI_INLINE {
      constexpr int kQuad = s * kQuads + j;
      const __m512i codes = load_quad<F.codes, kQuad>(p);
      each<4>([&](auto byte) DI_INLINE {
        const __m512i code = _mm512_sub_epi32(_mm512_and_si512(_mm512_srli_epi32(codes, byte * 8), low), zero_point);
        const __m512 value = _mm512_mul_ps(_mm512_cvtepi32_ps(code), scale);
        _mm512_store_ps(out + (kQuad * 4 + byte) * kOutputs, F.offsets ? _mm512_add_ps(value, offset) : value);
      });
    });
  });
}

template <Format F>
void decode_float(const std::byte* panel, int64_t k, int64_t count, float* out) {
  constexpr int kBlockK = F.block_k(), kBlock = F.block_bytes(), kHeader = F.header_bytes(), kGroupBytes = F.group_bytes();
  for (int64_t done = 0; done < count; done += 32, out += 32 * kOutputs) {
    const int64_t at = k + done, in_block = at % kBlockK / 32;
    const std::byte* block = panel + at / kBlockK * kBlock;
    decode_float_group<F>(block + kHeader + in_block * kGroupBytes, BlockScales<F>(block), static_cast<int>(in_block), out);
  }
}

// Weights [k, k + count) of a panel as floats [k][16]: in `buffer`, or where they lie.
const float* float_weights(const PanelSet& set, int64_t panel, int64_t k, int64_t count, float* buffer) {
  const std::byte* data = set.data + panel * set.stride;
  switch (set.dtype) {
    case DType::kF32: return reinterpret_cast<const float*>(data) + k * kOutputs;
    case DType::kF16:
      for (int64_t i = 0; i < count; ++i) _mm512_store_ps(buffer + i * kOutputs, load_half16(data + (k + i) * kOutputs * 2));
      return buffer;
    case DType::kBF16:
      for (int64_t i = 0; i < count; i += 2) {
        const __m512i pair = _mm512_load_si512(data + (k + i) / 2 * kQuadBytes);
        _mm512_store_si512(buffer + i * kOutputs, _mm512_slli_epi32(pair, 16));
        _mm512_store_si512(buffer + (i + 1) * kOutputs, _mm512_and_si512(pair, _mm512_set1_epi32(static_cast<int>(0xffff0000))));
      }
      return buffer;
    default: with_format(set.dtype, [&]<Format F>() { decode_float<F>(data, k, count, buffer); }); return buffer;
  }
}

// MR rows against a chunk of NP panels; its sum is added to acc [MR][NP][16], or, for the first chunk, stored there.
template <int MR, int NP>
DI_INLINE inline void float_tile(const std::byte* x, int64_t stride, const float* const (&weights)[2], int64_t count, bool first,
                                 float* acc_rows) {
  __m512 acc[MR * NP];
  each<MR * NP>([&](auto i) DI_INLINE { acc[i] = _mm512_setzero_ps(); });
  for (int64_t k = 0; k < count; ++k) {
    __m512 w[NP];
    each<NP>([&](auto p) DI_INLINE { w[p] = _mm512_load_ps(weights[p] + k * kOutputs); });
    each<MR>([&](auto i) DI_INLINE {
      const __m512 value = _mm512_set1_ps(Rows::at<float>(x, stride, i)[k]);
      each<NP>([&](auto p) DI_INLINE { acc[i * NP + p] = _mm512_fmadd_ps(value, w[p], acc[i * NP + p]); });
    });
  }
  each<MR>([&](auto i) DI_INLINE {
    each<NP>([&](auto p) DI_INLINE {
      float* place = acc_rows + (i * 2 + p) * kOutputs;
      _mm512_store_ps(place, first ? acc[i * NP + p] : _mm512_add_ps(_mm512_load_ps(place), acc[i * NP + p]));
    });
  });
}

template <int NP>
void float_panels(const PanelSet& set, const Rows& rows, int64_t row, int64_t num_rows, const Output& out, int64_t panel) {
  FloatChunk chunk;
  alignas(64) float acc[kRowBlock * 2 * kOutputs];
  for (int64_t k = 0; k < set.cols; k += kChunk) {
    const int64_t count = set.cols - k < kChunk ? set.cols - k : kChunk;
    const float* weights[2];
    for (int p = 0; p < NP; ++p) weights[p] = float_weights(set, panel + p, k, count, chunk.weights[p]);
    row_tiles<kTileRows>(num_rows, [&](int64_t first, int tile) DI_INLINE {
      with_count<kTileRows>(tile, [&](auto n) DI_INLINE {
        float_tile<n, NP>(rows.f32 + (row + first) * rows.stride + k * 4, rows.stride, weights, count, k == 0, acc + first * 2 * kOutputs);
      });
    });
  }
  for (int64_t i = 0; i < num_rows; ++i) {
    for (int p = 0; p < NP; ++p) store_outputs(out, row + i, set, panel + p, _mm512_load_ps(acc + (i * 2 + p) * kOutputs));
  }
}

void apply_float(const PanelSet& set, const Rows& rows, int64_t num_rows, const Output& out, int64_t begin, int64_t end) {
  for (int64_t row = 0; row < num_rows; row += kRowBlock) {
    const int64_t count = num_rows - row < kRowBlock ? num_rows - row : kRowBlock;
    int64_t panel = begin;
    for (; panel + 1 < end; panel += 2) float_panels<2>(set, rows, row, count, out, panel);
    if (panel < end) float_panels<1>(set, rows, row, count, out, panel);
  }
}

}  // namespace

const Kernels* avx512_kernels() {
  static constexpr Kernels kTable{
      .quantize_row = quantize_row,
      .round_to_bf16 = round_to_bf16,
      .integer_bias = kFloatBias,
      .bf16_products = true,
      .row_padding = 0,
      .apply_integer = apply_integer,
      .apply_bf16 = apply_bf16,
      .apply_float = apply_float,
  };
  return &kTable;
}

}  // namespace deepinfer::cpu
#else
namespace deepinfer::cpu {
const Kernels* avx512_kernels() { return nullptr; }
}  // namespace deepinfer::cpu
#endif
