#include "kernels/cpu/row_ops_impl.h"

namespace deepinfer::cpu {

void rms_norm_avx512(const RmsNormParams& p) { rms_norm_impl(p); }
void silu_mul_avx512(const SiluMulParams& p) { silu_mul_impl(p); }
void rope_avx512(const RopeParams& p) { rope_impl(p); }

}  // namespace deepinfer::cpu
