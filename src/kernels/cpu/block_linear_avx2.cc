// The products of block_linear.h for AVX2. Codes become the words of bf16 numbers, those of fp8 by moving their bits, those of fp4 by
// look-ups of either byte; a vector of 16 words becomes two of floats, by moving the lower words up and by clearing them. Few rows of
// activations: in registers, as the codes stream by. More: eight outputs at a time are decoded into the L1 cache and meet tiles of three
// rows and four outputs.
//
// Words come in the order that decoding leaves them in, and activations are put into the same order first. Lane i of a sum takes the
// products of words 2i and 2i + 1 of every vector, in this order.
//
// Lost: vcvtph2ps, which makes floats of either format with fewer instructions, but takes two cycles on AMD's processors; fp8 by look-ups of
// bytes, which needs half as many instructions more.
#if defined(__x86_64__)
#include <algorithm>
#include <cstring>

#include "kernels/cpu/block_linear_outputs.h"
#include "kernels/cpu/float8_vec.h"

namespace deepinfer::cpu {
namespace {

using Floats = __m256;
using Bytes = __m256i;  // or words

constexpr int kFewGroup = 4;   // outputs taken together for few rows, and of a tile
constexpr int kTileRows = 3;   // 12 sums; 4 registers for the rest
constexpr int64_t kLeastRowBlock = 24, kRowBlock = 240;  // rows whose partial sums wait while chunks pass
constexpr int64_t kCacheBytes = 384 << 10;               // of activations, in the L2 cache while weights pass
constexpr int64_t kDepth = 512;                          // inputs of a decoded chunk: 16 KiB
constexpr int64_t kMostUnit = 64;                        // inputs that a format decodes at once

// Of as many inputs as a format decodes at once.
template <class Format>
struct Words {
  Bytes at[Format::kUnit / 16];
};

DI_INLINE Bytes load(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
DI_INLINE Bytes load_halves(const void* low, const void* high) {
  return _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128(static_cast<const __m128i*>(low))), _mm_loadu_si128(static_cast<const __m128i*>(high)), 1);
}

// ---- decoding ----------------------------------------------------------------------------------------------------------------

// The bytes of the 16 numbers of e2m1 times every scale: 8 KiB, of which a matrix uses a few lines.
struct E2m1Bytes {
  struct alignas(32) Table {
    uint8_t low[16], high[16];
  } tables[256];
};
constexpr E2m1Bytes kE2m1Bytes = [] {
  constexpr int kMagnitudes[8] = {0, 1, 2, 3, 4, 6, 8, 12};  // halves
  E2m1Bytes all{};
  for (int scale = 0; scale < 256; ++scale)
    for (int code = 0; code < 16; ++code) {
      int bits = 0, mantissa = kMagnitudes[code & 7], exponent = scale + 6;  // value: mantissa / 128 * 2^(exponent - 127)
      if (mantissa > 0) {
        while (mantissa < 128 && exponent > 1) mantissa <<= 1, --exponent;
        bits = exponent > 254 ? 0x7f80 : mantissa < 128 ? mantissa : exponent << 7 | (mantissa & 127);
      }
      if (scale == 255) bits = 0x7fc0;
      all.tables[scale].low[code] = static_cast<uint8_t>(bits & 255);
      all.tables[scale].high[code] = static_cast<uint8_t>(bits >> 8 | (code & 8) << 4);
    }
  return all;
}();

// A format: words() makes bf16 numbers of the codes of kUnit inputs, activations() puts as many activations into the same order.

// Numbers without their scale, times 2^-120: the bits of a code are those of such a number once its exponent has moved to where bf16 has it. A
// subnormal code becomes a subnormal number, which products take exactly (at a price on some processors, but one code in 10,000 is one). NaN is 480.
struct Fp8Format {
  static constexpr int kUnit = 32, kSharedScales = 32;  // inputs; outputs
  static constexpr bool kScaled = false;
  static DI_INLINE int64_t bytes(int64_t k) { return k; }
  // Even inputs, odd inputs.
  static DI_INLINE void words(const uint8_t* p, const e8m0*, Bytes* out) {
    const Bytes codes = load(p), kept = _mm256_set1_epi16(static_cast<short>(0x87f0));
    out[0] = _mm256_and_si256(_mm256_srai_epi16(_mm256_slli_epi16(codes, 8), 4), kept);
    out[1] = _mm256_and_si256(_mm256_srai_epi16(codes, 4), kept);
  }
  static DI_INLINE void activations(const bf16* p, Bytes* out) {
    const Bytes a = load(p), b = load(p + 16), lower = _mm256_set1_epi32(0xffff);
    out[0] = _mm256_permute4x64_epi64(_mm256_packus_epi32(_mm256_and_si256(a, lower), _mm256_and_si256(b, lower)), 0xd8);
    out[1] = _mm256_permute4x64_epi64(_mm256_packus_epi32(_mm256_srli_epi32(a, 16), _mm256_srli_epi32(b, 16)), 0xd8);
  }
};
constexpr float kFp8Unit = 0x1p120f;
DI_INLINE bool has_nan(const uint8_t* codes) {  // of 32
  const Bytes nan = _mm256_cmpeq_epi8(_mm256_or_si256(load(codes), _mm256_set1_epi8(-128)), _mm256_set1_epi8(-1));
  return _mm256_testz_si256(nan, nan) == 0;
}

struct Fp4Format {
  static constexpr int kUnit = 64, kSharedScales = 1;
  static constexpr bool kScaled = true;
  static DI_INLINE int64_t bytes(int64_t k) { return k / 2; }
  static DI_INLINE void words(const uint8_t* p, const e8m0* scales, Bytes* out) {
    const Bytes codes = load(p), four = _mm256_set1_epi8(15);
    const Bytes even = _mm256_and_si256(codes, four), odd = _mm256_and_si256(_mm256_srli_epi16(codes, 4), four);
    const auto& first = kE2m1Bytes.tables[scales[0].bits];
    const auto& second = kE2m1Bytes.tables[scales[1].bits];
    const Bytes low = load_halves(first.low, second.low), high = load_halves(first.high, second.high);
    const auto look_up = [&](Bytes code, Bytes& a, Bytes& b) __attribute__((always_inline)) {
      const Bytes l = _mm256_shuffle_epi8(low, code), h = _mm256_shuffle_epi8(high, code);
      a = _mm256_unpacklo_epi8(l, h);
      b = _mm256_unpackhi_epi8(l, h);
    };
    look_up(_mm256_unpacklo_epi8(even, odd), out[0], out[1]);
    look_up(_mm256_unpackhi_epi8(even, odd), out[2], out[3]);
  }
  static DI_INLINE void activations(const bf16* p, Bytes* out) {
    for (int j = 0; j < 4; ++j) out[j] = load_halves(p + 8 * j, p + 8 * j + 32);
  }
};

struct Bf16Format {
  static constexpr int kUnit = 32, kSharedScales = 0;  // none
  static constexpr bool kScaled = true;
  static DI_INLINE int64_t bytes(int64_t k) { return k * 2; }
  static DI_INLINE void words(const uint8_t* p, const e8m0*, Bytes* out) {
    out[0] = load(p);
    out[1] = load(p + 32);
  }
  static DI_INLINE void activations(const bf16* p, Bytes* out) { words(reinterpret_cast<const uint8_t*>(p), nullptr, out); }
};

DI_INLINE Fp8Format format_of(const Fp8Matrix&) { return {}; }
DI_INLINE Fp4Format format_of(const Fp4Matrix&) { return {}; }
DI_INLINE Bf16Format format_of(const Bf16Matrix&) { return {}; }

// f(words, the place of their first input) for inputs [k, k + count) of an output; zeros after the last.
template <class Format, class F>
DI_INLINE void each_unit(const uint8_t* codes, const e8m0* scales, int64_t count, F f) {
  constexpr int kUnit = Format::kUnit;
  Words<Format> words;
  int64_t i = 0;
  for (; i + kUnit <= count; i += kUnit) {
    Format::words(codes + Format::bytes(i), scales + i / 32, words.at);
    f(words, i);
  }
  if (i < count) {
    alignas(32) uint8_t rest[kMostUnit * 2] = {};
    std::memcpy(rest, codes + Format::bytes(i), static_cast<size_t>(Format::bytes(count - i)));
    e8m0 rest_scales[2] = {};
    if constexpr (Format::kSharedScales > 0) rest_scales[0] = scales[i / 32];
    Format::words(rest, rest_scales, words.at);
    f(words, i);
  }
}

// f(word vector, row, its first word's place) for the activations of rows [row, row + rows) in the order of a format's words, zeros after the last.
template <class Format, class F>
DI_INLINE void each_activation_words(const Bf16Rows& x, int64_t row, int64_t rows, int64_t cols, F f) {
  constexpr int kUnit = Format::kUnit;
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t k = 0; k < cols; k += kUnit) {
      const bf16* at = x.row(row + r) + k;
      alignas(32) bf16 last[kUnit];
      if (k + kUnit > cols) {
        std::memset(last, 0, sizeof(last));
        std::memcpy(last, at, static_cast<size_t>(cols - k) * sizeof(bf16));
        at = last;
      }
      Words<Format> words;
      Format::activations(at, words.at);
      for (int j = 0; j < kUnit / 16; ++j) f(words.at[j], r, k + j * 16);
    }
}

// Inputs with those that fill up the last unit.
template <class Format>
DI_INLINE int64_t padded(int64_t cols) { return (cols + Format::kUnit - 1) / Format::kUnit * Format::kUnit; }

// ---- sums --------------------------------------------------------------------------------------------------------------------

DI_INLINE void store_outputs(const ProductOut& out, int64_t row, int64_t n, int64_t outputs, Floats a, Floats b, Floats c, Floats d) {
  alignas(32) float sums[8] = {};
  Vec::store_sums(sums, a, b, c, d);
  if (out.round) Vec::store(sums, Vec::round_bf16(Vec::load(sums)));
  std::memcpy(out.y + row * out.ldy + n, sums, static_cast<size_t>(std::min<int64_t>(outputs, kFewGroup)) * sizeof(float));
}

// Of the three forms of the instruction, the one that leaves the sum in its register: g++ mixes them, and sums go through memory.
DI_INLINE void add_product(Floats& sum, Floats a, Floats b) { asm("vfmadd231ps %2, %1, %0" : "+x"(sum) : "x"(a), "x"(b)); }
DI_INLINE void add_product(Floats& sum, Floats a, const float* b) { asm("vfmadd231ps %2, %1, %0" : "+x"(sum) : "x"(a), "m"(*reinterpret_cast<const Floats*>(b))); }

template <class Matrix>
void multiply_many(const Bf16Rows& x, const Matrix& w, int64_t begin, int64_t end, const ProductOut& out);

// ---- few rows ----------------------------------------------------------------------------------------------------------------

// Floats of activations times the scales of a tile of 32 outputs and the unit of fp8 words, which saves as much for each output: (x * 2^s) * w is
// the same number as x * (w * 2^s) if no factor leaves the range. Returns whether none does.
DI_INLINE bool scale_rows(const float* x, int64_t num_rows, const e8m0* scales, int64_t cols, int64_t ld, float* out) {
  constexpr int kLargest = 133;  // so that the factor, 2^(code - 7), and what undoes it are normal
  Floats changed = Vec::zero();
  for (int64_t k = 0; k < cols; k += 32) {
    const int scale = scales[k / 32].bits;
    if (scale == 0 || scale > kLargest) return false;
    const Floats factor = Vec::set1(scale_of(e8m0{static_cast<uint8_t>(scale + 120)})), back = Vec::set1(scale_of(e8m0{static_cast<uint8_t>(134 - scale)}));
    for (int64_t i = k; i < num_rows * ld; i += ld)
      each<4>([&](auto j) __attribute__((always_inline)) {
        const Floats value = Vec::load(x + i + j * 8), product = Vec::mul(value, factor);
        changed = _mm256_or_ps(changed, _mm256_cmp_ps(Vec::mul(product, back), value, _CMP_NEQ_UQ));
        Vec::store(out + i + j * 8, product);
      });
  }
  return _mm256_movemask_ps(changed) == 0;
}

// Adds the products of a group of outputs with MR rows of floats x [MR][ld]. Returns whether no code was NaN.
template <class Format, int MR>
DI_INLINE bool direct_group(const float* x, int64_t ld, const Outputs<kFewGroup>& w, int64_t cols, int64_t ahead, Floats (&sum)[MR * kFewGroup]) {
  constexpr int kUnit = Format::kUnit;
  each<MR * kFewGroup>([&](auto i) __attribute__((always_inline)) { sum[i] = Vec::zero(); });
  Bytes most = _mm256_setzero_si256(), most_signed = most;  // of codes: 0xff and 0x7f are NaN
  const auto add = [&](const Words<Format>& words, int64_t k, auto n) __attribute__((always_inline)) {
    each<kUnit / 16>([&](auto j) __attribute__((always_inline)) {
      const Floats even = Vec::low_bf16(words.at[j]), odd = Vec::high_bf16(words.at[j]);
      each<MR>([&](auto i) __attribute__((always_inline)) {
        add_product(sum[i * kFewGroup + n], even, x + i * ld + k + j * 16);
        add_product(sum[i * kFewGroup + n], odd, x + i * ld + k + j * 16 + 8);
      });
    });
  };
  int64_t k = 0;
  for (; k + kUnit <= cols; k += kUnit) {
    each<kFewGroup>([&](auto n) __attribute__((always_inline)) {
      const uint8_t* codes = w.codes[n] + Format::bytes(k);
      _mm_prefetch(reinterpret_cast<const char*>(codes) + ahead, _MM_HINT_T1);
      Words<Format> words;
      Format::words(codes, w.scales[n] + k / 32, words.at);
      add(words, k, n);
      if constexpr (!Format::kScaled) {
        most = _mm256_max_epu8(most, load(codes));
        most_signed = _mm256_max_epi8(most_signed, load(codes));
      }
    });
  }
  if (k < cols) {
    each<kFewGroup>([&](auto n) __attribute__((always_inline)) {
      each_unit<Format>(w.codes[n] + Format::bytes(k), w.scales[n] + k / 32, cols - k,
                        [&](const Words<Format>& words, int64_t) __attribute__((always_inline)) { add(words, k, n); });
    });
  }
  const Bytes nan = _mm256_or_si256(_mm256_cmpeq_epi8(most, _mm256_set1_epi8(-1)), _mm256_cmpeq_epi8(most_signed, _mm256_set1_epi8(0x7f)));
  return _mm256_testz_si256(nan, nan) != 0;
}

template <int MR, class Matrix>
void multiply_few(const Bf16Rows& x, const Matrix& w, int64_t begin, int64_t end, const ProductOut& out) {
  using Format = decltype(format_of(w));
  constexpr bool kFp8 = !Format::kScaled;
  alignas(32) float spread[MR * kMaxProductCols];
  alignas(32) float scaled[kFp8 ? MR * kMaxProductCols : 8];
  const int64_t ld = padded<Format>(w.cols), ahead = kFewGroup * Format::bytes(w.cols);
  each_activation_words<Format>(x, 0, MR, w.cols, [&](Bytes words, int64_t r, int64_t k) __attribute__((always_inline)) {
    Vec::store(spread + r * ld + k, Vec::low_bf16(words));
    Vec::store(spread + r * ld + k + 8, Vec::high_bf16(words));
  });
  bool in_range = true;
  for (int64_t n = begin; n < end; n += kFewGroup) {
    const int64_t outputs = std::min<int64_t>(end - n, kFewGroup);
    const auto group = outputs_at<Format, kFewGroup>(w, n, outputs);
    if constexpr (kFp8) {
      if (n == begin || n % Format::kSharedScales == 0) in_range = scale_rows(spread, MR, group.scales[0], w.cols, ld, scaled);
    }
    Floats sum[MR * kFewGroup];
    if (in_range && direct_group<Format, MR>(kFp8 ? scaled : spread, ld, group, w.cols, ahead, sum)) {
      each<MR>([&](auto i) __attribute__((always_inline)) { store_outputs(out, i, n, outputs, sum[i * 4], sum[i * 4 + 1], sum[i * 4 + 2], sum[i * 4 + 3]); });
    } else {
      multiply_many(x, w, n, n + outputs, out);
    }
  }
}

// ---- many rows ---------------------------------------------------------------------------------------------------------------

struct alignas(64) Chunk {
  float weights[kWideGroup][kDepth + 16];  // rows an odd number of cache lines apart
};

// Inputs [k, k + count) of a group as floats, times their scales, in the order of the format's words.
template <class Format>
DI_INLINE void decode(const Outputs<kWideGroup>& w, int64_t k, int64_t count, Chunk& chunk) {
  for (int n = 0; n < kWideGroup; ++n) {
    float* out = chunk.weights[n];
    const uint8_t* codes = w.codes[n] + Format::bytes(k);
    const e8m0* scales = w.scales[n] + k / 32;
    each_unit<Format>(codes, scales, count, [&](const Words<Format>& words, int64_t i) __attribute__((always_inline)) {
      each<Format::kUnit / 16>([&](auto j) __attribute__((always_inline)) {
        Floats even = Vec::low_bf16(words.at[j]), odd = Vec::high_bf16(words.at[j]);
        if constexpr (!Format::kScaled) {
          const Floats unit = Vec::set1(kFp8Unit), scale = Vec::set1(scale_of(scales[i / 32]));
          even = Vec::mul(Vec::mul(even, unit), scale);
          odd = Vec::mul(Vec::mul(odd, unit), scale);
        }
        Vec::store(out + i + j * 16, even);
        Vec::store(out + i + j * 16 + 8, odd);
      });
      if constexpr (!Format::kScaled) {
        if (has_nan(codes + i)) [[unlikely]] Vec::store(out + i, Vec::set1(__builtin_nanf("")));  // any of them spoils the output
      }
    });
  }
}

constexpr struct alignas(32) Upper {
  uint32_t words[8];
} kUpper{{0xffff0000, 0xffff0000, 0xffff0000, 0xffff0000, 0xffff0000, 0xffff0000, 0xffff0000, 0xffff0000}};

// MR rows of words x [MR][ld] against four outputs of a chunk. sums [MR][4][8]: partial sums of the chunks before and for those after.
template <int MR>
__attribute__((noinline)) void multiply_tile(const uint16_t* x, int64_t ld, const float* weights, int64_t count, bool first, float* sums) {
  constexpr int64_t kLd = kDepth + 16;
  Floats sum[MR * kFewGroup];
  each<MR * kFewGroup>([&](auto i) __attribute__((always_inline)) { sum[i] = first ? Vec::zero() : Vec::load(sums + i * 8); });
  const auto half = [&](const float* w, const Floats(&a)[MR]) __attribute__((always_inline)) {
    each<kFewGroup>([&](auto n) __attribute__((always_inline)) {
      const Floats b = _mm256_load_ps(w + n * kLd);
      each<MR>([&](auto i) __attribute__((always_inline)) { add_product(sum[i * kFewGroup + n], a[i], b); });
    });
  };
  const Upper* upper = &kUpper;
  for (int64_t k = 0; k < count; k += 16) {
    asm("" : "+r"(upper));  // a mask that stayed in a register would push a sum out of one
    Floats a[MR];
    each<MR>([&](auto i) __attribute__((always_inline)) { a[i] = Vec::low_bf16(load(x + i * ld + k)); });
    half(weights + k, a);
    each<MR>([&](auto i) __attribute__((always_inline)) { a[i] = _mm256_castsi256_ps(_mm256_and_si256(load(x + i * ld + k), load(upper->words))); });
    half(weights + k + 8, a);
  }
  each<MR * kFewGroup>([&](auto i) __attribute__((always_inline)) { Vec::store(sums + i * 8, sum[i]); });
}

// Rows of activations that stay in the L2 cache while all weights pass.
DI_INLINE int64_t rows_at_a_time(int64_t cols) { return std::clamp<int64_t>(kCacheBytes / (cols * 2) / kTileRows * kTileRows, kLeastRowBlock, kRowBlock); }

template <class Matrix>
void multiply_many(const Bf16Rows& x, const Matrix& w, int64_t begin, int64_t end, const ProductOut& out) {
  using Format = decltype(format_of(w));
  constexpr int64_t kMostWords = std::max(kCacheBytes / 2 + kRowBlock * kMostUnit, kLeastRowBlock * kMaxProductCols);
  alignas(64) uint16_t words[kMostWords];  // [rows][ld]
  Chunk chunk;
  alignas(32) float sums[kRowBlock * kWideGroup * 8];
  const int64_t block = rows_at_a_time(w.cols), ld = padded<Format>(w.cols);
  for (int64_t row = 0; row < x.num_rows; row += block) {
    const int64_t rows = std::min(x.num_rows - row, block), tiles = (rows + kTileRows - 1) / kTileRows;
    each_activation_words<Format>(x, row, rows, w.cols, [&](Bytes all, int64_t r, int64_t k) __attribute__((always_inline)) {
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(words + r * ld + k), all);
    });
    for (int64_t n = begin; n < end; n += kWideGroup) {
      const int64_t outputs = std::min<int64_t>(end - n, kWideGroup);
      const auto group = outputs_at<Format, kWideGroup>(w, n, outputs);
      for (int64_t k = 0; k < w.cols; k += kDepth) {
        const int64_t count = std::min(w.cols - k, kDepth);
        decode<Format>(group, k, count, chunk);
        const Upcoming upcoming = upcoming_after<Format>(w, n, k, kDepth);
        for (int64_t i = 0; i < rows; i += kTileRows) {
          upcoming.fetch(i / kTileRows, tiles);
          for (int64_t half = 0; half * kFewGroup < outputs; ++half) {
            const int64_t height = std::min<int64_t>(rows - i, kTileRows);
            const auto tile = height == 3 ? multiply_tile<3> : height == 2 ? multiply_tile<2> : multiply_tile<1>;
            float* s = sums + (i * kWideGroup + half * kTileRows * kFewGroup) * 8;
            tile(words + i * ld + k, ld, chunk.weights[half * kFewGroup], padded<Format>(count), k == 0, s);
            if (k + kDepth < w.cols) continue;
            for (int64_t j = 0; j < height; ++j, s += kFewGroup * 8)
              store_outputs(out, row + i + j, n + half * kFewGroup, outputs - half * kFewGroup, Vec::load(s), Vec::load(s + 8), Vec::load(s + 16), Vec::load(s + 24));
          }
        }
      }
    }
  }
}

template <class Matrix>
void multiply(const Bf16Rows& x, const Matrix& w, int64_t begin, int64_t end, const ProductOut& out) {
  switch (x.num_rows) {
    case 0: return;
    case 1: return multiply_few<1>(x, w, begin, end, out);
    case 2: return multiply_few<2>(x, w, begin, end, out);
    case 3: return multiply_few<3>(x, w, begin, end, out);
    default: return multiply_many(x, w, begin, end, out);
  }
}

}  // namespace

const BlockLinearKernels& block_linear_avx2() {
  static constexpr BlockLinearKernels kTable{multiply<Fp8Matrix>, multiply<Fp4Matrix>, multiply<Bf16Matrix>};
  return kTable;
}

}  // namespace deepinfer::cpu
#endif
