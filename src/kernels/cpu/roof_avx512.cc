#if defined(__x86_64__)
#include <immintrin.h>

#include "kernels/linear.h"
#include "kernels/roof.h"

namespace deepinfer::cpu {
namespace {

void read(const std::byte* data, int64_t num_bytes) {
  __m512i sum[8] = {};
  for (int64_t at = 0; at < num_bytes; at += 512)
    for (int i = 0; i < 8; ++i) sum[i] = _mm512_xor_si512(sum[i], _mm512_loadu_si512(data + at + 64 * i));
  for (int i = 1; i < 8; ++i) sum[0] = _mm512_xor_si512(sum[0], sum[i]);
  asm volatile("" : : "v"(sum[0]));
}

// Sixteen independent sums hide the latency; asm keeps the compiler from folding them.
double int8(int64_t iterations) {
  __m512i sum[16] = {};
  const __m512i x = _mm512_set1_epi8(3), y = _mm512_set1_epi8(5);
  for (int64_t n = 0; n < iterations; ++n)
    for (__m512i& s : sum) asm volatile("vpdpbusd %1, %2, %0" : "+v"(s) : "v"(x), "v"(y));
  return 128.0 * 16 * static_cast<double>(iterations);
}

double bf16_pairs(int64_t iterations) {
  __m512 sum[16] = {};
  const __m512i x = _mm512_set1_epi16(0x3f80), y = _mm512_set1_epi16(0x2f80);
  for (int64_t n = 0; n < iterations; ++n)
    for (__m512& s : sum) asm volatile("vdpbf16ps %1, %2, %0" : "+v"(s) : "v"(x), "v"(y));
  return 64.0 * 16 * static_cast<double>(iterations);
}

}  // namespace

RoofLoops roof_loops_avx512() { return {read, int8, has_slow_bf16_pairs() ? roof_loops_avx512f().bf16 : bf16_pairs}; }

}  // namespace deepinfer::cpu
#endif
