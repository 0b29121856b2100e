#if defined(__x86_64__)
#include <immintrin.h>

#include "kernels/roof.h"

namespace deepinfer::cpu {
namespace {

void read(const std::byte* data, int64_t num_bytes) {
  __m256i sum[8] = {};
  for (int64_t at = 0; at < num_bytes; at += 256)
    for (int i = 0; i < 8; ++i) sum[i] = _mm256_xor_si256(sum[i], _mm256_loadu_si256(reinterpret_cast<const __m256i*>(data + at) + i));
  for (int i = 1; i < 8; ++i) sum[0] = _mm256_xor_si256(sum[0], sum[i]);
  asm volatile("" : : "x"(sum[0]));
}

// Without VNNI a product of 8-bit numbers takes three instructions.
double int8(int64_t iterations) {
  __m256i sum[8] = {};
  const __m256i x = _mm256_set1_epi8(3), y = _mm256_set1_epi8(5), one = _mm256_set1_epi16(1);
  for (int64_t n = 0; n < iterations; ++n) {
    for (__m256i& s : sum) {
      __m256i product;
      asm volatile("vpmaddubsw %2, %3, %1\n vpmaddwd %4, %1, %1\n vpaddd %1, %0, %0" : "+x"(s), "=&x"(product) : "x"(x), "x"(y), "x"(one));
    }
  }
  return 64.0 * 8 * static_cast<double>(iterations);
}

double bf16(int64_t iterations) {
  __m256 sum[12] = {};
  const __m256 x = _mm256_set1_ps(1.5f), y = _mm256_set1_ps(0.5f);
  for (int64_t n = 0; n < iterations; ++n)
    for (__m256& s : sum) asm volatile("vfmadd231ps %1, %2, %0" : "+x"(s) : "x"(x), "x"(y));
  return 16.0 * 12 * static_cast<double>(iterations);
}

}  // namespace

RoofLoops roof_loops_avx2() { return {read, int8, bf16}; }

}  // namespace deepinfer::cpu
#endif
