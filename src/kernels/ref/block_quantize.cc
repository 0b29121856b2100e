#include "kernels/block_quantize.h"

#include <algorithm>
#include <cmath>

#include "base/half.h"

namespace deepinfer::ref {
namespace {

float max_magnitude(const float* x, int64_t n, float floor) {
  float largest = floor;
  for (int64_t i = 0; i < n; ++i) largest = std::max(largest, std::fabs(x[i]));
  return largest;
}

float clamp(float x, float limit) { return std::min(std::max(x, -limit), limit); }

void pack_e2m1(const float* x, int64_t n, float scale, uint8_t* codes) {
  for (int64_t i = 0; i < n; i += 2) {
    const uint8_t low = to_e2m1(clamp(x[i] / scale, kE2m1Max)), high = to_e2m1(clamp(x[i + 1] / scale, kE2m1Max));
    codes[i / 2] = static_cast<uint8_t>(low | high << 4);
  }
}

void unpack_e2m1(const uint8_t* codes, int64_t n, float scale, float* x) {
  for (int64_t i = 0; i < n; i += 2) {
    x[i] = to_f32(to_bf16(e2m1_to_f32(codes[i / 2] & 15) * scale));
    x[i + 1] = to_f32(to_bf16(e2m1_to_f32(codes[i / 2] >> 4) * scale));
  }
}

}  // namespace

void quantize_fp8(const float* x, int64_t n, e4m3* codes, e8m0* scales) {
  constexpr int32_t kBlock = 32;
  for (int64_t b = 0; b < n / kBlock; ++b, x += kBlock, codes += kBlock) {
    scales[b] = ceil_e8m0(max_magnitude(x, kBlock, 1e-4f) * (1.0f / 448.0f));
    const float scale = to_f32(scales[b]);
    for (int32_t i = 0; i < kBlock; ++i) codes[i] = to_e4m3(x[i] / scale);  // saturation is the clamp
  }
}

void quantize_fp4_e8m0(const float* x, int64_t n, uint8_t* codes, e8m0* scales) {
  for (int64_t b = 0; b < n / 32; ++b, x += 32, codes += 16) {
    scales[b] = ceil_e8m0(max_magnitude(x, 32, 6 * 0x1p-126f) * (1.0f / 6.0f));
    pack_e2m1(x, 32, to_f32(scales[b]), codes);
  }
}

void quantize_fp4_e4m3(const float* x, int64_t n, uint8_t* codes, e4m3* scales) {
  for (int64_t b = 0; b < n / 16; ++b, x += 16, codes += 8) {
    scales[b] = to_e4m3(max_magnitude(x, 16, 6 * 0x1p-9f) / 6.0f);
    pack_e2m1(x, 16, to_f32(scales[b]), codes);
  }
}

void dequantize_fp8(const e4m3* codes, const e8m0* scales, int64_t n, float* x) {
  for (int64_t i = 0; i < n; ++i) x[i] = to_f32(to_bf16(to_f32(codes[i]) * to_f32(scales[i / 32])));
}

void dequantize_fp4_e8m0(const uint8_t* codes, const e8m0* scales, int64_t n, float* x) {
  for (int64_t b = 0; b < n / 32; ++b) unpack_e2m1(codes + b * 16, 32, to_f32(scales[b]), x + b * 32);
}

void dequantize_fp4_e4m3(const uint8_t* codes, const e4m3* scales, int64_t n, float* x) {
  for (int64_t b = 0; b < n / 16; ++b) unpack_e2m1(codes + b * 8, 16, to_f32(scales[b]), x + b * 16);
}

}  // namespace deepinfer::ref
