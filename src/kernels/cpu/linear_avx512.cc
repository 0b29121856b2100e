// AVX-512 with VNNI and BF16. Up to kDirectRows rows read the panel as it lies, so that a product of few rows runs at the memory's
// speed; more rows share one decoding of a chunk of the panel into plain bytes in the L1 cache.
//
// Integer sums start at Rows::start, whose bias makes the integer the bits of the float 1.5 * 2^23 + sum (exact: |sum| < 2^22). Then
// fmsub(that, scale, 1.5 * 2^23 * scale) is sum * scale, rounded once: no conversion instruction, and the same bits as one.
#include "kernels/cpu/linear_kernels.h"

#if defined(__x86_64__)
#include <immintrin.h>

#include <cstring>

#include "kernels/cpu/avx512_panels.h"

namespace deepinfer::cpu {
namespace {

constexpr int32_t kFloatBias = 0x4B400000;
constexpr float kFloatBiasValue = 12582912.0f;  // its bits as a float
constexpr int kTileRows = 12;                   // 12 integer and 12 float accumulators, and 8 registers for the rest
constexpr int kDirectRows = 4;
constexpr int64_t kRowBlock = 192;              // rows whose int8 activations stay in the L2 cache while panels pass

// The activation operand is broadcast from memory inside the instruction: no register and no instruction for it.
DI_INLINE inline void dot_u8s8(__m512i& sum, __m512i codes, const int8_t* x) {
  asm("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(sum) : "v"(codes), "m"(*reinterpret_cast<const int*>(x)));
}
DI_INLINE inline void dot_bf16(__m512& sum, __m512i pairs, const uint16_t* x) {
  asm("vdpbf16ps %2%{1to16%}, %1, %0" : "+v"(sum) : "v"(pairs), "m"(*reinterpret_cast<const int*>(x)));
}

// ---- activations -------------------------------------------------------------------------------------------------------------

void quantize_row(const float* x, int64_t cols, int8_t* q, float* scale, int32_t* sum16) {
  const __m512i magnitude_bits = _mm512_set1_epi32(0x7fffffff);
  for (int64_t g = 0; g < cols / 32; ++g, x += 32, q += 32) {
    const __m512 low = _mm512_loadu_ps(x), high = _mm512_loadu_ps(x + 16);
    // As integers, magnitudes order like the numbers, and NaN is above all.
    const int32_t magnitude =
        _mm512_reduce_max_epi32(_mm512_max_epi32(_mm512_and_si512(_mm512_castps_si512(low), magnitude_bits),
                                                 _mm512_and_si512(_mm512_castps_si512(high), magnitude_bits)));
    float max;
    std::memcpy(&max, &magnitude, 4);
    const bool finite = magnitude < 0x7f800000;
    const bool zero = !finite || max < 1e-30f;
    const __m512 inverse = _mm512_set1_ps(zero ? 0.0f : 127.0f / max);
    scale[g] = !finite ? __builtin_nanf("") : zero ? 0.0f : max / 127.0f;
    const __mmask16 keep = finite ? __mmask16{0xffff} : __mmask16{0};
    const __m512i a = _mm512_maskz_cvtps_epi32(keep, _mm512_mul_ps(low, inverse));
    const __m512i b = _mm512_maskz_cvtps_epi32(keep, _mm512_mul_ps(high, inverse));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(q), _mm512_cvtsepi32_epi8(a));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(q + 16), _mm512_cvtsepi32_epi8(b));
    sum16[g * 2] = _mm512_reduce_add_epi32(a);
    sum16[g * 2 + 1] = _mm512_reduce_add_epi32(b);
  }
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

// MR rows against one whole panel, read as it lies.
template <Format F, int MR>
DI_INLINE inline void direct_tile(const Tile& t, const std::byte* panel, int64_t blocks, __m512 (&acc)[MR]) {
  constexpr int kGroups = F.block_groups(), kHeader = F.header_bytes(), kGroupBytes = F.group_bytes();
  each<MR>([&](auto i) DI_INLINE { acc[i] = _mm512_setzero_ps(); });
  int64_t g = 0;
  for (int64_t b = 0; b < blocks; ++b) {
    const BlockScales<F> scales(panel);
    panel += kHeader;
    for (int in_block = 0; in_block < kGroups; ++in_block, ++g, panel += kGroupBytes) {
      const auto quad = [&](auto j) DI_INLINE { return load_quad<F.codes, j>(panel); };
      if constexpr (F.sub_group == 32) {
        sub_group<MR, 0, 8, F.offsets>(t, g, g, quad, scales.scale(in_block), scales.offset(in_block), acc);
      } else {
        const int s = in_block * 2;
        sub_group<MR, 0, 4, F.offsets>(t, g, g * 2, quad, scales.scale(s), scales.offset(s), acc);
        sub_group<MR, 4, 4, F.offsets>(t, g, g * 2 + 1, quad, scales.scale(s + 1), scales.offset(s + 1), acc);
      }
    }
  }
}

template <Format F>
void apply_direct(const PanelSet& set, const Rows& rows, int64_t num_rows, const Output& out, int64_t begin, int64_t end) {
  constexpr int kBlockK = F.block_k(), kSubGroup = F.sub_group;
  const int64_t blocks = (set.cols + kBlockK - 1) / kBlockK;
  const Tile tile = tile_at(rows, 0, 0, kSubGroup);
  with_count<kDirectRows>(static_cast<int>(num_rows), [&](auto count) DI_INLINE {
    for (int64_t panel = begin; panel < end; ++panel) {
      __m512 acc[count];
      direct_tile<F, count>(tile, set.data + panel * set.stride, blocks, acc);
      each<count>([&](auto i) DI_INLINE { store_outputs(out, i, set, panel, acc[i]); });
    }
  });
}

// MR rows against `groups` groups of a decoded chunk; acc [MR][16] is loaded and stored.
template <int kSubGroup, bool kOffsets, int MR>
DI_INLINE inline void chunk_tile(const Tile& t, const DecodedChunk& chunk, int64_t groups, float* acc_rows) {
  __m512 acc[MR];
  each<MR>([&](auto i) DI_INLINE { acc[i] = _mm512_load_ps(acc_rows + i * kOutputs); });
  const std::byte* codes = chunk.codes;
  const float *scale = chunk.scale, *offset = chunk.offset;
  for (int64_t g = 0; g < groups; ++g, codes += 8 * kQuadBytes) {
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
void chunk_rows(const Rows& rows, int64_t first_row, int64_t num_rows, int64_t k, const DecodedChunk& chunk, int64_t groups, float* acc) {
  row_tiles<kTileRows>(num_rows, [&](int64_t first, int count) DI_INLINE {
    const Tile tile = tile_at(rows, first_row + first, k, kSubGroup);
    with_count<kTileRows>(count, [&](auto n) DI_INLINE { chunk_tile<kSubGroup, kOffsets, n>(tile, chunk, groups, acc + first * kOutputs); });
  });
}

// How a format is decoded, and which kernel takes the result.
struct ChunkKernels {
  void (*decode)(const std::byte* panel, int64_t first, int64_t count, DecodedChunk& out);
  void (*rows)(const Rows&, int64_t first_row, int64_t num_rows, int64_t k, const DecodedChunk&, int64_t groups, float* acc);
};

void apply_chunks(const PanelSet& set, const Rows& rows, int64_t num_rows, const Output& out, int64_t begin, int64_t end,
                  const ChunkKernels& kernels) {
  const int64_t block_k = set.format.block_k(), blocks = (set.cols + block_k - 1) / block_k, step = kDepth / block_k;
  DecodedChunk chunk;
  alignas(64) float acc[kRowBlock * kOutputs];
  for (int64_t row = 0; row < num_rows; row += kRowBlock) {
    const int64_t count = num_rows - row < kRowBlock ? num_rows - row : kRowBlock;
    for (int64_t panel = begin; panel < end; ++panel) {
      std::memset(acc, 0, static_cast<size_t>(count) * kOutputs * sizeof(float));
      for (int64_t b = 0; b < blocks; b += step) {
        const int64_t here = blocks - b < step ? blocks - b : step;
        kernels.decode(set.data + panel * set.stride, b, here, chunk);
        kernels.rows(rows, row, count, b * block_k, chunk, here * block_k / 32, acc);
      }
      for (int64_t i = 0; i < count; ++i) store_outputs(out, row + i, set, panel, _mm512_load_ps(acc + i * kOutputs));
    }
  }
}

void apply_integer(const PanelSet& set, const Rows& rows, int64_t num_rows, const Output& out, int64_t begin, int64_t end) {
  with_format(set.dtype, [&]<Format F>() {
    if (num_rows <= kDirectRows) return apply_direct<F>(set, rows, num_rows, out, begin, end);
    apply_chunks(set, rows, num_rows, out, begin, end, {decode<F, false>, chunk_rows<F.sub_group, F.offsets>});
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
