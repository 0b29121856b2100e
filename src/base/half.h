// 16-bit floating point numbers as they lie in files and caches: bf16 and IEEE f16, converted to and from float.
// Rounding is to nearest, ties to even; NaN stays NaN (made quiet), infinities stay. Bit-exact on every machine.
#pragma once

#include <bit>
#include <cstdint>

namespace deepinfer {

struct bf16 {
  uint16_t bits;
};
struct f16 {
  uint16_t bits;
};

inline float to_f32(bf16 x) { return std::bit_cast<float>(uint32_t{x.bits} << 16); }

inline bf16 to_bf16(float x) {
  const uint32_t u = std::bit_cast<uint32_t>(x);
  if ((u & 0x7fffffff) > 0x7f800000) return {static_cast<uint16_t>((u >> 16) | 0x40)};  // NaN: rounding could make it an infinity
  return {static_cast<uint16_t>((u + 0x7fff + ((u >> 16) & 1)) >> 16)};
}

inline float to_f32(f16 x) {
  const uint32_t sign = uint32_t{x.bits} << 16 & 0x80000000;
  const uint32_t exponent = x.bits >> 10 & 31, mantissa = x.bits & 0x3ff;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000 | mantissa << 13);
  if (exponent != 0) return std::bit_cast<float>(sign | (exponent + 112) << 23 | mantissa << 13);
  // Subnormal: mantissa * 2^-24, exact in a float.
  const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(magnitude));
}

inline f16 to_f16(float x) {
  const uint32_t u = std::bit_cast<uint32_t>(x);
  const uint16_t sign = static_cast<uint16_t>(u >> 16 & 0x8000);
  const uint32_t magnitude = u & 0x7fffffff;
  if (magnitude > 0x7f800000) return {static_cast<uint16_t>(sign | 0x7e00)};   // NaN
  if (magnitude >= 0x477ff000) return {static_cast<uint16_t>(sign | 0x7c00)};  // rounds past the largest f16
  if (magnitude < 0x38800000) {  // below 2^-14: adding 0.5 aligns the mantissa so that the FPU rounds at bit 2^-24
    const float aligned = std::bit_cast<float>(magnitude) + 0.5f;
    return {static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(aligned) - std::bit_cast<uint32_t>(0.5f)))};
  }
  const uint32_t rounded = magnitude + 0xfff + (magnitude >> 13 & 1);
  return {static_cast<uint16_t>(sign | (rounded - (112u << 23)) >> 13)};
}

}  // namespace deepinfer
