#if defined(__x86_64__)
#include "kernels/cpu/block_linear_f32_impl.h"

namespace deepinfer::cpu {

const BlockLinearKernels& block_linear_avx512f() { return kBlockLinear; }

}  // namespace deepinfer::cpu
#endif
