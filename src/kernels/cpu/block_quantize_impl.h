// The quantisers of block_quantize.h: plain loops over a block without branches, which the compiler vectorises for the instruction set of
// the file that includes this. Integer and f32 operations in one order: the same bits everywhere.
#pragma once

#include <cstdint>
#include <cstring>

#include "kernels/block_quantize.h"
#include "kernels/cpu/float8_vec.h"

namespace deepinfer {
namespace {

DI_INLINE int32_t bits_of(float x) {
  int32_t bits;
  std::memcpy(&bits, &x, 4);
  return bits;
}
DI_INLINE float float_of(int32_t bits) {
  float x;
  std::memcpy(&x, &bits, 4);
  return x;
}

constexpr int32_t kMagnitude = 0x7fffffff, kInfinityBits = 0x7f800000, kNan = 0x7fc00000;

// The largest magnitude, NaN left out, at least `floor`.
template <int N>
DI_INLINE float largest_magnitude(const float* x, float floor) {
  int32_t largest = bits_of(floor);  // as integers, magnitudes order like the numbers
  for (int i = 0; i < N; ++i) {
    const int32_t m = bits_of(x[i]) & kMagnitude, finite = m > kInfinityBits ? 0 : m;
    largest = finite > largest ? finite : largest;
  }
  return float_of(largest);
}

// The smallest power of two not below x, as e8m0.
DI_INLINE int32_t ceil_exponent(float x) { return (bits_of(x) >> 23) + ((bits_of(x) & 0x7fffff) != 0); }
// 2^(exponent - 127) and its inverse, exponent 1..253; 255 is NaN.
DI_INLINE float power(int32_t exponent) { return float_of(exponent == 255 ? kNan : exponent == 0 ? 0x400000 : exponent << 23); }
DI_INLINE float inverse_power(int32_t exponent) { return float_of(exponent == 255 ? kNan : (254 - exponent) << 23); }

// v to the nearest e4m3 number, ties to even; |v| <= 448. Adding and taking off 1.5 * 2^20 of v's own power of two (at least that of the
// smallest normal number) leaves three mantissa bits.
DI_INLINE float nearest_e4m3(float v) {
  const int32_t exponent = bits_of(v) & kInfinityBits, smallest = 121 << 23;  // 2^-6
  const uint32_t power = static_cast<uint32_t>(exponent < smallest ? smallest : exponent);  // unsigned: of NaN it overflows, and stays NaN
  const float magic = float_of(static_cast<int32_t>(power + (20u << 23) + 0x400000u));
  return float_of((bits_of((v + magic) - magic) & kMagnitude) | (bits_of(v) & ~kMagnitude));
}
// The code of an e4m3 number.
DI_INLINE uint8_t e4m3_code(float q) {
  const int32_t m = bits_of(q) & kMagnitude, sign = static_cast<int32_t>(static_cast<uint32_t>(bits_of(q)) >> 24 & 0x80);
  const int32_t normal = (m >> 20) - 960, subnormal = static_cast<int32_t>(float_of(m > kInfinityBits ? 0 : m) * 512.0f);
  const int32_t code = m > kInfinityBits ? 0x7f : m < 121 << 23 ? subnormal : normal;
  return static_cast<uint8_t>(code | sign);
}
DI_INLINE float e4m3_number(int32_t code) {
  const int32_t m = code & 0x7f;
  const float value = m == 0x7f ? float_of(kNan) : m < 8 ? static_cast<float>(m) * 0x1p-9f : float_of((m << 20) + (120 << 23));
  return float_of(bits_of(value) | (code & 0x80) << 24);
}
// The code of the nearest e2m1 number of v, clamped to +-6: a tie goes to the even code.
DI_INLINE int32_t e2m1_code(float v) {
  const float a = float_of(bits_of(v) & kMagnitude);
  const int32_t magnitude = (a > 0.25f) + (a >= 0.75f) + (a > 1.25f) + (a >= 1.75f) + (a > 2.5f) + (a >= 3.5f) + (a > 5.0f);
  return magnitude | static_cast<int32_t>(static_cast<uint32_t>(bits_of(v)) >> 31 << 3);
}
DI_INLINE float e2m1_number(int32_t code) {
  const int32_t m = code & 7;  // 0, .5, then 1 and 1.5 times powers of two
  const float value = m < 2 ? static_cast<float>(m) * 0.5f : float_of((m << 22) + (126 << 23));
  return float_of(bits_of(value) | (code & 8) << 28);
}

DI_INLINE int32_t round16(float x) {  // the upper half of x rounded to bf16
  const int32_t bits = bits_of(x);
  const int32_t rounded = static_cast<int32_t>(static_cast<uint32_t>(bits) + 0x7fff + (static_cast<uint32_t>(bits) >> 16 & 1));
  return static_cast<int32_t>(static_cast<uint32_t>((bits & kMagnitude) > kInfinityBits ? bits | 0x400000 : rounded) >> 16);
}

void round_to_bf16_impl(const float* x, int64_t n, bf16* out) {
  for (int64_t i = 0; i < n; ++i) out[i].bits = static_cast<uint16_t>(round16(x[i]));
}

void round_to_fp8_impl(const float* x, int64_t n, bf16* out) {
  for (int64_t b = 0; b < n; b += 32) {
    const int32_t exponent = ceil_exponent(largest_magnitude<32>(x + b, 1e-4f) * (1.0f / 448.0f));
    const float scale = power(exponent), inverse = inverse_power(exponent);
    for (int i = 0; i < 32; ++i) out[b + i].bits = static_cast<uint16_t>(static_cast<uint32_t>(bits_of(nearest_e4m3(x[b + i] * inverse) * scale)) >> 16);
  }
}

void quantize_fp8_impl(const float* x, int64_t n, e4m3* codes, e8m0* scales) {
  for (int64_t b = 0; b < n; b += 32) {
    const int32_t exponent = ceil_exponent(largest_magnitude<32>(x + b, 1e-4f) * (1.0f / 448.0f));
    const float inverse = inverse_power(exponent);
    scales[b / 32].bits = static_cast<uint8_t>(exponent);
    for (int i = 0; i < 32; ++i) codes[b + i].bits = e4m3_code(nearest_e4m3(x[b + i] * inverse));
  }
}

// The codes of N numbers already divided by their scale, packed.
template <int N>
DI_INLINE void pack_e2m1(const float* v, uint8_t* codes) {
  for (int i = 0; i < N / 2; ++i) codes[i] = static_cast<uint8_t>(e2m1_code(v[2 * i]) | e2m1_code(v[2 * i + 1]) << 4);
}

void quantize_fp4_e8m0_impl(const float* x, int64_t n, uint8_t* codes, e8m0* scales) {
  for (int64_t b = 0; b < n; b += 32) {
    const int32_t exponent = ceil_exponent(largest_magnitude<32>(x + b, 6 * 0x1p-126f) * (1.0f / 6.0f));
    const float inverse = inverse_power(exponent);
    scales[b / 32].bits = static_cast<uint8_t>(exponent);
    float v[32];
    for (int i = 0; i < 32; ++i) v[i] = x[b + i] * inverse;
    pack_e2m1<32>(v, codes + b / 2);
  }
}

void quantize_fp4_e4m3_impl(const float* x, int64_t n, uint8_t* codes, e4m3* scales) {
  for (int64_t b = 0; b < n; b += 16) {
    const float sixth = largest_magnitude<16>(x + b, 6 * 0x1p-9f) / 6.0f;
    const float scale = nearest_e4m3(sixth < 448.0f ? sixth : 448.0f);
    scales[b / 16].bits = e4m3_code(scale);
    float v[16];
    for (int i = 0; i < 16; ++i) v[i] = x[b + i] / scale;
    pack_e2m1<16>(v, codes + b / 2);
  }
}

#if defined(__AVX512VBMI__)

// 16 bf16 numbers times a scale, rounded again.
DI_INLINE __m256i scaled16(__m256i words, __m512 scale) {
  const __m512 value = _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(words), 16));
  return _mm512_cvtepi32_epi16(_mm512_srli_epi32(_mm512_castps_si512(Vec::round_bf16(_mm512_mul_ps(value, scale))), 16));
}

void dequantize_fp8_impl(const e4m3* codes, const e8m0* scales, int64_t n, bf16* out) {
  for (int64_t b = 0; b < n; b += 32) {
    const __m512 scale = _mm512_set1_ps(scale_of(scales[b / 32]));
    __m512i words, rest;
    e4m3_words(_mm512_castsi256_si512(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(codes + b))), words, rest);
    auto* to = reinterpret_cast<__m256i*>(out + b);
    _mm256_storeu_si256(to, scaled16(_mm512_castsi512_si256(words), scale));
    _mm256_storeu_si256(to + 1, scaled16(_mm512_extracti64x4_epi64(words, 1), scale));
  }
}

// The 16 numbers of e2m1 times a scale, rounded to bf16.
DI_INLINE __m256i e2m1_table(float scale) {
  const __m512 numbers = _mm512_setr_ps(0, 0.5f, 1, 1.5f, 2, 3, 4, 6, -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6);
  return _mm512_cvtepi32_epi16(_mm512_srli_epi32(_mm512_castps_si512(Vec::round_bf16(_mm512_mul_ps(numbers, _mm512_set1_ps(scale)))), 16));
}

void dequantize_fp4_e8m0_impl(const uint8_t* codes, const e8m0* scales, int64_t n, bf16* out) {
  for (int64_t b = 0; b < n / 32; ++b)
    _mm512_storeu_si512(out + b * 32, e2m1_words(codes + b * 16, _mm512_castsi256_si512(e2m1_table(scale_of(scales[b])))));
}

void dequantize_fp4_e4m3_impl(const uint8_t* codes, const e4m3* scales, int64_t n, bf16* out) {
  for (int64_t b = 0; b < n / 16; ++b)
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + b * 16), e2m1_words16(codes + b * 8, e2m1_table(e4m3_number(scales[b].bits))));
}

#else

void dequantize_fp8_impl(const e4m3* codes, const e8m0* scales, int64_t n, bf16* out) {
  for (int64_t b = 0; b < n; b += 32) {
    alignas(64) float numbers[32];
    decode_fp8_block(reinterpret_cast<const uint8_t*>(codes) + b, scale_of(scales[b / 32]), numbers);
    for (int i = 0; i < 32; i += Vec::kLanes) Vec::store_bf16(out + b + i, Vec::round_bf16(Vec::load(numbers + i)));
  }
}

// N codes times a scale: the products of the 16 numbers once, then looked up.
template <int N>
DI_INLINE void unpack_e2m1(const uint8_t* codes, float scale, bf16* out) {
  bf16 table[16];
  for (int i = 0; i < 8; ++i) {
    table[i].bits = static_cast<uint16_t>(round16(e2m1_number(i) * scale));
    table[i + 8].bits = static_cast<uint16_t>(table[i].bits ^ 0x8000);
  }
  for (int i = 0; i < N / 2; ++i) {
    out[2 * i] = table[codes[i] & 15];
    out[2 * i + 1] = table[codes[i] >> 4];
  }
}

void dequantize_fp4_e8m0_impl(const uint8_t* codes, const e8m0* scales, int64_t n, bf16* out) {
  for (int64_t b = 0; b < n / 32; ++b) unpack_e2m1<32>(codes + b * 16, scale_of(scales[b]), out + b * 32);
}

void dequantize_fp4_e4m3_impl(const uint8_t* codes, const e4m3* scales, int64_t n, bf16* out) {
  for (int64_t b = 0; b < n / 16; ++b) unpack_e2m1<16>(codes + b * 8, e4m3_number(scales[b].bits), out + b * 16);
}

#endif

}  // namespace
}  // namespace deepinfer
