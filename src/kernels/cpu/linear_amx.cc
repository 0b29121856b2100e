#include "kernels/cpu/linear_kernels.h"

namespace deepinfer::cpu {
const Kernels* amx_kernels() { return nullptr; }
}  // namespace deepinfer::cpu
