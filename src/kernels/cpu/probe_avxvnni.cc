#include "kernels/cpu/probe_kernels.h"

#if defined(__x86_64__)
#include <immintrin.h>

#include "kernels/cpu/tiles.h"

namespace deepinfer::cpu {
namespace {

constexpr int kChains = 12;

void int8(int64_t iterations) {
  __m256i sum[kChains];
  each<kChains>([&](auto i) DI_INLINE { sum[i] = _mm256_setzero_si256(); });
  const __m256i x = _mm256_set1_epi8(3), y = _mm256_set1_epi8(5);
  for (int64_t n = 0; n < iterations; ++n) {
    each<kChains>([&](auto i) DI_INLINE { asm volatile("%{vex%} vpdpbusd %1, %2, %0" : "+x"(sum[i]) : "x"(x), "x"(y)); });
  }
}

}  // namespace

Peaks avxvnni_peaks() { return {.int8 = {int8, kChains * 64.0}, .bf16 = {}, .f32 = avx2_peaks().f32}; }

}  // namespace deepinfer::cpu
#else
namespace deepinfer::cpu {
Peaks avxvnni_peaks() { return {}; }
}  // namespace deepinfer::cpu
#endif
