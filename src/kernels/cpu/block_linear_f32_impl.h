// The products of block_linear.h with multiply-adds of f32 in 512-bit vectors: where there are no dot products of bf16 pairs, and on Intel's
// processors, which make four operations of such a dot product where two multiply-adds would do (Sapphire Rapids: 2.3 cycles against 1).
// Included by block_linear_avx512f.cc and block_linear_f32_avx512.cc, which compile it for their instruction set.
//
// A block of 32 inputs becomes two vectors: its even inputs and its odd ones. Lane i sums the products of inputs 2i + 1 and 2i of every
// block, in this order. Few rows of activations: codes become floats in registers as they stream by. More: eight rows of codes at a time
// are decoded into the L1 cache and meet tiles of three rows.
#pragma once

#include "kernels/cpu/block_linear_avx512.h"

namespace deepinfer::cpu {
namespace {

DI_INLINE __m512 even_of(__m512i words) { return _mm512_castsi512_ps(_mm512_slli_epi32(words, 16)); }
DI_INLINE __m512 odd_of(__m512i words) { return _mm512_castsi512_ps(_mm512_and_si512(words, _mm512_set1_epi32(static_cast<int>(0xffff0000u)))); }

// ---- decoding ----------------------------------------------------------------------------------------------------------------

// The numbers of a block: even inputs, odd inputs.
struct Block {
  __m512 even, odd;
};
DI_INLINE Block block_of(__m512i words) { return {even_of(words), odd_of(words)}; }

#if defined(__AVX512VBMI__)

DI_INLINE void fp8_blocks(const uint8_t* p, Block (&out)[2]) {
  __m512i a, b;
  e4m3_words(_mm512_loadu_si512(p), a, b);
  out[0] = block_of(a);
  out[1] = block_of(b);
}
DI_INLINE Block fp8_block(const uint8_t* p) {
  __m512i a, b;
  e4m3_words(_mm512_castsi256_si512(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))), a, b);
  return block_of(a);
}

#else

// Codes in the upper bytes of 32 bits, whatever is below.
DI_INLINE __m512 e4m3_floats(__m512i codes) {
  const __m512i sign = _mm512_set1_epi32(static_cast<int>(0x80000000u)), magnitude = _mm512_set1_epi32(0x07f00000);
  const __m512i placed = _mm512_and_si512(_mm512_srai_epi32(codes, 4), _mm512_or_si512(sign, magnitude));
  const __m512 value = _mm512_castsi512_ps(_mm512_add_epi32(placed, _mm512_set1_epi32(120 << 23)));
  // A subnormal m * 2^-9 is 2 * ((1 + m / 8) * 2^-7 - 2^-7).
  const __mmask16 subnormal = _mm512_testn_epi32_mask(placed, _mm512_set1_epi32(0x07800000));
  const __m512 least = _mm512_castsi512_ps(_mm512_ternarylogic_epi32(_mm512_castps_si512(_mm512_set1_ps(0x1p-7f)), placed, sign, 0xf8));  // a | (b & c)
  const __m512 excess = _mm512_sub_ps(value, least);
  const __m512 normal_or_not = _mm512_mask_add_ps(value, subnormal, excess, excess);
  // 0 as the difference of equal numbers is +0, whose product may be of another sign, which no sum shows.
  const __mmask16 nan = _mm512_cmpeq_epi32_mask(_mm512_and_si512(placed, magnitude), magnitude);
  return _mm512_mask_mov_ps(normal_or_not, nan, _mm512_set1_ps(__builtin_nanf("")));
}
DI_INLINE Block fp8_block(const uint8_t* p) {
  const __m512i pairs = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  return {e4m3_floats(_mm512_slli_epi32(pairs, 24)), e4m3_floats(_mm512_slli_epi32(pairs, 16))};
}
DI_INLINE void fp8_blocks(const uint8_t* p, Block (&out)[2]) {
  out[0] = fp8_block(p);
  out[1] = fp8_block(p + 32);
}

#endif

// A format: blocks() decodes the blocks of a line of codes, one_block() a single one, both without the scales of fp8.
struct Fp8Format {
  static constexpr int kLine = 2, kSharedScales = 32;  // blocks; outputs
  static DI_INLINE int64_t bytes(int64_t k) { return k; }
  static DI_INLINE void blocks(const uint8_t* p, const e8m0*, Block (&out)[kLine]) { fp8_blocks(p, out); }
  static DI_INLINE Block one_block(const uint8_t* p, const e8m0*) { return fp8_block(p); }
};

// The 16 numbers of e2m1 times every scale: 16 KiB, of which a matrix uses a few lines.
struct E2m1Floats {
  alignas(64) float value[256][16];
};
constexpr E2m1Floats kE2m1Floats = [] {
  constexpr float kMagnitudes[8] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
  E2m1Floats tables{};
  double scale = 0x1p-127;
  for (int s = 0; s < 256; ++s, scale *= 2)
    for (int code = 0; code < 16; ++code) {
      const double value = kMagnitudes[code & 7] * scale, top = static_cast<double>(__FLT_MAX__);
      const float magnitude = s == 255 ? __builtin_nanf("") : value > top ? __builtin_inff() : static_cast<float>(value);
      tables.value[s][code] = code & 8 ? -magnitude : magnitude;
    }
  return tables;
}();

struct Fp4Format {
  static constexpr int kLine = 4, kSharedScales = 1;
  static DI_INLINE int64_t bytes(int64_t k) { return k / 2; }
  static DI_INLINE Block one_block(const uint8_t* p, const e8m0* scale) {
    // Of an index the look-up takes the lowest four bits.
    const __m512i pairs = _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
    const __m512 table = _mm512_load_ps(kE2m1Floats.value[scale->bits]);
    return {_mm512_permutexvar_ps(pairs, table), _mm512_permutexvar_ps(_mm512_srli_epi32(pairs, 4), table)};
  }
  static DI_INLINE void blocks(const uint8_t* p, const e8m0* scale, Block (&out)[kLine]) {
    each<kLine>([&](auto j) __attribute__((always_inline)) { out[j] = one_block(p + j * 16, scale + j); });
  }
};

struct Bf16Format {
  static constexpr int kLine = 1, kSharedScales = 0;  // none
  static DI_INLINE int64_t bytes(int64_t k) { return k * 2; }
  static DI_INLINE Block one_block(const uint8_t* p, const e8m0*) { return block_of(load32(p)); }
  static DI_INLINE void blocks(const uint8_t* p, const e8m0*, Block (&out)[kLine]) { out[0] = block_of(load32(p)); }
};

[[maybe_unused]] DI_INLINE Fp8Format format_of(const Fp8Matrix&) { return {}; }
[[maybe_unused]] DI_INLINE Fp4Format format_of(const Fp4Matrix&) { return {}; }
[[maybe_unused]] DI_INLINE Bf16Format format_of(const Bf16Matrix&) { return {}; }

// ---- few rows ----------------------------------------------------------------------------------------------------------------

// Activations as blocks of floats, zeros after the last. out [MR][ld].
template <int MR>
DI_INLINE void spread_rows(const bf16* const (&x)[MR], int64_t cols, int64_t ld, float* out) {
  for (int i = 0; i < MR; ++i)
    for (int64_t k = 0; k < cols; k += 32) {
      const __m512i words = cols - k >= 32 ? load32(x[i] + k) : load_first32(x[i] + k, cols - k);
      _mm512_store_ps(out + i * ld + k, even_of(words));
      _mm512_store_ps(out + i * ld + k + 16, odd_of(words));
    }
}

// The same times the scales of a tile of 32 outputs, which saves as much for each of its outputs: (x * 2^s) * w is the same number as
// x * (w * 2^s) while no factor leaves the normal range. Returns whether none does.
template <int MR>
DI_INLINE bool scale_rows(const bf16* const (&x)[MR], const e8m0* scales, int64_t cols, int64_t ld, float* out) {
  constexpr int kNanInfinitySubnormal = 0x01 | 0x80 | 0x08 | 0x10 | 0x20, kZero = 0x02 | 0x04;
  __mmask16 outside = 0;
  const auto scaled = [&](__m512 value, __m512 scale) __attribute__((always_inline)) {
    const __m512 product = _mm512_mul_ps(value, scale);
    outside |= _mm512_fpclass_ps_mask(product, kNanInfinitySubnormal) | (_mm512_fpclass_ps_mask(product, kZero) & ~_mm512_fpclass_ps_mask(value, kZero));
    return product;
  };
  for (int i = 0; i < MR; ++i)
    for (int64_t k = 0; k < cols; k += 32) {
      const __m512i words = load32(x[i] + k);
      const __m512 scale = _mm512_set1_ps(scale_of(scales[k / 32]));
      _mm512_store_ps(out + i * ld + k, scaled(even_of(words), scale));
      _mm512_store_ps(out + i * ld + k + 16, scaled(odd_of(words), scale));
    }
  return outside == 0;
}

// Adds the products of N outputs with MR rows of blocks x [MR][ld].
template <class Format, int MR, int N>
DI_INLINE void direct_group(const float* x, int64_t ld, const Outputs<N>& w, int64_t cols, int64_t ahead, __m512 (&sum)[MR * N]) {
  each<MR * N>([&](auto i) __attribute__((always_inline)) { sum[i] = _mm512_setzero_ps(); });
  const auto add = [&](const Block& block, int64_t k, auto n) __attribute__((always_inline)) {
    each<MR>([&](auto i) __attribute__((always_inline)) {
      sum[i * N + n] = _mm512_fmadd_ps(block.odd, _mm512_load_ps(x + i * ld + k + 16), sum[i * N + n]);
      sum[i * N + n] = _mm512_fmadd_ps(block.even, _mm512_load_ps(x + i * ld + k), sum[i * N + n]);
    });
  };
  constexpr int kLine = Format::kLine;
  int64_t k = 0;
  for (; k + kLine * 32 <= cols; k += kLine * 32) {
    each<N>([&](auto n) __attribute__((always_inline)) {
      const uint8_t* codes = w.codes[n] + Format::bytes(k);
      _mm_prefetch(reinterpret_cast<const char*>(codes) + ahead, _MM_HINT_T1);
      Block blocks[kLine];
      Format::blocks(codes, w.scales[n] + k / 32, blocks);
      each<kLine>([&](auto j) __attribute__((always_inline)) { add(blocks[j], k + j * 32, n); });
    });
  }
  for (; k + 32 <= cols; k += 32)
    each<N>([&](auto n) __attribute__((always_inline)) { add(Format::one_block(w.codes[n] + Format::bytes(k), w.scales[n] + k / 32), k, n); });
  if constexpr (Format::kSharedScales == 0) {
    if (k < cols) each<N>([&](auto n) __attribute__((always_inline)) { add(block_of(load_first32(w.codes[n] + Format::bytes(k), cols - k)), k, n); });
  }
}

template <class Matrix>
void multiply_many(const Bf16Rows& x, const Matrix& w, int64_t begin, int64_t end, const ProductOut& out);

template <int MR, class Matrix>
void multiply_few(const Bf16Rows& x, const Matrix& w, int64_t begin, int64_t end, const ProductOut& out) {
  using Format = decltype(format_of(w));
  constexpr bool kFp8 = std::is_same_v<Format, Fp8Format>;
  constexpr int N = MR <= 2 ? 8 : 4;
  alignas(64) float blocks[MR * kMaxProductCols];
  const bf16* rows[MR];
  for (int i = 0; i < MR; ++i) rows[i] = x.row(i);
  const int64_t ld = (w.cols + 31) / 32 * 32, ahead = N * Format::bytes(w.cols);
  if constexpr (!kFp8) spread_rows<MR>(rows, w.cols, ld, blocks);
  bool in_range = true;
  for (int64_t n = begin; n < end; n += N) {
    const int64_t outputs = end - n < N ? end - n : N;
    const auto group = outputs_at<Format, N>(w, n, outputs);
    if constexpr (kFp8) {
      if (n == begin || n % Format::kSharedScales == 0) in_range = scale_rows<MR>(rows, group.scales[0], w.cols, ld, blocks);
      if (!in_range) {
        multiply_many(x, w, n, n + outputs, out);
        continue;
      }
    }
    __m512 sum[MR * N];
    direct_group<Format, MR, N>(blocks, ld, group, w.cols, ahead, sum);
    each<MR * N / 4>([&](auto q) __attribute__((always_inline)) {
      constexpr int kFirst = q * 4 % N;
      const int64_t left = outputs - kFirst;
      if (left > 0) store_outputs(out, q * 4 / N, n + kFirst, left < 4 ? left : 4, Vec::sums(sum[q * 4], sum[q * 4 + 1], sum[q * 4 + 2], sum[q * 4 + 3]));
    });
  }
}

// ---- many rows ---------------------------------------------------------------------------------------------------------------

struct F32Kernel {
  static constexpr int64_t kDepth = 768;  // inputs of a decoded chunk: 24 KiB, and room in a cache of 32 KiB for the activations that pass
  struct alignas(64) Chunk {
    float weights[kWideGroup][kDepth + 16];  // rows an odd number of cache lines apart
  };
  // Inputs [k, k + count) of a group, times their scales, zeros after the last up to a whole block.
  template <class Format>
  static DI_INLINE void decode(const Outputs<kWideGroup>& w, int64_t k, int64_t count, Chunk& chunk) {
    for (int n = 0; n < kWideGroup; ++n) {
      const uint8_t* codes = w.codes[n] + Format::bytes(k);
      const e8m0* scales = w.scales[n] + k / 32;
      const auto store = [&](int64_t i, const Block& block) __attribute__((always_inline)) {
        __m512 scale = _mm512_set1_ps(1);
        if constexpr (std::is_same_v<Format, Fp8Format>) scale = _mm512_set1_ps(scale_of(scales[i / 32]));
        const bool multiply = std::is_same_v<Format, Fp8Format>;
        _mm512_store_ps(chunk.weights[n] + i, multiply ? _mm512_mul_ps(block.even, scale) : block.even);
        _mm512_store_ps(chunk.weights[n] + i + 16, multiply ? _mm512_mul_ps(block.odd, scale) : block.odd);
      };
      constexpr int kLine = Format::kLine;
      int64_t i = 0;
      for (; i + kLine * 32 <= count; i += kLine * 32) {
        Block blocks[kLine];
        Format::blocks(codes + Format::bytes(i), scales + i / 32, blocks);
        each<kLine>([&](auto j) __attribute__((always_inline)) { store(i + j * 32, blocks[j]); });
      }
      for (; i + 32 <= count; i += 32) store(i, Format::one_block(codes + Format::bytes(i), scales + i / 32));
      if constexpr (Format::kSharedScales == 0) {
        if (i < count) store(i, block_of(load_first32(codes + Format::bytes(i), count - i)));
      }
    }
  }
  template <int MR>
  static DI_INLINE void step(const Chunk& chunk, int64_t k, const __m512i (&words)[MR], __m512 (&sum)[MR * kWideGroup]) {
    __m512 even[MR], odd[MR];
    each<MR>([&](auto i) __attribute__((always_inline)) {
      even[i] = even_of(words[i]);
      odd[i] = odd_of(words[i]);
    });
    const auto half = [&](const float* weights, const __m512 (&a)[MR]) __attribute__((always_inline)) {
      each<kWideGroup>([&](auto n) __attribute__((always_inline)) {
        __m512 w = _mm512_load_ps(weights + n * (kDepth + 16));
        asm("" : "+v"(w));  // one load for all rows: g++ would make each multiply-add load it again, and loads are as scarce
        each<MR>([&](auto i) __attribute__((always_inline)) { sum[i * kWideGroup + n] = _mm512_fmadd_ps(w, a[i], sum[i * kWideGroup + n]); });
      });
    };
    half(chunk.weights[0] + k + 16, odd);
    half(chunk.weights[0] + k, even);
  }
};

template <class Matrix>
void multiply_many(const Bf16Rows& x, const Matrix& w, int64_t begin, int64_t end, const ProductOut& out) {
  using Format = decltype(format_of(w));
  using Wide = Outputs<kWideGroup>;
  multiply_tiles<F32Kernel, Format, Wide>(x, w, begin, end, out, [&](int64_t, int64_t n, int64_t outputs, Wide& group) __attribute__((always_inline)) {
    group = outputs_at<Format, kWideGroup>(w, n, outputs);
    return true;
  });
}

template <class Matrix>
void multiply(const Bf16Rows& x, const Matrix& w, int64_t begin, int64_t end, const ProductOut& out) {
  switch (x.num_rows) {  // rows up to which nothing is decoded into memory
    case 0: return;
    case 1: return multiply_few<1>(x, w, begin, end, out);
    case 2: return multiply_few<2>(x, w, begin, end, out);
    case 3: return multiply_few<3>(x, w, begin, end, out);
    case 4: return multiply_few<4>(x, w, begin, end, out);
    default: return multiply_many(x, w, begin, end, out);
  }
}

constexpr BlockLinearKernels kBlockLinear{multiply<Fp8Matrix>, multiply<Fp4Matrix>, multiply<Bf16Matrix>};

}  // namespace
}  // namespace deepinfer::cpu
