// AVX2 with 256-bit VNNI (AVX-VNNI).
#include "kernels/cpu/linear_kernels.h"

#if defined(__x86_64__)
#include "kernels/cpu/avx2_kernels.h"

namespace deepinfer::cpu {
const Kernels* avxvnni_kernels() { return &kAvx2Table<true>; }
}  // namespace deepinfer::cpu
#else
namespace deepinfer::cpu {
const Kernels* avxvnni_kernels() { return nullptr; }
}  // namespace deepinfer::cpu
#endif
