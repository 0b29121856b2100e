#include "kernels/cpu/linear_kernels.h"

namespace deepinfer::cpu {
const Kernels* avx2_kernels() { return nullptr; }
}  // namespace deepinfer::cpu
