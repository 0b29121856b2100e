// 8- and 4-bit floating point numbers of DeepSeek checkpoints and caches (OCP formats): e4m3fn (1-4-3, no infinity, largest 448),
// e8m0 (a power of two, 0xff is NaN) and e2m1 (1-2-1: 0, .5, 1, 1.5, 2, 3, 4, 6). Encoding rounds to nearest, ties to the even code,
// and saturates; decoding is exact. Bit-exact on every machine.
#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace deepinfer {

struct e4m3 {
  uint8_t bits;
};
struct e8m0 {
  uint8_t bits;
};

constexpr float kE4m3Max = 448.0f;
constexpr float kE2m1Max = 6.0f;

inline float to_f32(e4m3 x) {
  const uint32_t sign = uint32_t{x.bits} << 24 & 0x80000000, magnitude = x.bits & 0x7f;
  if (magnitude == 0x7f) return std::numeric_limits<float>::quiet_NaN();
  // The seven bits as a float's exponent and mantissa, then the bias corrected by an exact multiplication: subnormals come out right.
  const float value = std::bit_cast<float>(magnitude << 20) * 0x1p120f;
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(value));
}

// Saturates at +-448; NaN stays NaN.
inline e4m3 to_e4m3(float x) {
  const uint32_t u = std::bit_cast<uint32_t>(x);
  const uint8_t sign = static_cast<uint8_t>(u >> 24 & 0x80);
  const uint32_t magnitude = u & 0x7fffffff;
  if (magnitude > 0x7f800000) return {static_cast<uint8_t>(sign | 0x7f)};
  if (magnitude >= std::bit_cast<uint32_t>(kE4m3Max)) return {static_cast<uint8_t>(sign | 0x7e)};
  if (magnitude < std::bit_cast<uint32_t>(0x1p-6f)) {  // subnormal: a multiple of 2^-9; adding 2^14 aligns it so that the FPU rounds
    const float aligned = std::bit_cast<float>(magnitude) + 0x1p14f;
    return {static_cast<uint8_t>(sign | (std::bit_cast<uint32_t>(aligned) - std::bit_cast<uint32_t>(0x1p14f)))};
  }
  const uint32_t rounded = magnitude + 0x7ffff + (magnitude >> 20 & 1);
  return {static_cast<uint8_t>(sign | ((rounded >> 20) - (120u << 3)))};
}

// 2^(bits - 127); 0xff is NaN.
inline float to_f32(e8m0 x) {
  if (x.bits == 0xff) return std::numeric_limits<float>::quiet_NaN();
  return x.bits == 0 ? 0x1p-127f : std::bit_cast<float>(uint32_t{x.bits} << 23);
}

// The smallest power of two that is not below x, by bit inspection: exponent of x, plus one if any mantissa bit is set.
// x: positive, normal and at most 2^127.
inline e8m0 ceil_e8m0(float x) {
  const uint32_t u = std::bit_cast<uint32_t>(x);
  return {static_cast<uint8_t>((u >> 23) + ((u & 0x7fffff) != 0))};
}

constexpr std::array<float, 16> kE2m1Values{0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
                                            -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};

// code: 4 bits, sign in bit 3.
inline float e2m1_to_f32(uint32_t code) { return kE2m1Values[code & 15]; }

// Nearest code, ties to the even one; saturates at +-6; the sign of zero is kept.
inline uint8_t to_e2m1(float x) {
  const float a = std::fabs(x);
  // Midpoints .25 .75 1.25 1.75 2.5 3.5 5: a tie goes down to an even code, up to an even code, in turn.
  const int magnitude = (a > 0.25f) + (a >= 0.75f) + (a > 1.25f) + (a >= 1.75f) + (a > 2.5f) + (a >= 3.5f) + (a > 5.0f);
  return static_cast<uint8_t>(magnitude | (std::signbit(x) ? 8 : 0));
}

}  // namespace deepinfer
