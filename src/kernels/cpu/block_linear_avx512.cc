// The products of block_linear.h with dot products of bf16 pairs. A vector holds 32 successive inputs; lane i sums the products of
// inputs 2i and 2i + 1 of every such step. Few rows of activations: codes become bf16 numbers in registers as they stream by. More:
// four rows of codes at a time are decoded into the L1 cache and meet tiles of six rows.
//
// Scales enter as an addition to the exponent of the decoded bf16 number, which is exact while no number leaves the normal range:
// scales from 2^-117 to 2^119. A group of outputs with any other scale (0xff, NaN, among them) goes through f32 arithmetic.
#if defined(__x86_64__)
#include "kernels/cpu/block_linear_kernels.h"
#include "kernels/cpu/vec.h"

namespace deepinfer::cpu {
namespace {

constexpr int kGroup = 4;                 // outputs taken together for few rows
constexpr int kWideGroup = 8;             // and for many: the wider, the fewer reads of activations from the L2 cache
constexpr int kTileRows = 3;              // 24 sums; 8 registers for the rest
constexpr int kDirectRows = 4;            // rows up to which nothing is decoded into memory
constexpr int64_t kDepth = 2048;          // inputs of a decoded chunk: 16 KiB
constexpr int64_t kRowBlock = 96;         // most rows whose partial sums wait while chunks pass
constexpr int64_t kCacheBytes = 512 << 10;  // of activations, in the L2 cache while weights pass

DI_INLINE __m512 dot(__m512 sum, __m512i a, __m512i b) {
  return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(b));
}
DI_INLINE __m512i load32(const void* p) { return _mm512_loadu_si512(p); }
DI_INLINE __m512i load_first32(const void* p, int64_t count) { return _mm512_maskz_loadu_epi16(static_cast<__mmask32>((uint64_t{1} << count) - 1), p); }

DI_INLINE const bf16* row_of(const Bf16Rows& x, int64_t r) { return x.values + (x.ids != nullptr ? x.ids[r] : r) * x.ld; }

// ---- decoding ----------------------------------------------------------------------------------------------------------------

// The bf16 numbers of e4m3's 128 magnitudes, high and low bytes apart, as a two-register table each.
struct E4m3Table {
  alignas(64) uint8_t high[128], low[128];
};
constexpr E4m3Table kE4m3 = [] {
  E4m3Table table{};
  for (int code = 0; code < 128; ++code) {
    int exponent = code >> 3, mantissa = code & 7;
    int bits = 0;
    if (code == 127) {
      bits = 0x7fc0;
    } else if (exponent > 0) {
      bits = (exponent + 120) << 7 | mantissa << 4;
    } else if (mantissa > 0) {  // mantissa * 2^-9
      exponent = 118;
      while (mantissa < 8) mantissa <<= 1, --exponent;
      bits = (exponent + 3) << 7 | (mantissa & 7) << 4;
    }
    table.high[code] = static_cast<uint8_t>(bits >> 8);
    table.low[code] = static_cast<uint8_t>(bits & 255);
  }
  return table;
}();

// What the exponents of a block's numbers grow by, as a number to add to their bits; twice, so that a load broadcasts it.
using Shift = uint32_t;

// Shifts of `count` scales; false if one of them is outside the range that the addition serves.
DI_INLINE bool shifts_of(const e8m0* scales, int64_t count, Shift* out) {
  __mmask32 outside = 0;
  for (int64_t i = 0; i < count; i += 32) {
    const __mmask32 mask = count - i >= 32 ? ~__mmask32{0} : static_cast<__mmask32>((uint64_t{1} << (count - i)) - 1);
    const __m512i code = _mm512_cvtepu8_epi16(_mm256_maskz_loadu_epi8(mask, scales + i));
    outside |= _mm512_mask_cmpgt_epu16_mask(mask, _mm512_sub_epi16(code, _mm512_set1_epi16(10)), _mm512_set1_epi16(236));
    const __m512i shift = _mm512_slli_epi16(_mm512_sub_epi16(code, _mm512_set1_epi16(127)), 7);
    const auto twice = [](__m256i x) __attribute__((always_inline)) {
      const __m512i wide = _mm512_cvtepu16_epi32(x);
      return _mm512_or_si512(wide, _mm512_slli_epi32(wide, 16));
    };
    _mm512_mask_storeu_epi32(out + i, static_cast<__mmask16>(mask), twice(_mm512_castsi512_si256(shift)));
    _mm512_mask_storeu_epi32(out + i + 16, static_cast<__mmask16>(mask >> 16), twice(_mm512_extracti64x4_epi64(shift, 1)));
  }
  return outside == 0;
}

// A format: codes of 32 or 64 inputs, with their shifts, as bf16 numbers.
struct Fp8Decoder {
  static constexpr bool kScaled = true;
  static constexpr int kSharedScales = 32;  // outputs
  static DI_INLINE int64_t bytes(int64_t k) { return k; }
  static DI_INLINE __m512i scaled(__m512i x, Shift shift) {
    // Zeros and NaN keep their exponent: twice the bits (which drops the sign) minus 1 is then 0xff00 or more.
    const __m512i twice = _mm512_add_epi16(x, _mm512_add_epi16(x, _mm512_set1_epi16(-1)));
    const __mmask32 ordinary = _mm512_cmplt_epu16_mask(twice, _mm512_set1_epi16(static_cast<short>(0xff00)));
    return _mm512_mask_add_epi16(x, ordinary, x, _mm512_set1_epi32(static_cast<int>(shift)));
  }
  static DI_INLINE void two(__m512i raw, const Shift* shift, __m512i& a, __m512i& b) {
    // Unpacking interleaves within 128-bit lanes: the quarters that belong together must lie in the same half of their lanes.
    const __m512i codes = _mm512_permutexvar_epi64(_mm512_setr_epi64(0, 4, 1, 5, 2, 6, 3, 7), raw);
    __m512i high = _mm512_permutex2var_epi8(_mm512_load_si512(kE4m3.high), codes, _mm512_load_si512(kE4m3.high + 64));
    const __m512i low = _mm512_permutex2var_epi8(_mm512_load_si512(kE4m3.low), codes, _mm512_load_si512(kE4m3.low + 64));
    high = _mm512_ternarylogic_epi64(high, codes, _mm512_set1_epi8(static_cast<char>(0x80)), 0xf8);  // a | (b & c)
    a = scaled(_mm512_unpacklo_epi8(low, high), shift[0]);
    b = scaled(_mm512_unpackhi_epi8(low, high), shift[1]);
  }
  static constexpr int kLine = 2;  // blocks in 64 bytes
  static DI_INLINE void line(const uint8_t* p, const Shift* shift, __m512i (&w)[kLine]) { two(_mm512_loadu_si512(p), shift, w[0], w[1]); }
  static DI_INLINE __m512i one_block(const uint8_t* p, const Shift* shift) {
    __m512i a, b;
    const Shift both[2] = {shift[0], 0};
    two(_mm512_castsi256_si512(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))), both, a, b);
    return a;
  }
};

struct Fp4Decoder {
  static constexpr bool kScaled = true;
  static constexpr int kSharedScales = 1;
  static DI_INLINE int64_t bytes(int64_t k) { return k / 2; }
  static DI_INLINE __m512i one_block(const uint8_t* p, const Shift* shift) {
    alignas(64) static constexpr uint16_t kValues[32] = {0,      0x3f00, 0x3f80, 0x3fc0, 0x4000, 0x4040, 0x4080, 0x40c0,
                                                         0x8000, 0xbf00, 0xbf80, 0xbfc0, 0xc000, 0xc040, 0xc080, 0xc0c0};
    const __m512i values = _mm512_load_si512(kValues);
    const __m512i table = _mm512_mask_add_epi16(values, 0xfefe, values, _mm512_set1_epi32(static_cast<int>(shift[0])));  // zeros stay
    const __m512i byte = _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
    const __m512i codes = _mm512_ternarylogic_epi64(byte, _mm512_slli_epi32(byte, 12), _mm512_set1_epi32(0x000f000f), 0xa8);  // (a | b) & c
    return _mm512_permutexvar_epi16(codes, table);
  }
  static constexpr int kLine = 4;
  static DI_INLINE void line(const uint8_t* p, const Shift* shift, __m512i (&w)[kLine]) {
    each<kLine>([&](auto j) __attribute__((always_inline)) { w[j] = one_block(p + j * 16, shift + j); });
  }
};

struct Bf16Decoder {
  static constexpr bool kScaled = false;
  static constexpr int kSharedScales = 1;
  static DI_INLINE int64_t bytes(int64_t k) { return k * 2; }
  static DI_INLINE __m512i one_block(const uint8_t* p, const Shift*) { return load32(p); }
  static constexpr int kLine = 1;
  static DI_INLINE void line(const uint8_t* p, const Shift*, __m512i (&w)[kLine]) { w[0] = load32(p); }
};

DI_INLINE Fp8Decoder decoder_of(const Fp8Matrix&) { return {}; }
DI_INLINE Fp4Decoder decoder_of(const Fp4Matrix&) { return {}; }
DI_INLINE Bf16Decoder decoder_of(const Bf16Matrix&) { return {}; }
DI_INLINE const uint8_t* codes_of(const Fp8Matrix& w) { return reinterpret_cast<const uint8_t*>(w.codes); }
DI_INLINE const uint8_t* codes_of(const Fp4Matrix& w) { return w.codes; }
DI_INLINE const uint8_t* codes_of(const Bf16Matrix& w) { return reinterpret_cast<const uint8_t*>(w.values); }

// A group of up to N outputs: where their codes lie, and their shifts.
template <int N>
struct Group {
  const uint8_t* row[N];
  const Shift* shift[N];
  bool usual;  // all scales in range
};

template <int N, class Matrix>
DI_INLINE Group<N> group_at(const Matrix& w, int64_t n, int64_t outputs, Shift* buffer) {
  using Decoder = decltype(decoder_of(w));
  Group<N> g;
  g.usual = true;
  const int64_t blocks = w.cols / 32;
  for (int64_t i = 0; i < N; ++i) {
    const int64_t at = n + (i < outputs ? i : 0);  // a missing output is the first once more
    g.row[i] = codes_of(w) + at * Decoder::bytes(w.cols);
    g.shift[i] = nullptr;
    if constexpr (Decoder::kScaled) {
      const bool own = i == 0 || Decoder::kSharedScales == 1;
      g.shift[i] = own ? buffer + i * blocks : g.shift[0];
      if (own) g.usual &= shifts_of(w.scales + at / Decoder::kSharedScales * blocks, blocks, buffer + i * blocks);
    }
  }
  return g;
}

// ---- sums --------------------------------------------------------------------------------------------------------------------

// The sums of the lanes of four vectors.
DI_INLINE __m128 lane_sums(__m512 a, __m512 b, __m512 c, __m512 d) {
  const __m512 ab = _mm512_add_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
  const __m512 cd = _mm512_add_ps(_mm512_unpacklo_ps(c, d), _mm512_unpackhi_ps(c, d));
  const __m512d low = _mm512_unpacklo_pd(_mm512_castps_pd(ab), _mm512_castps_pd(cd)), high = _mm512_unpackhi_pd(_mm512_castps_pd(ab), _mm512_castps_pd(cd));
  const __m512 all = _mm512_add_ps(_mm512_castpd_ps(low), _mm512_castpd_ps(high));
  const __m256 half = _mm256_add_ps(_mm512_castps512_ps256(all), _mm512_extractf32x8_ps(all, 1));
  return _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
}

DI_INLINE __m128 round_bf16(__m128 x) {
  const __m128i bits = _mm_castps_si128(x), odd = _mm_and_si128(_mm_srli_epi32(bits, 16), _mm_set1_epi32(1));
  const __m128i rounded = _mm_add_epi32(_mm_add_epi32(bits, _mm_set1_epi32(0x7fff)), odd);
  const __m128i kept = _mm_mask_or_epi32(rounded, _mm_cmp_ps_mask(x, x, _CMP_UNORD_Q), bits, _mm_set1_epi32(0x400000));
  return _mm_castsi128_ps(_mm_and_si128(kept, _mm_set1_epi32(static_cast<int>(0xffff0000u))));
}

DI_INLINE void store_outputs(const ProductOut& out, int64_t row, int64_t n, int64_t outputs, __m128 sums) {
  _mm_mask_storeu_ps(out.y + row * out.ldy + n, static_cast<__mmask8>((1u << outputs) - 1), out.round ? round_bf16(sums) : sums);
}

// Outputs whose scales the addition to exponents does not serve: plain f32, in the order of the inputs.
template <class Matrix>
__attribute__((noinline)) void unusual_outputs(const Bf16Rows& x, const Matrix& w, int64_t n, int64_t outputs, const ProductOut& out) {
  using Decoder = decltype(decoder_of(w));
  constexpr Shift kNone[2] = {0, 0};
  for (int64_t i = 0; i < outputs; ++i) {
    const uint8_t* codes = codes_of(w) + (n + i) * Decoder::bytes(w.cols);
    for (int64_t t = 0; t < x.num_rows; ++t) {
      float sum = 0;
      if constexpr (Decoder::kScaled) {
        for (int64_t k = 0; k < w.cols; k += 32) {
          const uint8_t code = w.scales[(n + i) / Decoder::kSharedScales * (w.cols / 32) + k / 32].bits;
          const float scale = code == 0 ? 0x1p-127f : code == 0xff ? __builtin_nanf("") : _mm_cvtss_f32(_mm_castsi128_ps(_mm_cvtsi32_si128(code << 23)));
          uint16_t weights[32];
          _mm512_storeu_si512(weights, Decoder::one_block(codes + Decoder::bytes(k), kNone));
          for (int64_t j = 0; j < 32; ++j) {
            const auto value = [](uint16_t bits) { return _mm_cvtss_f32(_mm_castsi128_ps(_mm_cvtsi32_si128(static_cast<int>(uint32_t{bits} << 16)))); };
            sum += value(row_of(x, t)[k + j].bits) * (value(weights[j]) * scale);
          }
        }
      }
      store_outputs(out, t, n + i, 1, _mm_set_ss(sum));
    }
  }
}

// ---- few rows ----------------------------------------------------------------------------------------------------------------

template <class Decoder, int MR>
DI_INLINE void direct_group(const bf16* const (&x)[kDirectRows], const Group<kGroup>& g, int64_t cols, int64_t ahead, __m512 (&sum)[MR * kGroup]) {
  each<MR * kGroup>([&](auto i) __attribute__((always_inline)) { sum[i] = _mm512_setzero_ps(); });
  constexpr int kLine = Decoder::kLine;
  int64_t k = 0;
  for (; k + kLine * 32 <= cols; k += kLine * 32) {
    each<kGroup>([&](auto n) __attribute__((always_inline)) {
      const uint8_t* codes = g.row[n] + Decoder::bytes(k);
      _mm_prefetch(reinterpret_cast<const char*>(codes) + ahead, _MM_HINT_T0);
      __m512i w[kLine];
      Decoder::line(codes, g.shift[n] + k / 32, w);
      each<MR>([&](auto i) __attribute__((always_inline)) {
        each<kLine>([&](auto j) __attribute__((always_inline)) { sum[i * kGroup + n] = dot(sum[i * kGroup + n], w[j], load32(x[i] + k + j * 32)); });
      });
    });
  }
  const auto last = [&](int64_t count) __attribute__((always_inline)) {  // fewer than 32: only of bf16 weights
    each<kGroup>([&](auto n) __attribute__((always_inline)) {
      const uint8_t* codes = g.row[n] + Decoder::bytes(k);
      const __m512i w = count == 32 ? Decoder::one_block(codes, g.shift[n] + k / 32) : load_first32(codes, count);
      each<MR>([&](auto i) __attribute__((always_inline)) {
        sum[i * kGroup + n] = dot(sum[i * kGroup + n], w, count == 32 ? load32(x[i] + k) : load_first32(x[i] + k, count));
      });
    });
  };
  for (; k + 32 <= cols; k += 32) last(32);
  if constexpr (!Decoder::kScaled) {
    if (k < cols) last(cols - k);
  }
}

template <class Decoder, int MR, class Matrix>
void multiply_few(const Bf16Rows& x, const Matrix& w, int64_t begin, int64_t end, const ProductOut& out) {
  alignas(64) Shift shifts[kGroup * kMaxProductCols / 32];
  const bf16* rows[kDirectRows];
  for (int i = 0; i < kDirectRows; ++i) rows[i] = row_of(x, i < MR ? i : 0);
  const int64_t ahead = kGroup * Decoder::bytes(w.cols);
  for (int64_t n = begin; n < end; n += kGroup) {
    const int64_t outputs = end - n < kGroup ? end - n : kGroup;
    const Group<kGroup> g = group_at<kGroup>(w, n, outputs, shifts);
    if (!g.usual) {
      unusual_outputs(x, w, n, outputs, out);
      continue;
    }
    __m512 sum[MR * kGroup];
    direct_group<Decoder, MR>(rows, g, w.cols, ahead, sum);
    each<MR>([&](auto i) __attribute__((always_inline)) {
      store_outputs(out, i, n, outputs, lane_sums(sum[i * kGroup], sum[i * kGroup + 1], sum[i * kGroup + 2], sum[i * kGroup + 3]));
    });
  }
}

// ---- many rows ---------------------------------------------------------------------------------------------------------------

struct alignas(64) Chunk {
  uint16_t weights[kWideGroup][kDepth + 32];  // rows an odd number of cache lines apart
};

// Inputs [k, k + count) of a group as bf16 numbers, zeros after the last up to a whole vector.
template <class Decoder>
DI_INLINE void decode_chunk(const Group<kWideGroup>& g, int64_t k, int64_t count, Chunk& chunk) {
  for (int n = 0; n < kWideGroup; ++n) {
    uint16_t* out = chunk.weights[n];
    const uint8_t* codes = g.row[n] + Decoder::bytes(k);
    const Shift* shift = g.shift[n] + k / 32;
    int64_t i = 0;
    for (; i + Decoder::kLine * 32 <= count; i += Decoder::kLine * 32) {
      __m512i w[Decoder::kLine];
      Decoder::line(codes + Decoder::bytes(i), shift + i / 32, w);
      each<Decoder::kLine>([&](auto j) __attribute__((always_inline)) { _mm512_store_si512(out + i + j * 32, w[j]); });
    }
    for (; i + 32 <= count; i += 32) _mm512_store_si512(out + i, Decoder::one_block(codes + Decoder::bytes(i), shift + i / 32));
    if constexpr (!Decoder::kScaled) {
      if (i < count) _mm512_store_si512(out + i, load_first32(codes + Decoder::bytes(i), count - i));
    }
  }
}

// MR rows against a chunk. sums [MR][kWideGroup][16]: partial sums of the chunks before and for those after.
template <int MR>
__attribute__((noinline)) void multiply_tile(const bf16* const* x, const Chunk& chunk, int64_t count, bool first, float* sums) {
  __m512 sum[MR * kWideGroup];
  each<MR * kWideGroup>([&](auto i) __attribute__((always_inline)) { sum[i] = first ? _mm512_setzero_ps() : _mm512_load_ps(sums + i * 16); });
  const auto step = [&](int64_t k, auto load) __attribute__((always_inline)) {
    __m512i a[MR];
    each<MR>([&](auto i) __attribute__((always_inline)) { a[i] = load(x[i] + k); });
    each<kWideGroup>([&](auto n) __attribute__((always_inline)) {
      const __m512i w = _mm512_load_si512(chunk.weights[n] + k);
      each<MR>([&](auto i) __attribute__((always_inline)) { sum[i * kWideGroup + n] = dot(sum[i * kWideGroup + n], w, a[i]); });
    });
  };
  int64_t k = 0;
  for (; k + 32 <= count; k += 32) step(k, [](const bf16* p) __attribute__((always_inline)) { return load32(p); });
  if (k < count) step(k, [&](const bf16* p) __attribute__((always_inline)) { return load_first32(p, count - k); });
  each<MR * kWideGroup>([&](auto i) __attribute__((always_inline)) { _mm512_store_ps(sums + i * 16, sum[i]); });
}

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

template <class Matrix>
void multiply_many(const Bf16Rows& x, const Matrix& w, int64_t begin, int64_t end, const ProductOut& out) {
  using Decoder = decltype(decoder_of(w));
  alignas(64) Shift shifts[kWideGroup * kMaxProductCols / 32];
  Chunk chunk;
  alignas(64) float sums[kRowBlock * kWideGroup * 16];
  int64_t block = kCacheBytes / (w.cols * 2) / kTileRows * kTileRows;
  block = block < 8 * kTileRows ? 8 * kTileRows : block > kRowBlock ? kRowBlock : block;
  for (int64_t row = 0; row < x.num_rows; row += block) {
    const int64_t rows = x.num_rows - row < block ? x.num_rows - row : block;
    const bf16* at[kRowBlock];
    for (int64_t i = 0; i < rows; ++i) at[i] = row_of(x, row + i);
    for (int64_t n = begin; n < end; n += kWideGroup) {
      const int64_t outputs = end - n < kWideGroup ? end - n : kWideGroup;
      const Group<kWideGroup> g = group_at<kWideGroup>(w, n, outputs, shifts);
      if (!g.usual) {
        if (row == 0) unusual_outputs(x, w, n, outputs, out);
        continue;
      }
      for (int64_t k = 0; k < w.cols; k += kDepth) {
        const int64_t count = w.cols - k < kDepth ? w.cols - k : kDepth;
        decode_chunk<Decoder>(g, k, count, chunk);
        const int64_t next = k + kDepth < w.cols ? k + kDepth : 0, tiles = (rows + kTileRows - 1) / kTileRows;
        const Upcoming upcoming{codes_of(w) + Decoder::bytes((next > 0 ? n : n + kWideGroup) * w.cols + next), Decoder::bytes(w.cols),
                                Decoder::bytes(w.cols - next < kDepth ? w.cols - next : kDepth)};
        for (int64_t i = 0; i < rows; i += kTileRows) {
          upcoming.fetch(i / kTileRows, tiles);
          const bf16* x_at[kTileRows];
          for (int64_t j = 0; j < kTileRows; ++j) x_at[j] = at[i + j < rows ? i + j : i] + k;
          float* place = sums + i * kWideGroup * 16;
          if (rows - i >= kTileRows) multiply_tile<kTileRows>(x_at, chunk, count, k == 0, place);
          else if (rows - i == 2) multiply_tile<2>(x_at, chunk, count, k == 0, place);
          else multiply_tile<1>(x_at, chunk, count, k == 0, place);
        }
      }
      for (int64_t i = 0; i < rows; ++i) {
        for (int64_t j = 0; j < outputs; j += 4) {
          const float* s = sums + (i * kWideGroup + j) * 16;
          store_outputs(out, row + i, n + j, outputs - j < 4 ? outputs - j : 4,
                        lane_sums(_mm512_load_ps(s), _mm512_load_ps(s + 16), _mm512_load_ps(s + 32), _mm512_load_ps(s + 48)));
        }
      }
    }
  }
}

template <class Matrix>
void multiply(const Bf16Rows& x, const Matrix& w, int64_t begin, int64_t end, const ProductOut& out) {
  using Decoder = decltype(decoder_of(w));
  switch (x.num_rows) {
    case 0: return;
    case 1: return multiply_few<Decoder, 1>(x, w, begin, end, out);
    case 2: return multiply_few<Decoder, 2>(x, w, begin, end, out);
    case 3: return multiply_few<Decoder, 3>(x, w, begin, end, out);
    case 4: return multiply_few<Decoder, 4>(x, w, begin, end, out);
    default: return multiply_many(x, w, begin, end, out);
  }
}

}  // namespace

const BlockLinearKernels& block_linear_avx512() {
  static constexpr BlockLinearKernels kTable{multiply<Fp8Matrix>, multiply<Fp4Matrix>, multiply<Bf16Matrix>};
  return kTable;
}

}  // namespace deepinfer::cpu
#endif
