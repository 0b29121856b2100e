#include "kernels/cpu/probe_kernels.h"

#if defined(__x86_64__)
#include <immintrin.h>

#include "kernels/cpu/tiles.h"

namespace deepinfer::cpu {
namespace {

constexpr int kChains = 12;  // independent sums: more than latency times throughput, fewer than registers

void f32(int64_t iterations) {
  __m256 sum[kChains];
  each<kChains>([&](auto i) DI_INLINE { sum[i] = _mm256_setzero_ps(); });
  const __m256 x = _mm256_set1_ps(1.0f), y = _mm256_set1_ps(1e-9f);
  for (int64_t n = 0; n < iterations; ++n) {
    each<kChains>([&](auto i) DI_INLINE { asm volatile("vfmadd231ps %1, %2, %0" : "+x"(sum[i]) : "x"(x), "x"(y)); });
  }
}

void int8(int64_t iterations) {  // bytes to pairs, pairs to quads, add
  __m256i sum[kChains];
  each<kChains>([&](auto i) DI_INLINE { sum[i] = _mm256_setzero_si256(); });
  const __m256i x = _mm256_set1_epi8(3), y = _mm256_set1_epi8(5), one = _mm256_set1_epi16(1);
  for (int64_t n = 0; n < iterations; ++n) {
    each<kChains>([&](auto i) DI_INLINE {
      __m256i t;
      asm volatile("vpmaddubsw %2, %3, %1\n vpmaddwd %4, %1, %1\n vpaddd %1, %0, %0" : "+x"(sum[i]), "=&x"(t) : "x"(x), "x"(y), "x"(one));
    });
  }
}

}  // namespace

Peaks avx2_peaks() { return {.int8 = {int8, kChains * 64.0}, .bf16 = {}, .f32 = {f32, kChains * 16.0}}; }

}  // namespace deepinfer::cpu
#else
namespace deepinfer::cpu {
Peaks avx2_peaks() { return {}; }
}  // namespace deepinfer::cpu
#endif
