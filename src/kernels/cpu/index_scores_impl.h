// index_select.h's scores over Vec: heads lie in lanes, four keys go through at once. With bf16 dot products a lane takes two numbers of
// its head at a time. Included by v41_<isa>.cc.
#pragma once

#include "kernels/cpu/block_quantize_impl.h"
#include "kernels/index_select.h"

namespace deepinfer {
namespace {

constexpr int kKeys = 4;

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

// sum[j] = products of the lanes' heads with key j. panel: of these heads.
DI_INLINE void key_products(const bf16* keys, int32_t dim, const float* panel, int32_t heads, Vec::F (&sum)[kKeys]) {
  each<kKeys>([&](auto j) __attribute__((always_inline)) { sum[j] = Vec::zero(); });
#if defined(__AVX512BF16__)
  for (int32_t i = 0; i < dim; i += 2, panel += heads) {
    const auto q = reinterpret_cast<__m512bh>(_mm512_loadu_ps(panel));
    each<kKeys>([&](auto j) __attribute__((always_inline)) {
      int32_t pair;
      std::memcpy(&pair, keys + j * kMaxIndexDim + i, 4);
      sum[j] = _mm512_dpbf16_ps(sum[j], q, reinterpret_cast<__m512bh>(_mm512_set1_epi32(pair)));
    });
  }
#else
  for (int32_t i = 0; i < dim; ++i, panel += heads) {
    const Vec::F q = Vec::load(panel);
    each<kKeys>([&](auto j) __attribute__((always_inline)) {
      sum[j] = Vec::fma(q, Vec::set1(float_of(int32_t{keys[j * kMaxIndexDim + i].bits} << 16)), sum[j]);
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
    for (int32_t h = 0; h < heads; h += Vec::kLanes) {
      Vec::F sum[kKeys];
      key_products(keys, dim, p.scratch + heads + h, heads, sum);
      const Vec::F weight = Vec::load(p.scratch + h);
      each<kKeys>([&](auto j) __attribute__((always_inline)) {
        total[j] = Vec::add(total[j], Vec::round_bf16(Vec::mul(Vec::max(Vec::round_bf16(sum[j]), Vec::zero()), weight)));
      });
    }
    float scores[kKeys];
    Vec::store_sums(scores, total[0], total[1], total[2], total[3]);
    for (int32_t j = 0; j < count; ++j) p.scores[t + j] = float_of(round16(scores[j]) << 16);
  }
}

}  // namespace
}  // namespace deepinfer
