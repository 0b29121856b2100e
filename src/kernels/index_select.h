// Which compressed rows a query of DeepSeek-V4.1 attends to (model.md 2.5): scores against the index keys, rounded to bf16 as the
// model was trained, so that ties are ordinary; of equal scores the lower position is taken. One query, on the calling thread.
#pragma once

#include <cstdint>
#include <span>

#include "base/float8.h"
#include "base/half.h"
#include "kernels/linear.h"

namespace deepinfer {

constexpr int32_t kMaxIndexDim = 256;

struct IndexScoreParams {
  const float* q;          // [num_heads, head_dim], after RoPE and the fp4 round trip
  const float* weights;    // [num_heads], already scaled and rounded to bf16
  const uint8_t* keys;     // [num_keys, head_dim / 2], packed e2m1
  const e8m0* key_scales;  // [num_keys, head_dim / 32]
  float* scores;           // [num_keys], bf16 numbers
  float* scratch;          // [index_scratch(num_heads, head_dim)]
  int32_t num_heads, head_dim, num_keys;  // head_dim a multiple of 32
  bool same_query;         // scratch still holds what the last call made of this q and these weights
};
inline int64_t index_scratch(int32_t num_heads, int32_t head_dim) { return int64_t{num_heads + 15} / 16 * 16 * (head_dim + 1); }
// score(t) = bf16(sum over h of bf16(weights[h] * relu(bf16(q_h . key_t)))).
void index_scores(const IndexScoreParams& p, Isa isa);

// The `k` best of scores, bf16 numbers (all if fewer), as ascending positions in out; returns how many. Positions with score -inf or NaN are
// not taken.
int32_t select_top(std::span<const float> scores, int32_t k, int32_t* out, Isa isa);

// Candidate blocks of `block` consecutive positions: the num_blocks best by their best score, the block of the last visible position
// (scores.size() - 1) always among them. Writes 1 or 0 a block to chosen [ceil(scores.size() / block)]; blocks in which nothing is
// visible do not exist. Scratch: picked [num_blocks], block_scores [number of blocks].
void choose_blocks(std::span<const float> scores, int32_t block, int32_t num_blocks, uint8_t* chosen, float* block_scores, int32_t* picked, Isa isa);

namespace ref {
void index_scores(const IndexScoreParams& p);  // products in double; no scratch
}

}  // namespace deepinfer
