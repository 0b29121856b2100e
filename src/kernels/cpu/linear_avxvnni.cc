#include "kernels/cpu/linear_kernels.h"

namespace deepinfer::cpu {
const Kernels* avxvnni_kernels() { return nullptr; }
}  // namespace deepinfer::cpu
