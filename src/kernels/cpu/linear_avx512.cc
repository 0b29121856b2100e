#include "kernels/cpu/linear_kernels.h"

namespace deepinfer::cpu {
const Kernels* avx512_kernels() { return nullptr; }
}  // namespace deepinfer::cpu
