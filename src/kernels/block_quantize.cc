#include "kernels/block_quantize.h"

#include "base/check.h"
#include "kernels/cpu/v41_kernels.h"

namespace deepinfer {

void quantize_fp8(const float* x, int64_t n, e4m3* codes, e8m0* scales, Isa isa) {
  DCHECK(n % 32 == 0);
  cpu::v41_kernels(isa).quantize_fp8(x, n, codes, scales);
}
void quantize_fp4_e8m0(const float* x, int64_t n, uint8_t* codes, e8m0* scales, Isa isa) {
  DCHECK(n % 32 == 0);
  cpu::v41_kernels(isa).quantize_fp4_e8m0(x, n, codes, scales);
}
void quantize_fp4_e4m3(const float* x, int64_t n, uint8_t* codes, e4m3* scales, Isa isa) {
  DCHECK(n % 16 == 0);
  cpu::v41_kernels(isa).quantize_fp4_e4m3(x, n, codes, scales);
}
void dequantize_fp8(const e4m3* codes, const e8m0* scales, int64_t n, bf16* x, Isa isa) {
  cpu::v41_kernels(isa).dequantize_fp8(codes, scales, n, x);
}
void dequantize_fp4_e8m0(const uint8_t* codes, const e8m0* scales, int64_t n, bf16* x, Isa isa) {
  cpu::v41_kernels(isa).dequantize_fp4_e8m0(codes, scales, n, x);
}
void dequantize_fp4_e4m3(const uint8_t* codes, const e4m3* scales, int64_t n, bf16* x, Isa isa) {
  cpu::v41_kernels(isa).dequantize_fp4_e4m3(codes, scales, n, x);
}
void round_to_fp8(const float* x, int64_t n, bf16* out, Isa isa) {
  DCHECK(n % 32 == 0);
  cpu::v41_kernels(isa).round_to_fp8(x, n, out);
}
void round_to_bf16(const float* x, int64_t n, bf16* out, Isa isa) { cpu::v41_kernels(isa).round_to_bf16(x, n, out); }

}  // namespace deepinfer
