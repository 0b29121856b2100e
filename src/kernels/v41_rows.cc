#include "kernels/v41_rows.h"

#include "base/check.h"
#include "kernels/cpu/v41_kernels.h"

namespace deepinfer {

const cpu::V41Kernels& cpu::v41_kernels(Isa isa) {
  switch (isa) {
#if defined(__x86_64__)
    case Isa::kAvx2:
    case Isa::kAvxVnni: return v41_kernels_avx2();
    case Isa::kAvx512f: return v41_kernels_avx512f();
    case Isa::kAvx512:
    case Isa::kAmx: return v41_kernels_avx512();
#endif
    default: return v41_kernels_portable();
  }
}

void v41_norm(const float* x, const bf16* w, int64_t n, float eps, float* out, Isa isa) { cpu::v41_kernels(isa).norm_row(x, w, n, eps, out); }

void v41_swiglu(const SwigluParams& p, Isa isa) {
  DCHECK(p.n % 32 == 0);
  cpu::v41_kernels(isa).swiglu_row(p);
}

}  // namespace deepinfer
