// Lays the keys and values out once and hands (head, tile of rows) to the threads. The arithmetic is in cpu/full_attention_impl.h.
#include "kernels/full_attention.h"

#include <algorithm>
#include <cmath>

#include "kernels/cpu/v41_kernels.h"

namespace deepinfer {
namespace {

constexpr int64_t kLanes = cpu::kFullAttentionLanes, kTile = cpu::kFullAttentionTile;

int64_t round_up(int64_t n) { return (n + kLanes - 1) / kLanes * kLanes; }
// Floats of a thread: queries, scores, result.
int64_t floats_a_thread(int64_t num_rows, int32_t head_dim) { return kTile * (head_dim + round_up(num_rows) + round_up(head_dim)); }

}  // namespace

FullAttentionScratch::FullAttentionScratch(int64_t num_rows, int32_t num_heads, int32_t head_dim, int num_threads)
    : keys_(static_cast<size_t>(num_heads * round_up(num_rows) * head_dim)),
      values_(static_cast<size_t>(num_heads * num_rows * round_up(head_dim))),
      rows_(static_cast<size_t>(num_threads * floats_a_thread(num_rows, head_dim))) {}

int64_t full_attention_tiles(const FullAttentionParams& p) { return p.num_heads * ((p.num_rows + kTile - 1) / kTile); }

void lay_out_keys(const FullAttentionParams& p, FullAttentionScratch& scratch, Team& team) {
  const int64_t n = p.num_rows, dim = p.head_dim, padded = round_up(n), padded_dim = round_up(dim);
  const auto [first_row, end_row] = team.range(n);
  for (int64_t row = first_row; row < end_row; ++row) {
    for (int64_t head = 0; head < p.num_heads; ++head) {
      const int64_t at = row * p.ld + head * dim;
      float* key = scratch.keys_.data() + head * padded * dim + row / kLanes * kLanes * dim + row % kLanes;
      float* value = scratch.values_.data() + (head * n + row) * padded_dim;
      for (int64_t i = 0; i < dim; ++i) {
        key[i * kLanes] = to_f32(p.keys[at + i]);
        value[i] = to_f32(p.values[at + i]);
      }
    }
  }
}

void full_attention(const FullAttentionParams& p, FullAttentionScratch& scratch, int64_t first_tile, int64_t end_tile, Isa isa, Team& team) {
  const int64_t n = p.num_rows, dim = p.head_dim, padded = round_up(n), padded_dim = round_up(dim);
  float* queries = scratch.rows_.data() + team.index() * floats_a_thread(n, p.head_dim);
  float* scores = queries + kTile * dim;
  float* result = scores + kTile * padded;
  const int64_t tiles = (n + kTile - 1) / kTile;
  const auto [begin, end] = team.range(end_tile - first_tile);
  for (int64_t tile = first_tile + begin; tile < first_tile + end; ++tile) {
    const int64_t head = tile / tiles, row = tile % tiles * kTile, count = std::min(kTile, n - row);
    for (int64_t r = 0; r < kTile; ++r) {  // rows past the last repeat it
      const bf16* query = p.queries + (row + std::min(r, count - 1)) * p.ld + head * dim;
      for (int64_t i = 0; i < dim; ++i) queries[r * dim + i] = to_f32(query[i]);
    }
    cpu::v41_kernels(isa).full_attention({.queries = queries,
                                          .keys = scratch.keys_.data() + head * padded * dim,
                                          .values = scratch.values_.data() + head * n * padded_dim,
                                          .num_keys = n,
                                          .head_dim = dim,
                                          .scale = p.scale,
                                          .scores = scores,
                                          .out = result});
    for (int64_t r = 0; r < count; ++r) {
      bf16* out = p.out + (row + r) * p.ld_out + head * dim;
      for (int64_t i = 0; i < dim; ++i) out[i] = to_bf16(result[r * padded_dim + i]);
    }
  }
}

void ref::full_attention(const FullAttentionParams& p, double* out) {
  std::vector<double> weights(static_cast<size_t>(p.num_rows));
  const auto at = [&](const bf16* m, int64_t row, int64_t head, int64_t i) { return static_cast<double>(to_f32(m[row * p.ld + head * p.head_dim + i])); };
  for (int64_t head = 0; head < p.num_heads; ++head) {
    for (int64_t row = 0; row < p.num_rows; ++row) {
      double sum = 0;
      for (int64_t key = 0; key < p.num_rows; ++key) {
        double dot = 0;
        for (int64_t i = 0; i < p.head_dim; ++i) dot += at(p.queries, row, head, i) * at(p.keys, key, head, i);
        weights[static_cast<size_t>(key)] = dot * static_cast<double>(p.scale);
      }
      const double largest = *std::max_element(weights.begin(), weights.end());
      for (double& weight : weights) {
        weight = std::exp(weight - largest);
        sum += weight;
        weight = static_cast<double>(to_f32(to_bf16(static_cast<float>(weight))));
      }
      for (int64_t i = 0; i < p.head_dim; ++i) {
        double value = 0;
        for (int64_t key = 0; key < p.num_rows; ++key) value += weights[static_cast<size_t>(key)] / sum * at(p.values, key, head, i);
        out[row * p.num_heads * p.head_dim + head * p.head_dim + i] = value;
      }
    }
  }
}

}  // namespace deepinfer
