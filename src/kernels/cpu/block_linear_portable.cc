#include "kernels/cpu/block_linear_impl.h"

namespace deepinfer::cpu {

const BlockLinearKernels& block_linear_portable() { return kBlockLinear; }

}  // namespace deepinfer::cpu
