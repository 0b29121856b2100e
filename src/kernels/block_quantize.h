// The block quantisers of DeepSeek-V4.1 (model.md 2.0): activations and KV rows are rounded to fp8 or fp4 with a scale a block of
// consecutive numbers, as the model was trained. Codes and scales in the byte layout of the caches.
//   fp8       block 32: scale 2^ceil(log2(max(|x|, 1e-4) / 448)), e4m3 codes
//   fp4_e8m0  block 32: scale 2^ceil(log2(max(|x|, 6 * 2^-126) / 6)), e2m1 codes
//   fp4_e4m3  block 16: scale e4m3(max(|x|, 6 * 2^-9) / 6) used as a real number, e2m1 codes
// Packed e2m1: element 2i in the low nibble of byte i, 2i + 1 in the high one. n is a multiple of the block. A NaN stays one in
// fp8 and becomes 0 in fp4, which has no NaN; it does not count for the scale of its block. Codes and values are the same bits on
// every instruction set.
#pragma once

#include <cstdint>

#include "base/float8.h"
#include "base/half.h"
#include "kernels/linear.h"

namespace deepinfer {

void quantize_fp8(const float* x, int64_t n, e4m3* codes, e8m0* scales, Isa isa);
void quantize_fp4_e8m0(const float* x, int64_t n, uint8_t* codes, e8m0* scales, Isa isa);
void quantize_fp4_e4m3(const float* x, int64_t n, uint8_t* codes, e4m3* scales, Isa isa);

// The inverse: exact products, rounded to bf16 (which changes nothing for fp8 and fp4_e8m0).
void dequantize_fp8(const e4m3* codes, const e8m0* scales, int64_t n, bf16* x, Isa isa);
void dequantize_fp4_e8m0(const uint8_t* codes, const e8m0* scales, int64_t n, bf16* x, Isa isa);
void dequantize_fp4_e4m3(const uint8_t* codes, const e4m3* scales, int64_t n, bf16* x, Isa isa);

// x through fp8 and back: the activations that fp8 and fp4 weights meet. And x itself as bf16, to nearest even, n any number.
void round_to_fp8(const float* x, int64_t n, bf16* out, Isa isa);
void round_to_bf16(const float* x, int64_t n, bf16* out, Isa isa);

namespace ref {  // number by number, from the definition
void quantize_fp8(const float* x, int64_t n, e4m3* codes, e8m0* scales);
void quantize_fp4_e8m0(const float* x, int64_t n, uint8_t* codes, e8m0* scales);
void quantize_fp4_e4m3(const float* x, int64_t n, uint8_t* codes, e4m3* scales);
void dequantize_fp8(const e4m3* codes, const e8m0* scales, int64_t n, float* x);
void dequantize_fp4_e8m0(const uint8_t* codes, const e8m0* scales, int64_t n, float* x);
void dequantize_fp4_e4m3(const uint8_t* codes, const e4m3* scales, int64_t n, float* x);
}  // namespace ref

}  // namespace deepinfer
