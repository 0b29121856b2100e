// The products of block_linear.h with dot products of bf16 pairs. A vector holds 32 successive inputs; lane i sums the products of
// inputs 2i and 2i + 1 of every such step. Few rows of activations: codes become bf16 numbers in registers as they stream by. More:
// eight rows of codes at a time are decoded into the L1 cache and meet tiles of three rows.
//
// A scale enters as an addition to the exponent of the decoded bf16 number, which is exact while no number leaves the normal range:
// scales from 2^-117 to 2^119. A group of outputs with any other scale (0xff, NaN, among them) goes through f32 arithmetic.
#if defined(__x86_64__)
#include <type_traits>

#include "kernels/cpu/block_linear_avx512.h"

namespace deepinfer::cpu {
namespace {

constexpr int kDirectRows = 6;    // rows up to which nothing is decoded into memory

DI_INLINE __m512 dot(__m512 sum, __m512i a, __m512i b) {
  return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(b));
}

// ---- decoding ----------------------------------------------------------------------------------------------------------------

// What the exponents of a block's numbers grow by, as a number to add to their bits; twice, so that a load broadcasts it.
using Shift = uint32_t;

// Whether the addition to exponents serves all of `count` scales.
DI_INLINE bool are_usual(const e8m0* scales, int64_t count) {
  __mmask64 outside = 0;
  for (int64_t i = 0; i < count; i += 64) {
    const __mmask64 mask = count - i >= 64 ? ~__mmask64{0} : (__mmask64{1} << (count - i)) - 1;
    const __m512i code = _mm512_maskz_loadu_epi8(mask, scales + i);
    outside |= _mm512_mask_cmpgt_epu8_mask(mask, _mm512_sub_epi8(code, _mm512_set1_epi8(10)), _mm512_set1_epi8(static_cast<char>(236)));
  }
  return outside == 0;
}

DI_INLINE void shifts_of(const e8m0* scales, int64_t count, Shift* out) {
  for (int64_t i = 0; i < count; i += 16) {
    const auto mask = static_cast<__mmask16>(count - i >= 16 ? 0xffff : (1 << (count - i)) - 1);
    const __m512i code = _mm512_cvtepu8_epi32(_mm_maskz_loadu_epi8(mask, scales + i));
    const __m512i shift = _mm512_and_si512(_mm512_slli_epi32(_mm512_sub_epi32(code, _mm512_set1_epi32(127)), 7), _mm512_set1_epi32(0xffff));
    _mm512_mask_storeu_epi32(out + i, mask, _mm512_or_si512(shift, _mm512_slli_epi32(shift, 16)));
  }
}

// A format: one_block() makes bf16 numbers of the codes of 32 inputs and their scale, line() of the blocks in 64 bytes.
struct Fp8Decoder {
  using Scale = Shift;
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
    e4m3_words(raw, a, b);
    a = scaled(a, shift[0]);
    b = scaled(b, shift[1]);
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

// The same without scales, for activations that have them already (scale_rows).
struct Fp8Codes {
  using Scale = Shift;
  static DI_INLINE int64_t bytes(int64_t k) { return k; }
  static DI_INLINE __m512i one_block(const uint8_t* p, const Shift*) {
    __m512i a, b;
    e4m3_words(_mm512_castsi256_si512(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))), a, b);
    return a;
  }
  static constexpr bool kScaled = true;
  static constexpr int kLine = 2;
  static DI_INLINE void line(const uint8_t* p, const Shift*, __m512i (&w)[kLine]) { e4m3_words(_mm512_loadu_si512(p), w[0], w[1]); }
};

// The 16 numbers of e2m1 times every scale: 16 KiB, of which a matrix uses a few lines.
struct E2m1Tables {
  alignas(64) uint16_t words[256][32];
};
constexpr E2m1Tables kE2m1 = [] {
  constexpr uint16_t kMagnitudes[8] = {0, 0x3f00, 0x3f80, 0x3fc0, 0x4000, 0x4040, 0x4080, 0x40c0};
  E2m1Tables tables{};
  for (int scale = 0; scale < 256; ++scale)
    for (int code = 0; code < 32; ++code) {
      const int magnitude = kMagnitudes[code & 7], exponent = (magnitude >> 7) + scale - 127;
      const bool inside = magnitude != 0 && exponent > 0 && exponent < 255;  // no other is looked up
      tables.words[scale][code] = static_cast<uint16_t>((inside ? exponent << 7 | (magnitude & 0x7f) : 0) | (code & 8) << 12);
    }
  return tables;
}();

struct Fp4Decoder {
  using Scale = e8m0;
  static constexpr bool kScaled = true;
  static constexpr int kSharedScales = 1;
  static DI_INLINE int64_t bytes(int64_t k) { return k / 2; }
  static DI_INLINE __m512i one_block(const uint8_t* p, const Scale* scale) { return e2m1_words(p, _mm512_load_si512(kE2m1.words[scale->bits])); }
  static constexpr int kLine = 4;
  static DI_INLINE void line(const uint8_t* p, const Scale* scale, __m512i (&w)[kLine]) {
    each<kLine>([&](auto j) __attribute__((always_inline)) { w[j] = one_block(p + j * 16, scale + j); });
  }
};

// The same with the pairs of a block in another order, as a 4 x 4 matrix transposed: so a block is spread over a vector by one load and one
// instruction. Sums come out in that order too.
struct Fp4Transposed {
  using Scale = e8m0;
  static constexpr bool kScaled = true;
  static DI_INLINE int64_t bytes(int64_t k) { return k / 2; }
  static DI_INLINE __m512i one_block(const uint8_t* p, const Scale* scale) {
    // Lane q takes bytes q, 4 + q, 8 + q, 12 + q, one to a pair: its lower four bits to the first word, its upper four to the second. Of
    // what else is in a word the look-up ignores all but bit 4, which makes no difference in its table.
    const __m512i places = _mm512_setr_epi64(0x0024002000040000, 0x0024002000040000, 0x002c0028000c0008, 0x002c0028000c0008,
                                             0x0034003000140010, 0x0034003000140010, 0x003c0038001c0018, 0x003c0038001c0018);
    const __m512i bytes = _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
    return _mm512_permutexvar_epi16(_mm512_multishift_epi64_epi8(places, bytes), _mm512_load_si512(kE2m1.words[scale->bits]));
  }
  static constexpr int kLine = 4;
  static DI_INLINE void line(const uint8_t* p, const Scale* scale, __m512i (&w)[kLine]) {
    each<kLine>([&](auto j) __attribute__((always_inline)) { w[j] = one_block(p + j * 16, scale + j); });
  }
};
DI_INLINE __m512i transpose_pairs(__m512i x) { return _mm512_permutexvar_epi32(_mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15), x); }

struct Bf16Decoder {
  using Scale = e8m0;  // none
  static constexpr bool kScaled = false;
  static DI_INLINE int64_t bytes(int64_t k) { return k * 2; }
  static DI_INLINE __m512i one_block(const uint8_t* p, const Scale*) { return load32(p); }
  static constexpr int kLine = 1;
  static DI_INLINE void line(const uint8_t* p, const Scale*, __m512i (&w)[kLine]) { w[0] = load32(p); }
};

[[maybe_unused]] DI_INLINE Fp8Decoder decoder_of(const Fp8Matrix&) { return {}; }
[[maybe_unused]] DI_INLINE Fp4Decoder decoder_of(const Fp4Matrix&) { return {}; }
[[maybe_unused]] DI_INLINE Bf16Decoder decoder_of(const Bf16Matrix&) { return {}; }

// A group of up to N outputs: where their codes lie, and their scales.
template <class Decoder, int N>
struct Group {
  const uint8_t* row[N];
  const typename Decoder::Scale* scale[N];
  bool usual;  // all scales in range
};

// shifts: [cols / 32], filled if the format wants its scales so.
template <class Decoder, int N, class Matrix>
DI_INLINE Group<Decoder, N> group_at(const Matrix& w, int64_t n, int64_t outputs, Shift* shifts) {
  Group<Decoder, N> g;
  g.usual = true;
  const int64_t blocks = w.cols / 32;
  for (int64_t i = 0; i < N; ++i) {
    const int64_t at = n + (i < outputs ? i : 0);  // a missing output is the first once more
    g.row[i] = codes_of(w) + at * Decoder::bytes(w.cols);
    g.scale[i] = nullptr;
    if constexpr (Decoder::kScaled) {
      const e8m0* scales = w.scales + at / Decoder::kSharedScales * blocks;
      if (i == 0 || Decoder::kSharedScales == 1) g.usual &= are_usual(scales, blocks);
      if constexpr (Decoder::kSharedScales == 1) {
        g.scale[i] = scales;
      } else {  // a group is within one tile of 32
        if (i == 0) shifts_of(scales, blocks, shifts);
        g.scale[i] = shifts;
      }
    }
  }
  return g;
}

// Outputs whose scales the addition to exponents does not serve: plain f32, in the order of the inputs.
template <class Matrix>
__attribute__((noinline)) void unusual_outputs(const Bf16Rows& x, const Matrix& w, int64_t n, int64_t outputs, const ProductOut& out) {
  using Decoder = decltype(decoder_of(w));
  const typename Decoder::Scale one = [] {
    if constexpr (std::is_same_v<typename Decoder::Scale, e8m0>) return e8m0{127};
    else return Shift{0};
  }();
  for (int64_t i = 0; i < outputs; ++i) {
    const uint8_t* codes = codes_of(w) + (n + i) * Decoder::bytes(w.cols);
    for (int64_t t = 0; t < x.num_rows; ++t) {
      float sum = 0;
      if constexpr (Decoder::kScaled) {
        for (int64_t k = 0; k < w.cols; k += 32) {
          const uint8_t code = w.scales[(n + i) / Decoder::kSharedScales * (w.cols / 32) + k / 32].bits;
          const float scale = code == 0 ? 0x1p-127f : code == 0xff ? __builtin_nanf("") : _mm_cvtss_f32(_mm_castsi128_ps(_mm_cvtsi32_si128(code << 23)));
          uint16_t weights[32];
          _mm512_storeu_si512(weights, Decoder::one_block(codes + Decoder::bytes(k), &one));
          for (int64_t j = 0; j < 32; ++j) {
            const auto value = [](uint16_t bits) { return _mm_cvtss_f32(_mm_castsi128_ps(_mm_cvtsi32_si128(static_cast<int>(uint32_t{bits} << 16)))); };
            sum += value(x.row(t)[k + j].bits) * (value(weights[j]) * scale);
          }
        }
      }
      store_outputs(out, t, n + i, 1, _mm_set_ss(sum));
    }
  }
}

// ---- few rows ----------------------------------------------------------------------------------------------------------------

// Outputs taken together. Decoding fp4 keeps the machine busier than memory; else more sums on their way hide more.
template <class Decoder>
constexpr int direct_outputs(int rows) {
  return rows <= 2 && !std::is_same_v<Decoder, Fp4Decoder> ? 8 : 4;
}

template <class Decoder, int MR, int N, class Codes>
DI_INLINE void direct_group(const bf16* const (&x)[kDirectRows], const Group<Codes, N>& g, int64_t cols, int64_t ahead, __m512 (&sum)[MR * N]) {
  each<MR * N>([&](auto i) __attribute__((always_inline)) { sum[i] = _mm512_setzero_ps(); });
  constexpr int kLine = Decoder::kLine;
  int64_t k = 0;
  for (; k + kLine * 32 <= cols; k += kLine * 32) {
    each<N>([&](auto n) __attribute__((always_inline)) {
      const uint8_t* codes = g.row[n] + Decoder::bytes(k);
      _mm_prefetch(reinterpret_cast<const char*>(codes) + ahead, _MM_HINT_T1);
      __m512i w[kLine];
      Decoder::line(codes, g.scale[n] + k / 32, w);
      each<MR>([&](auto i) __attribute__((always_inline)) {
        each<kLine>([&](auto j) __attribute__((always_inline)) { sum[i * N + n] = dot(sum[i * N + n], w[j], load32(x[i] + k + j * 32)); });
      });
    });
  }
  const auto last = [&](int64_t count) __attribute__((always_inline)) {  // fewer than 32: only of bf16 weights
    each<N>([&](auto n) __attribute__((always_inline)) {
      const uint8_t* codes = g.row[n] + Decoder::bytes(k);
      const __m512i w = count == 32 ? Decoder::one_block(codes, g.scale[n] + k / 32) : load_first32(codes, count);
      each<MR>([&](auto i) __attribute__((always_inline)) {
        sum[i * N + n] = dot(sum[i * N + n], w, count == 32 ? load32(x[i] + k) : load_first32(x[i] + k, count));
      });
    });
  };
  for (; k + 32 <= cols; k += 32) last(32);
  if constexpr (!Decoder::kScaled) {
    if (k < cols) last(cols - k);
  }
}

// Activations times the scales of a tile of 32 outputs, which saves as much for each of its outputs: (x * 2^s) * w is the same number as
// x * (w * 2^s) while no factor leaves the normal range. Returns whether none does. out [MR][cols].
template <int MR>
DI_INLINE bool scale_rows(const bf16* const (&x)[kDirectRows], const Shift* shifts, int64_t cols, uint16_t* out) {
  const __m512i magnitude = _mm512_set1_epi16(0x7fff), smallest = _mm512_set1_epi16(0x80), range = _mm512_set1_epi16(0x7f7f - 0x80);
  __mmask32 outside = 0;
  for (int i = 0; i < MR; ++i) {
    for (int64_t k = 0; k < cols; k += 32) {
      const __m512i value = load32(x[i] + k), bits = _mm512_and_si512(value, magnitude);
      const __m512i scaled = _mm512_add_epi16(bits, _mm512_set1_epi32(static_cast<int>(shifts[k / 32])));
      const __mmask32 not_zero = _mm512_test_epi16_mask(bits, bits);
      outside |= _mm512_mask_cmpgt_epu16_mask(not_zero, _mm512_sub_epi16(bits, smallest), range);
      outside |= _mm512_mask_cmpgt_epu16_mask(not_zero, _mm512_sub_epi16(scaled, smallest), range);
      _mm512_store_si512(out + i * cols + k, _mm512_mask_mov_epi16(value, not_zero, _mm512_ternarylogic_epi64(scaled, value, magnitude, 0xe4)));  // c ? a : b
    }
  }
  return outside == 0;
}

// Activations in the order of Fp4Transposed.
template <int MR>
DI_INLINE void transpose_rows(const bf16* const (&x)[kDirectRows], int64_t cols, uint16_t* out) {
  for (int i = 0; i < MR; ++i)
    for (int64_t k = 0; k < cols; k += 32) _mm512_store_si512(out + i * cols + k, transpose_pairs(load32(x[i] + k)));
}

template <class Decoder, int MR, class Matrix>
void multiply_few(const Bf16Rows& x, const Matrix& w, int64_t begin, int64_t end, const ProductOut& out) {
  constexpr bool kFp8 = std::is_same_v<Decoder, Fp8Decoder>, kFp4 = std::is_same_v<Decoder, Fp4Decoder>;
  alignas(64) Shift shifts[kMaxProductCols / 32];
  alignas(64) uint16_t prepared[kFp8 || kFp4 ? MR * kMaxProductCols : 1];
  const bf16 *rows[kDirectRows], *prepared_rows[kDirectRows];
  for (int i = 0; i < kDirectRows; ++i) {
    rows[i] = x.row(i < MR ? i : 0);
    prepared_rows[i] = reinterpret_cast<const bf16*>(prepared + (i < MR ? i : 0) * w.cols);
  }
  if constexpr (kFp4) transpose_rows<MR>(rows, w.cols, prepared);
  constexpr int N = direct_outputs<Decoder>(MR);
  const int64_t ahead = N * Decoder::bytes(w.cols);
  bool is_scaled = false;
  for (int64_t n = begin; n < end; n += N) {
    const int64_t outputs = end - n < N ? end - n : N;
    const Group<Decoder, N> g = group_at<Decoder, N>(w, n, outputs, shifts);
    if (!g.usual) {
      unusual_outputs(x, w, n, outputs, out);
      continue;
    }
    __m512 sum[MR * N];
    if constexpr (kFp8) {
      if (n == begin || n % Decoder::kSharedScales == 0) is_scaled = scale_rows<MR>(rows, shifts, w.cols, prepared);
      if (is_scaled) direct_group<Fp8Codes, MR>(prepared_rows, g, w.cols, ahead, sum);
      else direct_group<Decoder, MR>(rows, g, w.cols, ahead, sum);
    } else if constexpr (kFp4) {
      direct_group<Fp4Transposed, MR>(prepared_rows, g, w.cols, ahead, sum);
      each<MR * N>([&](auto i) __attribute__((always_inline)) { sum[i] = _mm512_castsi512_ps(transpose_pairs(_mm512_castps_si512(sum[i]))); });
    } else {
      direct_group<Decoder, MR>(rows, g, w.cols, ahead, sum);
    }
    each<MR * N / 4>([&](auto q) __attribute__((always_inline)) {
      constexpr int kFirst = q * 4 % N;
      const int64_t left = outputs - kFirst;
      if (left > 0) store_outputs(out, q * 4 / N, n + kFirst, left < 4 ? left : 4, Vec::sums(sum[q * 4], sum[q * 4 + 1], sum[q * 4 + 2], sum[q * 4 + 3]));
    });
  }
}

// ---- many rows ---------------------------------------------------------------------------------------------------------------

struct PairKernel {
  static constexpr int64_t kDepth = 2048;  // 32 KiB
  struct alignas(64) Chunk {
    uint16_t weights[kWideGroup][kDepth + 32];  // rows an odd number of cache lines apart
  };
  // Inputs [k, k + count) of a group as bf16 numbers, zeros after the last up to a whole vector.
  template <class Decoder>
  static DI_INLINE void decode(const Group<Decoder, kWideGroup>& g, int64_t k, int64_t count, Chunk& chunk) {
    for (int n = 0; n < kWideGroup; ++n) {
      uint16_t* out = chunk.weights[n];
      const uint8_t* codes = g.row[n] + Decoder::bytes(k);
      const typename Decoder::Scale* scale = g.scale[n] + k / 32;
      int64_t i = 0;
      for (; i + Decoder::kLine * 32 <= count; i += Decoder::kLine * 32) {
        __m512i w[Decoder::kLine];
        Decoder::line(codes + Decoder::bytes(i), scale + i / 32, w);
        each<Decoder::kLine>([&](auto j) __attribute__((always_inline)) { _mm512_store_si512(out + i + j * 32, w[j]); });
      }
      for (; i + 32 <= count; i += 32) _mm512_store_si512(out + i, Decoder::one_block(codes + Decoder::bytes(i), scale + i / 32));
      if constexpr (!Decoder::kScaled) {
        if (i < count) _mm512_store_si512(out + i, load_first32(codes + Decoder::bytes(i), count - i));
      }
    }
  }
  template <int MR>
  static DI_INLINE void step(const Chunk& chunk, int64_t k, const __m512i (&a)[MR], __m512 (&sum)[MR * kWideGroup]) {
    each<kWideGroup>([&](auto n) __attribute__((always_inline)) {
      const __m512i w = _mm512_load_si512(chunk.weights[n] + k);
      each<MR>([&](auto i) __attribute__((always_inline)) { sum[i * kWideGroup + n] = dot(sum[i * kWideGroup + n], w, a[i]); });
    });
  }
};

template <class Matrix>
void multiply_many(const Bf16Rows& x, const Matrix& w, int64_t begin, int64_t end, const ProductOut& out) {
  using Decoder = decltype(decoder_of(w));
  using Wide = Group<Decoder, kWideGroup>;
  alignas(64) Shift shifts[kMaxProductCols / 32];
  multiply_tiles<PairKernel, Decoder, Wide>(x, w, begin, end, out, [&](int64_t row, int64_t n, int64_t outputs, Wide& group) __attribute__((always_inline)) {
    group = group_at<Decoder, kWideGroup>(w, n, outputs, shifts);
    if (!group.usual && row == 0) unusual_outputs(x, w, n, outputs, out);
    return group.usual;
  });
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
    case 5: return multiply_few<Decoder, 5>(x, w, begin, end, out);
    case 6: return multiply_few<Decoder, 6>(x, w, begin, end, out);
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
