#if defined(__x86_64__)
#include <immintrin.h>

#include "kernels/roof.h"

namespace deepinfer::cpu {
namespace {

double int8(int64_t iterations) {
  __m256i sum[12] = {};
  const __m256i x = _mm256_set1_epi8(3), y = _mm256_set1_epi8(5);
  for (int64_t n = 0; n < iterations; ++n)
    for (__m256i& s : sum) asm volatile("%{vex%} vpdpbusd %1, %2, %0" : "+x"(s) : "x"(x), "x"(y));
  return 64.0 * 12 * static_cast<double>(iterations);
}

}  // namespace

RoofLoops roof_loops_avxvnni() { return {roof_loops_avx2().read, int8, roof_loops_avx2().bf16}; }

}  // namespace deepinfer::cpu
#endif
