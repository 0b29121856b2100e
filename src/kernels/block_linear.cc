// The products of block_linear.h: which version runs.
#include "kernels/block_linear.h"

#include "base/check.h"
#include "kernels/cpu/block_linear_kernels.h"

namespace deepinfer {
namespace {

#if defined(__x86_64__)
// Dot products of bf16 pairs are one operation on AMD's processors and four on Intel's, where two multiply-adds do the same.
const cpu::BlockLinearKernels& avx512_kernels() {
  static const bool is_intel = __builtin_cpu_is("intel");
  return is_intel ? cpu::block_linear_f32_avx512() : cpu::block_linear_avx512();
}
#endif

const cpu::BlockLinearKernels& kernels_of(Isa isa) {
  switch (isa) {
#if defined(__x86_64__)
    case Isa::kAvx2:
    case Isa::kAvxVnni: return cpu::block_linear_avx2();
    case Isa::kAvx512f: return cpu::block_linear_avx512f();
    case Isa::kAvx512:
    case Isa::kAmx: return avx512_kernels();
#endif
    default: return cpu::block_linear_portable();
  }
}

template <class Matrix>
void check(const Matrix& w, int64_t begin, int64_t end) {
  DCHECK(w.cols <= kMaxProductCols);
  DCHECK(begin % kProductUnit == 0);
  DCHECK(end <= w.rows);
}

}  // namespace

void linear(const Bf16Rows& x, const Fp8Matrix& w, int64_t begin, int64_t end, const ProductOut& out, Isa isa) {
  check(w, begin, end);
  kernels_of(isa).fp8(x, w, begin, end, out);
}
void linear(const Bf16Rows& x, const Fp4Matrix& w, int64_t begin, int64_t end, const ProductOut& out, Isa isa) {
  check(w, begin, end);
  kernels_of(isa).fp4(x, w, begin, end, out);
}
void linear(const Bf16Rows& x, const Bf16Matrix& w, int64_t begin, int64_t end, const ProductOut& out, Isa isa) {
  check(w, begin, end);
  kernels_of(isa).bf16(x, w, begin, end, out);
}

}  // namespace deepinfer
