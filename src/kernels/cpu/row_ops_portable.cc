#include "kernels/cpu/row_ops_impl.h"

namespace deepinfer::cpu {

void rms_norm_portable(const RmsNormParams& p) { rms_norm_impl(p); }
void silu_mul_portable(const SiluMulParams& p) { silu_mul_impl(p); }
void rope_portable(const RopeParams& p) { rope_impl(p); }

}  // namespace deepinfer::cpu
