// AVX2 without VNNI.
#include "kernels/cpu/linear_kernels.h"

#if defined(__x86_64__)
#include "kernels/cpu/avx2_kernels.h"

namespace deepinfer::cpu {
const Kernels* avx2_kernels() { return &kAvx2Table<false>; }
}  // namespace deepinfer::cpu
#else
namespace deepinfer::cpu {
const Kernels* avx2_kernels() { return nullptr; }
}  // namespace deepinfer::cpu
#endif
