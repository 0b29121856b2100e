// Norm, SwiGLU, Engram gate and hyper-connections over Vec: included by v41_<isa>.cc, which compile it for their instruction set.
#pragma once

#include "kernels/cpu/block_quantize_impl.h"
#include "kernels/engram_gate.h"
#include "kernels/hyper_connection.h"
#include "kernels/v41_rows.h"

namespace deepinfer {
namespace {

// f(i, n) for every run of n <= kLanes numbers of [0, count).
template <class Fn>
DI_INLINE void each_run(int64_t begin, int64_t end, Fn f) {
  int64_t i = begin;
  for (; i + Vec::kLanes <= end; i += Vec::kLanes) f(i, std::integral_constant<int, Vec::kLanes>());
  if (i < end) f(i, static_cast<int>(end - i));
}
DI_INLINE Vec::F load_run(const float* p, std::integral_constant<int, Vec::kLanes>) { return Vec::load(p); }
DI_INLINE Vec::F load_run(const float* p, int n) { return Vec::load_first(p, n); }
DI_INLINE void store_run(float* p, std::integral_constant<int, Vec::kLanes>, Vec::F x) { Vec::store(p, x); }
DI_INLINE void store_run(float* p, int n, Vec::F x) { Vec::store_first(p, n, x); }
DI_INLINE Vec::F load_run(const bf16* p, std::integral_constant<int, Vec::kLanes>) { return Vec::load_bf16(p); }
DI_INLINE Vec::F load_run(const bf16* p, int n) {
  uint16_t all[Vec::kLanes] = {};
  std::memcpy(all, p, static_cast<size_t>(n) * 2);
  return Vec::load_bf16(all);
}

// Four chains of partial sums: one would wait for its own additions.
template <int Chains, class Term>
DI_INLINE float chained_sum(int64_t n, Term term) {
  constexpr int64_t kStep = int64_t{Chains} * Vec::kLanes;
  Vec::F sum[Chains];
  each<Chains>([&](auto c) __attribute__((always_inline)) { sum[c] = Vec::zero(); });
  int64_t i = 0;
  for (; i + kStep <= n; i += kStep)
    each<Chains>([&](auto c) __attribute__((always_inline)) { sum[c] = term(i + c * Vec::kLanes, std::integral_constant<int, Vec::kLanes>(), sum[c]); });
  each_run(i, n, [&](int64_t at, auto count) __attribute__((always_inline)) { sum[0] = term(at, count, sum[0]); });
  each<Chains - 1>([&](auto c) __attribute__((always_inline)) { sum[0] = Vec::add(sum[0], sum[c + 1]); });
  return Vec::sum(sum[0]);
}

// Of bf16 numbers, whose squares are exact. One in some ten thousand of the numbers that a norm makes lies so near a tie of its rounding that the last bit
// of this sum decides: it has the order of the official code's library on every instruction set, 32 partial sums over every 32nd number,
// added to eight, then one after the other.
float sum_of_squares_impl(const float* v, int64_t n) {
  constexpr int kVectors = 32 / Vec::kLanes;
  Vec::F sum[kVectors];
  each<kVectors>([&](auto c) __attribute__((always_inline)) { sum[c] = Vec::zero(); });
  int64_t i = 0;
  for (; i + 32 <= n; i += 32) {
    each<kVectors>([&](auto c) __attribute__((always_inline)) {
      const Vec::F x = Vec::load(v + i + c * Vec::kLanes);
      sum[c] = Vec::fma(x, x, sum[c]);
    });
  }
  float parts[32], total = 0;
  each<kVectors>([&](auto c) __attribute__((always_inline)) { Vec::store(parts + c * Vec::kLanes, sum[c]); });
  for (; i + 8 <= n; i += 8)
    for (int j = 0; j < 8; ++j) parts[j] += v[i + j] * v[i + j];
  for (; i < n; ++i) total += v[i] * v[i];
  for (int j = 0; j < 8; ++j) total += parts[j] + parts[8 + j] + parts[16 + j] + parts[24 + j];
  return total;
}

void norm_row_impl(const float* x, const bf16* w, int64_t n, float eps, float* out) {
  const Vec::F scale = Vec::set1(1.0f / __builtin_sqrtf(sum_of_squares_impl(x, n) / static_cast<float>(n) + eps));
  each_run(0, n, [&](int64_t i, auto count) __attribute__((always_inline)) {
    store_run(out + i, count, Vec::round_bf16(Vec::mul(Vec::mul(load_run(x + i, count), scale), load_run(w + i, count))));
  });
}

// x / (1 + e^-x), NaN for NaN. Above x = -87 the divisor is a float; below, the result is nearly 0 and e^-|x| cannot overflow.
DI_INLINE Vec::F silu_vec(Vec::F x) {
  const Vec::F one = Vec::set1(1.0f), e = exp_vec(Vec::sub(Vec::zero(), Vec::abs(x)));
  return Vec::div(Vec::if_negative(x, Vec::mul(x, e), x), Vec::add(one, e));
}

DI_INLINE Vec::F min_vec(Vec::F a, Vec::F b) { return Vec::sub(Vec::zero(), Vec::max(Vec::sub(Vec::zero(), a), Vec::sub(Vec::zero(), b))); }

void swiglu_row_impl(const SwigluParams& p) {
  const Vec::F limit = Vec::set1(p.limit), low = Vec::set1(-p.limit), weight = Vec::set1(p.weight);
  for (int64_t b = 0; b < p.n; b += 32) {
    float block[32];
    for (int i = 0; i < 32; i += Vec::kLanes) {
      const Vec::F gate = Vec::load(p.gate + b + i), up = Vec::load(p.up + b + i);
      const Vec::F g = min_vec(limit, gate), u = min_vec(limit, Vec::max(low, up));  // a NaN in the second place stays
      Vec::store(block + i, Vec::round_bf16(Vec::mul(Vec::mul(silu_vec(g), u), weight)));
    }
    round_to_fp8_impl(block, 32, p.out + b);
  }
}

void engram_gate_impl(const EngramGateParams& p) {
  const float width = static_cast<float>(p.hidden);
  for (int stream = 0; stream < 4; ++stream) {
    float* x = p.streams + int64_t{stream} * p.hidden;
    const float* key = p.key + int64_t{stream} * p.hidden;
    const bf16* qw = p.q_weight + int64_t{stream} * p.hidden;
    const bf16* kw = p.k_weight + int64_t{stream} * p.hidden;
    float dot = chained_sum<2>(p.hidden, [&](int64_t i, auto count, Vec::F sum) __attribute__((always_inline)) {
      const Vec::F weighted = Vec::mul(Vec::mul(load_run(x + i, count), load_run(qw + i, count)), load_run(kw + i, count));
      return Vec::fma(weighted, load_run(key + i, count), sum);
    });
    const float x_rms = __builtin_sqrtf(sum_of_squares_impl(x, p.hidden) / width + p.eps);
    const float key_rms = __builtin_sqrtf(sum_of_squares_impl(key, p.hidden) / width + p.eps);
    dot *= 1.0f / x_rms * (1.0f / key_rms) / __builtin_sqrtf(width);
    const float size = float_of(bits_of(dot) & kMagnitude), root = __builtin_sqrtf(size < 1e-6f ? 1e-6f : size);
    const Vec::F z = Vec::set1(dot < 0 ? -root : root), one = Vec::set1(1.0f), e = exp_vec(Vec::sub(Vec::zero(), Vec::abs(z)));
    const Vec::F gate = Vec::div(Vec::if_negative(z, e, one), Vec::add(one, e));
    each_run(0, p.hidden, [&](int64_t i, auto count) __attribute__((always_inline)) {
      store_run(x + i, count, Vec::round_bf16(Vec::add(load_run(x + i, count), Vec::mul(gate, load_run(p.value + i, count)))));
    });
  }
}

// Doubles, as wide as the floats' vectors.
using Doubles = double __attribute__((vector_size(Vec::kLanes * 4)));
using HalfFloats = float __attribute__((vector_size(Vec::kLanes * 2)));
constexpr int kDoubles = Vec::kLanes / 2;
DI_INLINE Doubles load_doubles(const float* p) {
  HalfFloats x;
  std::memcpy(&x, p, sizeof x);
  return __builtin_convertvector(x, Doubles);
}

// a * b + c; products of floats are exact, so that fusing changes nothing.
DI_INLINE Doubles add_product(Doubles a, Doubles b, Doubles c) {
#if defined(__AVX512F__)
  return _mm512_fmadd_pd(a, b, c);
#elif defined(__AVX2__)
  return _mm256_fmadd_pd(a, b, c);
#else
  return a * b + c;
#endif
}

// MT tokens' streams, `width` apart, against MF rows of fn; m: [MT, 24]. Products of floats are exact in double, so the order does not show.
template <int MT, int MF>
DI_INLINE void hyper_tile(const float* v, const float* fn, int64_t width, float* m) {
  Doubles sum[MT * MF];
  each<MT * MF>([&](auto i) __attribute__((always_inline)) { sum[i] = Doubles{}; });
  int64_t k = 0;
  for (; k + kDoubles <= width; k += kDoubles) {
    Doubles x[MT];
    each<MT>([&](auto t) __attribute__((always_inline)) { x[t] = load_doubles(v + t * width + k); });
    each<MF>([&](auto f) __attribute__((always_inline)) {
      const Doubles w = load_doubles(fn + f * width + k);
      each<MT>([&](auto t) __attribute__((always_inline)) { sum[t * MF + f] = add_product(x[t], w, sum[t * MF + f]); });
    });
  }
  each<MT * MF>([&](auto i) __attribute__((always_inline)) {
    double total = 0;
    for (int lane = 0; lane < kDoubles; ++lane) total += sum[i][lane];
    for (int64_t j = k; j < width; ++j) total += static_cast<double>(v[i / MF * width + j]) * static_cast<double>(fn[i % MF * width + j]);
    m[i / MF * kHyperDots + i % MF] = static_cast<float>(total);
  });
}

// Products [begin, end) of the 24, for num_tokens tokens.
void hyper_dots_impl(const float* streams, const float* fn, int64_t width, int64_t num_tokens, int32_t begin, int32_t end, float* m) {
  constexpr int kTokens = Vec::kLanes == 16 ? 4 : 2, kRows = Vec::kLanes == 16 ? 6 : 4;
  const auto rows = [&](int64_t t, auto tokens) __attribute__((always_inline)) {
    int32_t f = begin;
    for (; f + kRows <= end; f += kRows) hyper_tile<tokens, kRows>(streams + t * width, fn + f * width, width, m + t * kHyperDots + f);
    for (; f < end; ++f) hyper_tile<tokens, 1>(streams + t * width, fn + f * width, width, m + t * kHyperDots + f);
  };
  int64_t t = 0;
  for (; t + kTokens <= num_tokens; t += kTokens) rows(t, std::integral_constant<int, kTokens>());
  for (; t < num_tokens; ++t) rows(t, std::integral_constant<int, 1>());
}

// The sums of a few terms below are rounded to bf16, where an order of one's own would flip bits: they have that of the official code,
// with every product rounded.
void hyper_collapse_row_impl(const float* pre, const float* streams, int64_t hidden, float* u) {
  each_run(0, hidden, [&](int64_t i, auto count) __attribute__((always_inline)) {
    const float* x = streams + i;
    Vec::F sum = Vec::mul(Vec::set1(pre[0]), load_run(x, count));
    each<3>([&](auto j) __attribute__((always_inline)) { sum = Vec::add(sum, Vec::mul(Vec::set1(pre[j + 1]), load_run(x + (j + 1) * hidden, count))); });
    store_run(u + i, count, Vec::round_bf16(sum));
  });
}

void hyper_expand_row_impl(const HyperCoefficients& c, const float* y, int64_t hidden, int64_t begin, int64_t end, float* streams) {
  each_run(begin, end, [&](int64_t i, auto count) __attribute__((always_inline)) {
    float* x = streams + i;
    Vec::F in[4];
    each<4>([&](auto j) __attribute__((always_inline)) { in[j] = load_run(x + j * hidden, count); });
    const Vec::F update = load_run(y + i, count);
    each<4>([&](auto k) __attribute__((always_inline)) {
      Vec::F mixed = Vec::mul(Vec::set1(c.comb[0][k]), in[0]);
      each<3>([&](auto j) __attribute__((always_inline)) { mixed = Vec::add(mixed, Vec::mul(Vec::set1(c.comb[j + 1][k]), in[j + 1])); });
      store_run(x + k * hidden, count, Vec::round_bf16(Vec::add(Vec::mul(Vec::set1(c.post[k]), update), mixed)));
    });
  });
}

}  // namespace
}  // namespace deepinfer
