// fp8 and fp4 codes as numbers, a vector at a time. Include it only in files that are compiled for one instruction set and in their
// *_impl.h, as vec.h.
#pragma once

#include "base/float8.h"
#include "kernels/cpu/vec.h"

namespace deepinfer {
namespace {

// Bits 2^(code - 127): the smallest is subnormal, 0xff is NaN.
DI_INLINE float scale_of(e8m0 scale) {
  const uint32_t bits = scale.bits == 0 ? 0x400000u : scale.bits == 0xff ? 0x7fc00000u : uint32_t{scale.bits} << 23;
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}

#if defined(__AVX2__)

// A block of 32 codes as floats.
DI_INLINE void decode_fp8_block(const uint8_t* codes, float scale, float* out) {
  for (int i = 0; i < 32; i += 8) {
    const __m256i code = _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(codes + i)));
    const __m256i magnitude = _mm256_and_si256(code, _mm256_set1_epi32(0x7f));
    // A subnormal m * 2^-9 is (1 + m / 8) * 2^-6 - 2^-6.
    const __m256i subnormal = _mm256_cmpgt_epi32(_mm256_set1_epi32(8), magnitude);
    const __m256i exponent = _mm256_add_epi32(_mm256_set1_epi32(120 << 23), _mm256_and_si256(subnormal, _mm256_set1_epi32(1 << 23)));
    const __m256 value = _mm256_sub_ps(_mm256_castsi256_ps(_mm256_add_epi32(_mm256_slli_epi32(magnitude, 20), exponent)),
                                       _mm256_and_ps(_mm256_castsi256_ps(subnormal), _mm256_set1_ps(0x1p-6f)));
    const __m256i nan = _mm256_and_si256(_mm256_cmpeq_epi32(magnitude, _mm256_set1_epi32(0x7f)), _mm256_set1_epi32(0x7fc00000));
    const __m256i sign = _mm256_slli_epi32(_mm256_andnot_si256(_mm256_set1_epi32(0x7f), code), 24);
    const __m256 whole = _mm256_or_ps(value, _mm256_castsi256_ps(_mm256_or_si256(nan, sign)));
    _mm256_store_ps(out + i, _mm256_mul_ps(whole, _mm256_set1_ps(scale)));
  }
}

#else

DI_INLINE float e4m3_value(uint32_t code) {
  const uint32_t magnitude = code & 0x7f, bits = magnitude << 20;
  float value;
  std::memcpy(&value, &bits, 4);
  value = magnitude == 0x7f ? __builtin_nanf("") : value * 0x1p120f;
  return code & 0x80 ? -value : value;
}

DI_INLINE void decode_fp8_block(const uint8_t* codes, float scale, float* out) {
  static const struct Table {
    float value[256];
    Table() {
      for (uint32_t code = 0; code < 256; ++code) value[code] = e4m3_value(code);
    }
  } table;
  for (int i = 0; i < 32; ++i) out[i] = table.value[codes[i]] * scale;
}

#endif

#if defined(__AVX512VBMI__)

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

// 64 codes as bf16 numbers: the first 32, and the rest.
DI_INLINE void e4m3_words(__m512i raw, __m512i& a, __m512i& b) {
  // Unpacking interleaves within 128-bit lanes: the quarters that belong together must lie in the same half of their lanes.
  const __m512i codes = _mm512_permutexvar_epi64(_mm512_setr_epi64(0, 4, 1, 5, 2, 6, 3, 7), raw);
  __m512i high = _mm512_permutex2var_epi8(_mm512_load_si512(kE4m3.high), codes, _mm512_load_si512(kE4m3.high + 64));
  const __m512i low = _mm512_permutex2var_epi8(_mm512_load_si512(kE4m3.low), codes, _mm512_load_si512(kE4m3.low + 64));
  high = _mm512_ternarylogic_epi64(high, codes, _mm512_set1_epi8(static_cast<char>(0x80)), 0xf8);  // a | (b & c)
  a = _mm512_unpacklo_epi8(low, high);
  b = _mm512_unpackhi_epi8(low, high);
}

// 32 packed codes, each as its entry of a table of 16 words.
DI_INLINE __m512i e2m1_words(const uint8_t* p, __m512i table) {
  const __m512i byte = _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  const __m512i codes = _mm512_ternarylogic_epi64(byte, _mm512_slli_epi32(byte, 12), _mm512_set1_epi32(0x000f000f), 0xa8);  // (a | b) & c
  return _mm512_permutexvar_epi16(codes, table);
}
DI_INLINE __m256i e2m1_words16(const uint8_t* p, __m256i table) {
  const __m256i byte = _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
  const __m256i codes = _mm256_ternarylogic_epi64(byte, _mm256_slli_epi32(byte, 12), _mm256_set1_epi32(0x000f000f), 0xa8);
  return _mm256_permutexvar_epi16(codes, table);
}

#endif

}  // namespace
}  // namespace deepinfer
