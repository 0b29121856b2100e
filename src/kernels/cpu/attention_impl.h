// attend_partition over a *product policy*, and the policies that work with float arithmetic on Vec for every cache format.
// Included by attention_<isa>.cc. A policy gives
//   Number, kExpDegree                what queries and weights are, and how exact the weights need be (exp2_vec)
//   product(a, lda, rows, panels, count, n, c, ldc)   c[r, 0..31] = sum over panels and their n terms of a[r, i] * panel[i, :];
//                                     a advances by n a panel; a row's sum has one order, whatever the rows
//   store_weights(float*, i, Vec)     puts a vector of weights where product() reads them
#pragma once

#include "kernels/cpu/attention_kernel.h"
#include "kernels/cpu/vec.h"

namespace deepinfer {
namespace {

// f(first row, rows) with blocks of MR rows and one smaller block, the number of rows a constant.
template <int MR, class Fn>
DI_INLINE void row_blocks(int rows, Fn f, int first = 0) {
  for (; first + MR <= rows; first += MR) f(first, std::integral_constant<int, MR>());
  if constexpr (MR > 1) {
    if (first < rows) row_blocks<MR - 1>(rows, f, first);
  }
}

// Turns a row's scores into weights 2^(scale * score - max) in the policy's form; keys outside [begin, end) weigh exactly 0.
template <class Policy>
void softmax_row(const cpu::AttentionTile& tile, int row) {
  float* scores = tile.scores + row * cpu::kScoreStride;
  const int n = tile.num_blocks * kKvBlockTokens, begin = tile.begin[row], end = tile.end[row];
  for (int j = 0; j < begin; ++j) scores[j] = -__builtin_inff();
  for (int j = end; j < n; ++j) scores[j] = -__builtin_inff();
  Vec::F largest = Vec::set1(-__builtin_inff());
  for (int j = 0; j < n; j += Vec::kLanes) largest = Vec::max(largest, Vec::load(scores + j));
  const float max = Vec::largest(largest) * tile.scale;
  const Vec::F scale = Vec::set1(tile.scale), minus_max = Vec::set1(-max);
  Vec::F sum = Vec::zero();
  for (int j = 0; j < n; j += Vec::kLanes) {
    const Vec::F e = exp2_vec<Policy::kExpDegree>(Vec::fma(Vec::load(scores + j), scale, minus_max));
    sum = Vec::add(sum, e);
    Policy::store_weights(tile, row, j, e);
  }
  tile.max[row] = max;
  tile.sum[row] = Vec::sum(sum);
}

DI_INLINE void fetch(const std::byte* p, int64_t bytes) {
  for (int64_t i = 0; i < bytes; i += 64) __builtin_prefetch(p + i, 0, 2);
}

template <class Policy>
void attend_partition_impl(const cpu::AttentionTile& tile) {
  using Number = typename Policy::Number;
  const KvShape& kv = tile.kv;
  const int dim = kv.padded_dim();
  const auto* queries = reinterpret_cast<const Number*>(tile.queries);
  const std::byte* panels[16];
  for (int b = 0; b < tile.num_blocks; ++b) {
    panels[0] = tile.head_blocks[b];
    if (tile.cold) {
      // The next block's keys and this block's values: neither the hardware's prefetcher nor the tile loads cross from one block to
      // the next by themselves.
      fetch(tile.head_blocks[b] + kv.values_offset(), kv.values_offset());
      if (b + 1 < tile.num_blocks) fetch(tile.head_blocks[b + 1], kv.values_offset());
    }
    Policy::product(queries, dim, tile.num_rows, panels, 1, dim, tile.scores + b * kKvBlockTokens, cpu::kScoreStride);
    Policy::scale_scores(tile, b);
  }
  for (int r = 0; r < tile.num_rows; ++r) {
    if (tile.begin[r] < tile.end[r]) {
      softmax_row<Policy>(tile, r);
    } else {
      Policy::clear_weights(tile, r);
      tile.max[r] = -__builtin_inff();
      tile.sum[r] = 0;
    }
  }
  const auto* weights = reinterpret_cast<const Number*>(tile.weights);
  for (int d = 0; d < dim; d += 32) {
    for (int b = 0; b < tile.num_blocks; ++b) panels[b] = tile.head_blocks[b] + kv.values_offset() + d / 32 * kv.value_panel_bytes();
    Policy::product(weights, Policy::kWeightStride, tile.num_rows, panels, tile.num_blocks, kKvBlockTokens, tile.out + d, dim);
  }
}

// Float queries and weights on panels of any format.
template <KvFormat Format>
struct FloatPolicy {
  using Number = float;
  static constexpr int kWeightStride = cpu::kScoreStride, kExpDegree = 6;
  static constexpr int kUnpack = Format == KvFormat::kF32 ? 1 : Format == KvFormat::kBf16 ? 2 : 4;
  static constexpr int kRows = 6;  // with two vectors of results a row 12 of 16 registers, enough to hide the latency of a sum

  // Number u of each 32-bit lane.
  template <int U>
  static DI_INLINE Vec::F unpack(Vec::I x) {
    if constexpr (Format == KvFormat::kF32) return Vec::as_float(x);
    else if constexpr (Format == KvFormat::kQ8) return Vec::template byte<U>(x);
    else if constexpr (U == 0) return Vec::low_bf16(x);
    else return Vec::high_bf16(x);
  }

  template <int MR>
  static __attribute__((noinline)) void block(const float* a, int64_t lda, const std::byte* const* panels, int count, int n, int column,
                                              float* c, int64_t ldc) {
    Vec::F sum[MR][2];
    each<MR>([&](auto r) { sum[r][0] = sum[r][1] = Vec::zero(); });
    for (int p = 0; p < count; ++p) {
      const std::byte* panel = panels[p] + int64_t{column} * 4;
      for (int i = 0; i < n; i += kUnpack, panel += 32 * 4, a += kUnpack) {
        const Vec::I x = Vec::load_int(panel), y = Vec::load_int(panel + 4 * Vec::kLanes);
        each<kUnpack>([&](auto u) __attribute__((always_inline)) {
          const Vec::F w0 = unpack<u>(x), w1 = unpack<u>(y);
          each<MR>([&](auto r) __attribute__((always_inline)) {
            const Vec::F q = Vec::set1(a[r * lda + u]);
            sum[r][0] = Vec::fma(q, w0, sum[r][0]);
            sum[r][1] = Vec::fma(q, w1, sum[r][1]);
          });
        });
      }
    }
    each<MR>([&](auto r) {
      Vec::store(c + r * ldc + column, sum[r][0]);
      Vec::store(c + r * ldc + column + Vec::kLanes, sum[r][1]);
    });
  }

  static void product(const float* a, int64_t lda, int rows, const std::byte* const* panels, int count, int n, float* c, int64_t ldc) {
    for (int column = 0; column < 32; column += 2 * Vec::kLanes) {
      row_blocks<kRows>(rows, [&](int r, auto mr) {
        block<decltype(mr)::value>(a + r * lda, lda, panels, count, n, column, c + r * ldc, ldc);
      });
    }
  }

  static DI_INLINE const float* scales(const cpu::AttentionTile& tile, int block, int64_t offset) {
    return reinterpret_cast<const float*>(tile.head_blocks[block] + offset);
  }
  static void scale_scores(const cpu::AttentionTile& tile, int block) {
    if constexpr (Format == KvFormat::kQ8) {
      const float* scale = scales(tile, block, tile.kv.key_scales_offset());
      for (int r = 0; r < tile.num_rows; ++r) {
        float* scores = tile.scores + r * cpu::kScoreStride + block * kKvBlockTokens;
        for (int j = 0; j < kKvBlockTokens; j += Vec::kLanes) Vec::store(scores + j, Vec::mul(Vec::load(scores + j), Vec::load(scale + j)));
      }
    }
  }
  static DI_INLINE void store_weights(const cpu::AttentionTile& tile, int row, int key, Vec::F e) {
    if constexpr (Format == KvFormat::kQ8) {  // the value's scale joins the weight
      e = Vec::mul(e, Vec::load(scales(tile, key / kKvBlockTokens, tile.kv.value_scales_offset()) + key % kKvBlockTokens));
    }
    Vec::store(tile.weights + row * kWeightStride + key, e);
  }
  static void clear_weights(const cpu::AttentionTile& tile, int row) {
    for (int j = 0; j < tile.num_blocks * kKvBlockTokens; j += Vec::kLanes) {
      Vec::store(tile.weights + row * kWeightStride + j, Vec::zero());
    }
  }
};

void attend_partition_float(const cpu::AttentionTile& tile) {
  switch (tile.kv.format) {
    case KvFormat::kBf16: return attend_partition_impl<FloatPolicy<KvFormat::kBf16>>(tile);
    case KvFormat::kQ8: return attend_partition_impl<FloatPolicy<KvFormat::kQ8>>(tile);
    case KvFormat::kF32: return attend_partition_impl<FloatPolicy<KvFormat::kF32>>(tile);
  }
}

}  // namespace
}  // namespace deepinfer
