// Vec: the widest float vector of the translation unit's instruction set, so that one kernel template serves AVX-512, AVX2 and the
// portable build. Include it only in files that are compiled for one instruction set (foo_avx2.cc) and in their *_impl.h; all
// of it has internal linkage, or the linker could merge code of one instruction set into another's.
// Every operation is lane-wise except the reductions, whose order is fixed. fma rounds once where the machine has the
// instruction and twice where not: bits agree within an instruction set, not between them.
#pragma once

#include <cstdint>
#include <cstring>
#include <utility>

#if defined(__AVX2__)
// g++ 12's own headers initialise undefined vectors with themselves and then warn of it (GCC bug 105593).
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>
#pragma GCC diagnostic pop
#endif

#define DI_INLINE inline __attribute__((always_inline))

namespace deepinfer {
namespace {

#if defined(__AVX512F__)

struct Vec {
  static constexpr int kLanes = 16;
  using F = __m512;
  using I = __m512i;
  static DI_INLINE F zero() { return _mm512_setzero_ps(); }
  static DI_INLINE F set1(float x) { return _mm512_set1_ps(x); }
  static DI_INLINE F load(const float* p) { return _mm512_loadu_ps(p); }
  static DI_INLINE void store(float* p, F x) { _mm512_storeu_ps(p, x); }
  static DI_INLINE F load_first(const float* p, int n) { return _mm512_maskz_loadu_ps(static_cast<__mmask16>((1u << n) - 1), p); }
  static DI_INLINE void store_first(float* p, int n, F x) { _mm512_mask_storeu_ps(p, static_cast<__mmask16>((1u << n) - 1), x); }
  static DI_INLINE F add(F a, F b) { return _mm512_add_ps(a, b); }
  static DI_INLINE F sub(F a, F b) { return _mm512_sub_ps(a, b); }
  static DI_INLINE F mul(F a, F b) { return _mm512_mul_ps(a, b); }
  static DI_INLINE F div(F a, F b) { return _mm512_div_ps(a, b); }
  static DI_INLINE F max(F a, F b) { return _mm512_max_ps(a, b); }
  static DI_INLINE F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
  static DI_INLINE F abs(F a) { return _mm512_abs_ps(a); }
  static DI_INLINE F round(F a) { return _mm512_roundscale_ps(a, 0); }
  // a * 2^n where x >= -126, else 0; n integral, in -126..127 where it counts.
  static DI_INLINE F times_pow2_or_zero(F a, F n, F x) {
    return _mm512_maskz_scalef_ps(_mm512_cmp_ps_mask(x, _mm512_set1_ps(-126.0f), _CMP_GE_OQ), a, n);
  }
  static DI_INLINE F if_negative(F x, F then, F otherwise) {
    return _mm512_mask_mov_ps(otherwise, _mm512_movepi32_mask(_mm512_castps_si512(x)), then);
  }
  static DI_INLINE float sum(F a) { return _mm512_reduce_add_ps(a); }
  static DI_INLINE float largest(F a) { return _mm512_reduce_max_ps(a); }
  // Four sums at once, in an order of their own.
  static DI_INLINE __m128 sums(F a, F b, F c, F d) {
    const F ab = _mm512_add_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b)), cd = _mm512_add_ps(_mm512_unpacklo_ps(c, d), _mm512_unpackhi_ps(c, d));
    const __m512d low = _mm512_unpacklo_pd(_mm512_castps_pd(ab), _mm512_castps_pd(cd)), high = _mm512_unpackhi_pd(_mm512_castps_pd(ab), _mm512_castps_pd(cd));
    const F all = _mm512_add_ps(_mm512_castpd_ps(low), _mm512_castpd_ps(high));
    const __m256 half = _mm256_add_ps(_mm512_castps512_ps256(all), _mm512_extractf32x8_ps(all, 1));
    return _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
  }
  static DI_INLINE void store_sums(float* p, F a, F b, F c, F d) { _mm_storeu_ps(p, sums(a, b, c, d)); }
  static DI_INLINE I load_int(const void* p) { return _mm512_loadu_si512(p); }
  static DI_INLINE F as_float(I x) { return _mm512_castsi512_ps(x); }
  static DI_INLINE F low_bf16(I x) { return _mm512_castsi512_ps(_mm512_slli_epi32(x, 16)); }
  static DI_INLINE F high_bf16(I x) { return _mm512_castsi512_ps(_mm512_and_si512(x, _mm512_set1_epi32(static_cast<int>(0xffff0000u)))); }
  template <int N>
  static DI_INLINE F byte(I x) {  // signed byte N of every lane
    return _mm512_cvtepi32_ps(_mm512_srai_epi32(_mm512_slli_epi32(x, 24 - 8 * N), 24));
  }
  // kLanes consecutive bf16 numbers; storing cuts the low halves off, so the numbers are bf16 ones already.
  static DI_INLINE F load_bf16(const void* p) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256(static_cast<const __m256i*>(p))), 16));
  }
  static DI_INLINE void store_bf16(void* p, F x) {
    _mm256_storeu_si256(static_cast<__m256i*>(p), _mm512_cvtepi32_epi16(_mm512_srli_epi32(_mm512_castps_si512(x), 16)));
  }
  // Every lane rounded to a bf16 number, ties to even; NaN stays one. In integers: the conversion instruction flushes subnormals.
  static DI_INLINE F round_bf16(F x) {
    const __m512i bits = _mm512_castps_si512(x), odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const __m512i rounded = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
    const __m512i kept = _mm512_mask_or_epi32(rounded, _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), bits, _mm512_set1_epi32(0x400000));
    return _mm512_castsi512_ps(_mm512_and_si512(kept, _mm512_set1_epi32(static_cast<int>(0xffff0000u))));
  }
};

#elif defined(__AVX2__)

struct Vec {
  static constexpr int kLanes = 8;
  using F = __m256;
  using I = __m256i;
  static DI_INLINE F zero() { return _mm256_setzero_ps(); }
  static DI_INLINE F set1(float x) { return _mm256_set1_ps(x); }
  static DI_INLINE F load(const float* p) { return _mm256_loadu_ps(p); }
  static DI_INLINE void store(float* p, F x) { _mm256_storeu_ps(p, x); }
  static DI_INLINE I first(int n) { return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7)); }
  static DI_INLINE F load_first(const float* p, int n) { return _mm256_maskload_ps(p, first(n)); }
  static DI_INLINE void store_first(float* p, int n, F x) { _mm256_maskstore_ps(p, first(n), x); }
  static DI_INLINE F add(F a, F b) { return _mm256_add_ps(a, b); }
  static DI_INLINE F sub(F a, F b) { return _mm256_sub_ps(a, b); }
  static DI_INLINE F mul(F a, F b) { return _mm256_mul_ps(a, b); }
  static DI_INLINE F div(F a, F b) { return _mm256_div_ps(a, b); }
  static DI_INLINE F max(F a, F b) { return _mm256_max_ps(a, b); }
  static DI_INLINE F fma(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }
  static DI_INLINE F abs(F a) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a); }
  static DI_INLINE F round(F a) { return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
  static DI_INLINE F times_pow2_or_zero(F a, F n, F x) {
    const I exponent = _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23);
    const F inside = _mm256_cmp_ps(x, _mm256_set1_ps(-126.0f), _CMP_GE_OQ);
    return _mm256_and_ps(inside, _mm256_mul_ps(a, _mm256_castsi256_ps(exponent)));
  }
  static DI_INLINE F if_negative(F x, F then, F otherwise) { return _mm256_blendv_ps(otherwise, then, x); }
  static DI_INLINE float sum(F a) {
    __m128 x = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    x = _mm_add_ps(x, _mm_movehl_ps(x, x));
    return _mm_cvtss_f32(_mm_add_ss(x, _mm_movehdup_ps(x)));
  }
  static DI_INLINE float largest(F a) {
    __m128 x = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    x = _mm_max_ps(x, _mm_movehl_ps(x, x));
    return _mm_cvtss_f32(_mm_max_ss(x, _mm_movehdup_ps(x)));
  }
  static DI_INLINE void store_sums(float* p, F a, F b, F c, F d) {
    const F all = _mm256_hadd_ps(_mm256_hadd_ps(a, b), _mm256_hadd_ps(c, d));
    _mm_storeu_ps(p, _mm_add_ps(_mm256_castps256_ps128(all), _mm256_extractf128_ps(all, 1)));
  }
  static DI_INLINE I load_int(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
  static DI_INLINE F as_float(I x) { return _mm256_castsi256_ps(x); }
  static DI_INLINE F low_bf16(I x) { return _mm256_castsi256_ps(_mm256_slli_epi32(x, 16)); }
  static DI_INLINE F high_bf16(I x) { return _mm256_castsi256_ps(_mm256_and_si256(x, _mm256_set1_epi32(static_cast<int>(0xffff0000u)))); }
  template <int N>
  static DI_INLINE F byte(I x) {
    return _mm256_cvtepi32_ps(_mm256_srai_epi32(_mm256_slli_epi32(x, 24 - 8 * N), 24));
  }
  static DI_INLINE F load_bf16(const void* p) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128(static_cast<const __m128i*>(p))), 16));
  }
  static DI_INLINE void store_bf16(void* p, F x) {
    const I high = _mm256_srli_epi32(_mm256_castps_si256(x), 16);
    const I packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(high, high), 0x08);
    _mm_storeu_si128(static_cast<__m128i*>(p), _mm256_castsi256_si128(packed));
  }
  static DI_INLINE F round_bf16(F x) {
    const I bits = _mm256_castps_si256(x), odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const I rounded = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
    const I nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    const I kept = _mm256_blendv_epi8(rounded, _mm256_or_si256(bits, _mm256_set1_epi32(0x400000)), nan);
    return _mm256_castsi256_ps(_mm256_and_si256(kept, _mm256_set1_epi32(static_cast<int>(0xffff0000u))));
  }
};

#else

struct Vec {
  static constexpr int kLanes = 4;
  using F = float __attribute__((vector_size(16)));
  using I = int32_t __attribute__((vector_size(16)));
  static DI_INLINE F zero() { return F{}; }
  static DI_INLINE F set1(float x) { return F{x, x, x, x}; }
  static DI_INLINE F load(const float* p) {
    F x;
    std::memcpy(&x, p, sizeof(x));
    return x;
  }
  static DI_INLINE void store(float* p, F x) { std::memcpy(p, &x, sizeof(x)); }
  static DI_INLINE F load_first(const float* p, int n) {
    F x{};
    std::memcpy(&x, p, sizeof(float) * static_cast<size_t>(n));
    return x;
  }
  static DI_INLINE void store_first(float* p, int n, F x) { std::memcpy(p, &x, sizeof(float) * static_cast<size_t>(n)); }
  static DI_INLINE F add(F a, F b) { return a + b; }
  static DI_INLINE F sub(F a, F b) { return a - b; }
  static DI_INLINE F mul(F a, F b) { return a * b; }
  static DI_INLINE F div(F a, F b) { return a / b; }
  static DI_INLINE F max(F a, F b) { return a > b ? a : b; }
  static DI_INLINE F fma(F a, F b, F c) { return a * b + c; }
  static DI_INLINE F abs(F a) { return (F)((I)a & I{0x7fffffff, 0x7fffffff, 0x7fffffff, 0x7fffffff}); }
  static DI_INLINE F round(F a) {  // |a| < 2^22: adding 1.5 * 2^23 leaves no fraction bits, so the FPU rounds there
    const F magic = set1(12582912.0f);
    return (a + magic) - magic;
  }
  static DI_INLINE F times_pow2_or_zero(F a, F n, F x) {
    const I inside = x >= set1(-126.0f);
    const I exponent = (__builtin_convertvector((F)((I)n & inside), I) + 127) << 23;  // masked first: converting -inf is undefined
    return (F)((I)(a * (F)exponent) & inside);
  }
  static DI_INLINE F if_negative(F x, F then, F otherwise) { return (I)x < 0 ? then : otherwise; }
  static DI_INLINE float sum(F a) { return (a[0] + a[2]) + (a[1] + a[3]); }
  static DI_INLINE void store_sums(float* p, F a, F b, F c, F d) { p[0] = sum(a), p[1] = sum(b), p[2] = sum(c), p[3] = sum(d); }
  static DI_INLINE float largest(F a) {
    const float x = a[0] > a[2] ? a[0] : a[2], y = a[1] > a[3] ? a[1] : a[3];
    return x > y ? x : y;
  }
  static DI_INLINE I load_int(const void* p) {
    I x;
    std::memcpy(&x, p, sizeof(x));
    return x;
  }
  static DI_INLINE F as_float(I x) { return (F)x; }
  static DI_INLINE F low_bf16(I x) { return (F)(x << 16); }
  static DI_INLINE F high_bf16(I x) { return (F)(x & static_cast<int32_t>(0xffff0000u)); }
  template <int N>
  static DI_INLINE F byte(I x) {
    return __builtin_convertvector((x << (24 - 8 * N)) >> 24, F);
  }
  static DI_INLINE F load_bf16(const void* p) {
    uint16_t h[4];
    std::memcpy(h, p, sizeof h);
    return (F)(I{h[0], h[1], h[2], h[3]} << 16);
  }
  static DI_INLINE void store_bf16(void* p, F x) {
    const I bits = (I)x;
    const uint16_t h[4] = {static_cast<uint16_t>(static_cast<uint32_t>(bits[0]) >> 16), static_cast<uint16_t>(static_cast<uint32_t>(bits[1]) >> 16),
                           static_cast<uint16_t>(static_cast<uint32_t>(bits[2]) >> 16), static_cast<uint16_t>(static_cast<uint32_t>(bits[3]) >> 16)};
    std::memcpy(p, h, sizeof h);
  }
  static DI_INLINE F round_bf16(F x) {
    const I bits = (I)x, nan = (bits & 0x7fffffff) > 0x7f800000;
    const I rounded = bits + 0x7fff + ((bits >> 16) & 1);
    return (F)(((rounded & ~nan) | ((bits | 0x400000) & nan)) & static_cast<int32_t>(0xffff0000u));
  }
};

#endif

// Calls f(integral_constant<int, 0>) … f(<N - 1>). g++ 12 keeps an array of accumulators in memory if an ordinary loop indexes it,
// even an unrolled one; constants keep it in registers.
template <int N, class Fn>
DI_INLINE void each(Fn f) {
  [&]<int... I>(std::integer_sequence<int, I...>) __attribute__((always_inline)) {
    (f(std::integral_constant<int, I>()), ...);
  }(std::make_integer_sequence<int, N>());
}

// 2^x for x <= 127, and 0 for x < -126 and NaN. Degree 6: relative error 1e-7; degree 3: 7.5e-5, for results that are rounded to
// bf16 (2e-3) anyway. The polynomials minimise the relative error on [-1/2, 1/2] (Remez).
template <int Degree>
DI_INLINE Vec::F exp2_vec(Vec::F x) {
  constexpr float kDegree3[] = {0.999928057f, 0.693260968f, 0.242611125f, 0.0551716685f};
  constexpr float kDegree6[] = {1.0f, 0.693147182f, 0.240226462f, 0.0555032864f, 0.00961848907f, 0.00133999309f, 0.000153458124f};
  static_assert(Degree == 3 || Degree == 6);
  const Vec::F n = Vec::round(x);
  const Vec::F r = Vec::sub(x, n);
  const auto coefficient = [&](int i) { return Vec::set1(Degree == 3 ? kDegree3[i] : kDegree6[i]); };
  Vec::F p = coefficient(Degree);
  each<Degree>([&](auto i) __attribute__((always_inline)) { p = Vec::fma(p, r, coefficient(Degree - 1 - i)); });
  return Vec::times_pow2_or_zero(p, n, x);
}

// e^x for x <= 0, relative error 1e-7; 0 for x < -87 and NaN. ln 2 is taken off in two parts, the first with so few bits that its multiples
// are exact: rounding x * log2(e) alone would cost |x| times as much.
DI_INLINE Vec::F exp_vec(Vec::F x) {
  const Vec::F scaled = Vec::mul(x, Vec::set1(1.44269504f)), n = Vec::round(scaled);
  const Vec::F r = Vec::sub(Vec::sub(x, Vec::mul(n, Vec::set1(0.693359375f))), Vec::mul(n, Vec::set1(-2.12194440e-4f)));
  constexpr float kTaylor[] = {1.0f / 5040, 1.0f / 720, 1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f, 1.0f, 1.0f};  // |r| <= ln(2) / 2
  Vec::F p = Vec::set1(kTaylor[0]);
  each<7>([&](auto i) __attribute__((always_inline)) { p = Vec::fma(p, r, Vec::set1(kTaylor[i + 1])); });
  return Vec::times_pow2_or_zero(p, n, scaled);
}

}  // namespace
}  // namespace deepinfer
