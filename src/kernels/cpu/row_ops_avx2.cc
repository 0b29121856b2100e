#include "kernels/cpu/row_ops_impl.h"

namespace deepinfer::cpu {

void rms_norm_avx2(const RmsNormParams& p) { rms_norm_impl(p); }
void silu_mul_avx2(const SiluMulParams& p) { silu_mul_impl(p); }
void rope_avx2(const RopeParams& p) { rope_impl(p); }

}  // namespace deepinfer::cpu
