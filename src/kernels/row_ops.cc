// The operations on single rows: which version runs.
#include <cmath>

#include "base/check.h"
#include "kernels/rms_norm.h"
#include "kernels/rope.h"
#include "kernels/silu_mul.h"

namespace deepinfer {

// The row operations have three versions: what AVX-VNNI and AMX add does not concern them.
#define DI_CALL_FOR_ISA(function, isa, params)         \
  switch (isa) {                                       \
    case Isa::kPortable: return cpu::function##_portable(params); \
    case Isa::kAvx2:                                   \
    case Isa::kAvxVnni:                                \
    case Isa::kAvx512f: return cpu::function##_avx2(params);      \
    case Isa::kAvx512:                                 \
    case Isa::kAmx: return cpu::function##_avx512(params);        \
  }

void rms_norm(const RmsNormParams& p, Isa isa) {
  DCHECK(p.cols > 0);
  DI_CALL_FOR_ISA(rms_norm, isa, p)
}
void silu_mul(const SiluMulParams& p, Isa isa) { DI_CALL_FOR_ISA(silu_mul, isa, p) }
void rope(const RopeParams& p, Isa isa) {
  DCHECK(p.head_dim % 2 == 0);
  DI_CALL_FOR_ISA(rope, isa, p)
}

void rope_angles(int64_t position, std::span<const double> frequencies, double magnitude, float* cos_sin) {
  float* sine = cos_sin + frequencies.size();
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const double angle = static_cast<double>(position) * frequencies[i];
    cos_sin[i] = static_cast<float>(std::cos(angle) * magnitude);
    sine[i] = static_cast<float>(std::sin(angle) * magnitude);
  }
}

}  // namespace deepinfer
