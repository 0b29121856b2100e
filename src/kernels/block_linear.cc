// The products of block_linear.h: which version runs.
#include "kernels/block_linear.h"

#include "base/check.h"
#include "kernels/cpu/block_linear_kernels.h"

namespace deepinfer {
namespace {

// Whether the version for an instruction set that has dot products of bf16 pairs does without them.
bool pairs_as_f32(Isa isa) { return (isa == Isa::kAvx512 || isa == Isa::kAmx) && has_slow_bf16_pairs(); }

const cpu::BlockLinearKernels& kernels_of(Isa isa) {
  switch (isa) {
#if defined(__x86_64__)
    case Isa::kAvx2:
    case Isa::kAvxVnni: return cpu::block_linear_avx2();
    case Isa::kAvx512f: return cpu::block_linear_avx512f();
    case Isa::kAvx512:
    case Isa::kAmx: return pairs_as_f32(isa) ? cpu::block_linear_f32_avx512() : cpu::block_linear_avx512();
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

std::string block_linear_version(Isa isa) {
  const bool avx2 = isa == Isa::kAvx2 || isa == Isa::kAvxVnni;
  return std::string(isa_name(isa)) + (pairs_as_f32(isa) ? "-f32" : avx2 ? "-2" : "");
}

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
