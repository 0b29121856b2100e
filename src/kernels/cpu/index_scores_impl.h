// index_select.h's scores over Vec: heads lie in lanes, eight keys go through at once. With bf16 dot products a lane takes two numbers of
// its head at a time. Included by v41_<isa>.cc.
#pragma once

#include "kernels/cpu/block_quantize_impl.h"
#include "kernels/index_select.h"

namespace deepinfer {
namespace {

constexpr int kKeys = 8, kHeadVectors = Vec::kLanes == 16 ? 2 : 1;

// scratch: the weights of all heads, zeros after the last up to whole vectors; then the query, [dim][heads] floats, or with bf16 products
// [dim / 2][heads] pairs.
DI_INLINE int32_t padded_heads(int32_t heads) { return (heads + Vec::kLanes - 1) / Vec::kLanes * Vec::kLanes; }

void spread_query(const IndexScoreParams& p) {
  const int32_t heads = padded_heads(p.num_heads);
  float* panel = p.scratch + heads;
  for (int32_t h = 0; h < heads; ++h) {
    const bool real = h < p.num_heads;
    p.scratch[h] = real ? p.weights[h] : 0.0f;
    const float* q = p.q + int64_t{h} * p.head_dim;
#if defined(__AVX512BF16__)
    for (int32_t i = 0; i < p.head_dim; i += 2)
      panel[i / 2 * heads + h] = real ? float_of(round16(q[i + 1]) << 16 | round16(q[i])) : 0.0f;
#else
    for (int32_t i = 0; i < p.head_dim; ++i) panel[i * heads + h] = real ? q[i] : 0.0f;
#endif
  }
}

// sum[v * kKeys + j] = products of the heads in vector v with key j, HV vectors of heads. As many sums as hide the latency of a product.
template <int HV>
DI_INLINE void key_products(const bf16* keys, int32_t dim, const float* panel, int32_t heads, Vec::F (&sum)[HV * kKeys]) {
  each<HV * kKeys>([&](auto i) __attribute__((always_inline)) { sum[i] = Vec::zero(); });
#if defined(__AVX512BF16__)
  for (int32_t i = 0; i < dim; i += 2, panel += heads) {
    __m512bh q[HV];
    each<HV>([&](auto v) __attribute__((always_inline)) { q[v] = reinterpret_cast<__m512bh>(_mm512_loadu_ps(panel + v * Vec::kLanes)); });
    each<kKeys>([&](auto j) __attribute__((always_inline)) {
      int32_t pair;
      std::memcpy(&pair, keys + j * kMaxIndexDim + i, 4);
      const auto key = reinterpret_cast<__m512bh>(_mm512_set1_epi32(pair));
      each<HV>([&](auto v) __attribute__((always_inline)) { sum[v * kKeys + j] = _mm512_dpbf16_ps(sum[v * kKeys + j], q[v], key); });
    });
  }
#else
  for (int32_t i = 0; i < dim; ++i, panel += heads) {
    Vec::F q[HV];
    each<HV>([&](auto v) __attribute__((always_inline)) { q[v] = Vec::load(panel + v * Vec::kLanes); });
    each<kKeys>([&](auto j) __attribute__((always_inline)) {
      const Vec::F key = Vec::set1(float_of(int32_t{keys[j * kMaxIndexDim + i].bits} << 16));
      each<HV>([&](auto v) __attribute__((always_inline)) { sum[v * kKeys + j] = Vec::fma(q[v], key, sum[v * kKeys + j]); });
    });
  }
#endif
}

void index_scores_impl(const IndexScoreParams& p) {
  if (!p.same_query) spread_query(p);
  const int32_t heads = padded_heads(p.num_heads), dim = p.head_dim;
  bf16 keys[kKeys * kMaxIndexDim];
  for (int32_t t = 0; t < p.num_keys; t += kKeys) {
    const int32_t count = p.num_keys - t < kKeys ? p.num_keys - t : kKeys;
    for (int32_t j = 0; j < kKeys; ++j) {
      const int64_t key = t + (j < count ? j : 0);
      dequantize_fp4_e8m0_impl(p.keys + key * dim / 2, p.key_scales + key * dim / 32, dim, keys + j * kMaxIndexDim);
    }
    Vec::F total[kKeys];
    each<kKeys>([&](auto j) __attribute__((always_inline)) { total[j] = Vec::zero(); });
    const auto add = [&](int32_t h, auto vectors) __attribute__((always_inline)) {
      constexpr int kVectors = vectors;
      Vec::F sum[kVectors * kKeys];
      key_products<kVectors>(keys, dim, p.scratch + heads + h, heads, sum);
      each<kVectors>([&](auto v) __attribute__((always_inline)) {
        const Vec::F weight = Vec::load(p.scratch + h + v * Vec::kLanes);
        each<kKeys>([&](auto j) __attribute__((always_inline)) {
          total[j] = Vec::add(total[j], Vec::round_bf16(Vec::mul(Vec::max(Vec::round_bf16(sum[v * kKeys + j]), Vec::zero()), weight)));
        });
      });
    };
    int32_t h = 0;
    for (; h + kHeadVectors * Vec::kLanes <= heads; h += kHeadVectors * Vec::kLanes) add(h, std::integral_constant<int, kHeadVectors>());
    for (; h < heads; h += Vec::kLanes) add(h, std::integral_constant<int, 1>());
    float scores[kKeys];
    each<kKeys / 4>([&](auto q) __attribute__((always_inline)) { Vec::store_sums(scores + q * 4, total[q * 4], total[q * 4 + 1], total[q * 4 + 2], total[q * 4 + 3]); });
    for (int32_t j = 0; j < count; ++j) p.scores[t + j] = float_of(round16(scores[j]) << 16);
  }
}

int64_t count_at_least_impl(const float* x, int64_t n, float bound) {
  int64_t total = 0;
  for (int64_t begin = 0; begin < n; begin += 1 << 20) {  // counts of 32 bits: as many lanes as there are numbers in a vector
    int32_t count = 0;
    const int64_t end = n - begin < 1 << 20 ? n : begin + (1 << 20);
    for (int64_t i = begin; i < end; ++i) count += x[i] >= bound;
    total += count;
  }
  return total;
}

}  // namespace
}  // namespace deepinfer
