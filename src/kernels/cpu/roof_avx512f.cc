#if defined(__x86_64__)
#include <immintrin.h>

#include "kernels/roof.h"

namespace deepinfer::cpu {
namespace {

double bf16(int64_t iterations) {
  __m512 sum[12] = {};
  const __m512 x = _mm512_set1_ps(1.5f), y = _mm512_set1_ps(0.5f);
  for (int64_t n = 0; n < iterations; ++n)
    for (__m512& s : sum) asm volatile("vfmadd231ps %1, %2, %0" : "+v"(s) : "v"(x), "v"(y));
  return 32.0 * 12 * static_cast<double>(iterations);
}

}  // namespace

RoofLoops roof_loops_avx512f() { return {roof_loops_avx2().read, roof_loops_avx2().int8, bf16}; }

}  // namespace deepinfer::cpu
#endif
