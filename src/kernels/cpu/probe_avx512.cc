#include "kernels/cpu/probe_kernels.h"

#if defined(__x86_64__)
#include <immintrin.h>

#include "kernels/cpu/tiles.h"

namespace deepinfer::cpu {
namespace {

constexpr int kChains = 16;

void f32(int64_t iterations) {
  __m512 sum[kChains];
  each<kChains>([&](auto i) DI_INLINE { sum[i] = _mm512_setzero_ps(); });
  const __m512 x = _mm512_set1_ps(1.0f), y = _mm512_set1_ps(1e-9f);
  for (int64_t n = 0; n < iterations; ++n) {
    each<kChains>([&](auto i) DI_INLINE { asm volatile("vfmadd231ps %1, %2, %0" : "+v"(sum[i]) : "v"(x), "v"(y)); });
  }
}

void bf16(int64_t iterations) {
  __m512 sum[kChains];
  each<kChains>([&](auto i) DI_INLINE { sum[i] = _mm512_setzero_ps(); });
  const __m512i x = _mm512_set1_epi16(0x3f80), y = _mm512_set1_epi16(0x2f80);
  for (int64_t n = 0; n < iterations; ++n) {
    each<kChains>([&](auto i) DI_INLINE { asm volatile("vdpbf16ps %1, %2, %0" : "+v"(sum[i]) : "v"(x), "v"(y)); });
  }
}

void int8(int64_t iterations) {
  __m512i sum[kChains];
  each<kChains>([&](auto i) DI_INLINE { sum[i] = _mm512_setzero_si512(); });
  const __m512i x = _mm512_set1_epi8(3), y = _mm512_set1_epi8(5);
  for (int64_t n = 0; n < iterations; ++n) {
    each<kChains>([&](auto i) DI_INLINE { asm volatile("vpdpbusd %1, %2, %0" : "+v"(sum[i]) : "v"(x), "v"(y)); });
  }
}

}  // namespace

Peaks avx512_peaks() {
  return {.int8 = {int8, kChains * 128.0}, .bf16 = {bf16, kChains * 64.0}, .f32 = {f32, kChains * 32.0}};
}

}  // namespace deepinfer::cpu
#else
namespace deepinfer::cpu {
Peaks avx512_peaks() { return {}; }
}  // namespace deepinfer::cpu
#endif
