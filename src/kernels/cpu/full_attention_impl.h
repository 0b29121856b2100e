// One tile of full_attention over Vec: included by v41_<isa>.cc, which compile it for their instruction set.
#pragma once

#include "kernels/cpu/v41_kernels.h"
#include "kernels/cpu/vec.h"

namespace deepinfer {
namespace {

// scores [tile][padded keys] = scale * log2(e) * q · k: the softmax below is in powers of two.
DI_INLINE void score_tile(const cpu::FullAttentionTileParams& p, int64_t padded) {
  constexpr int kTile = cpu::kFullAttentionTile;
  const Vec::F scale = Vec::set1(p.scale * 1.44269504f);
  for (int64_t key = 0; key < padded; key += Vec::kLanes) {
    // Panels of 16 keys: narrower vectors take a part of a panel each.
    const float* panel = p.keys + key / cpu::kFullAttentionLanes * cpu::kFullAttentionLanes * p.head_dim + key % cpu::kFullAttentionLanes;
    Vec::F sum[kTile];
    each<kTile>([&](auto r) __attribute__((always_inline)) { sum[r] = Vec::zero(); });
    for (int64_t i = 0; i < p.head_dim; ++i) {
      const Vec::F k = Vec::load(panel + i * cpu::kFullAttentionLanes);
      each<kTile>([&](auto r) __attribute__((always_inline)) { sum[r] = Vec::fma(Vec::set1(p.queries[r * p.head_dim + i]), k, sum[r]); });
    }
    each<kTile>([&](auto r) __attribute__((always_inline)) { Vec::store(p.scores + r * padded + key, Vec::mul(sum[r], scale)); });
  }
}

// Scores of one row to weights, bf16 numbers, zeros past the last key. The result is the sum of them before that rounding, as in every attention over bf16
// numbers that goes key by key: it divides only when it knows the whole.
DI_INLINE float softmax_row(float* scores, int64_t num_keys, int64_t padded) {
  float largest = scores[0];
  for (int64_t key = 1; key < num_keys; ++key) largest = scores[key] > largest ? scores[key] : largest;
  for (int64_t key = num_keys; key < padded; ++key) scores[key] = -__builtin_inff();
  const Vec::F max = Vec::set1(largest);
  Vec::F sum = Vec::zero();
  for (int64_t key = 0; key < padded; key += Vec::kLanes) {
    const Vec::F weight = exp2_vec<6>(Vec::sub(Vec::load(scores + key), max));
    Vec::store(scores + key, Vec::round_bf16(weight));
    sum = Vec::add(sum, weight);
  }
  return Vec::sum(sum);
}

void full_attention_impl(const cpu::FullAttentionTileParams& p) {
  constexpr int kTile = cpu::kFullAttentionTile;
  constexpr int64_t kPanel = cpu::kFullAttentionLanes;
  const int64_t padded = (p.num_keys + kPanel - 1) / kPanel * kPanel, padded_dim = (p.head_dim + kPanel - 1) / kPanel * kPanel;
  score_tile(p, padded);
  float sums[kTile];
  for (int r = 0; r < kTile; ++r) sums[r] = softmax_row(p.scores + r * padded, p.num_keys, padded);
  for (int64_t i = 0; i < padded_dim; i += Vec::kLanes) {
    Vec::F sum[kTile];
    each<kTile>([&](auto r) __attribute__((always_inline)) { sum[r] = Vec::zero(); });
    for (int64_t key = 0; key < p.num_keys; ++key) {
      const Vec::F v = Vec::load(p.values + key * padded_dim + i);
      each<kTile>([&](auto r) __attribute__((always_inline)) { sum[r] = Vec::fma(Vec::set1(p.scores[r * padded + key]), v, sum[r]); });
    }
    each<kTile>([&](auto r) __attribute__((always_inline)) { Vec::store(p.out + r * padded_dim + i, Vec::div(sum[r], Vec::set1(sums[r]))); });
  }
}

}  // namespace
}  // namespace deepinfer
