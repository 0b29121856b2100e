// What the versions with bf16 queries and weights have in common. For files compiled for AVX-512 BF16.
#pragma once

#include "kernels/cpu/attention_impl.h"

namespace deepinfer {
namespace {

struct Bf16Weights {
  using Number = uint16_t;
  static constexpr int kWeightStride = cpu::kScoreStride, kExpDegree = 3;
  static void scale_scores(const cpu::AttentionTile&, int) {}
  static DI_INLINE void store_weights(const cpu::AttentionTile& tile, int row, int key, __m512 e) {
    auto* out = reinterpret_cast<uint16_t*>(tile.weights) + row * kWeightStride + key;
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(e)));
  }
  static void clear_weights(const cpu::AttentionTile& tile, int row) {
    for (int j = 0; j < tile.num_blocks * kKvBlockTokens; j += 16) store_weights(tile, row, j, _mm512_setzero_ps());
  }
};

}  // namespace
}  // namespace deepinfer
