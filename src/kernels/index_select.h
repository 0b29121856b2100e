// Which compressed rows a query of DeepSeek-V4.1 attends to (model.md 2.5): scores against the index keys, rounded to bf16 as the
// model was trained, so that ties are ordinary; of equal scores the lower position is taken. One query, on the calling thread.
#pragma once

#include <cstdint>
#include <span>

namespace deepinfer {

struct IndexScoreParams {
  const float* q;          // [num_heads, head_dim], after RoPE and the fp4 round trip
  const float* weights;    // [num_heads], already scaled and rounded to bf16
  const float* keys;       // [num_keys, head_dim], decoded
  float* scores;           // [num_keys], bf16 values
  int32_t num_heads, head_dim, num_keys;
};
// score(t) = bf16(sum over h of bf16(weights[h] * relu(bf16(q_h . key_t)))).
void index_scores(const IndexScoreParams& p);

// The `k` best of scores (all if fewer), as ascending positions in out; returns how many. Positions with score -inf are not taken.
// scratch: [scores.size()].
int32_t select_top(std::span<const float> scores, int32_t k, int32_t* out, int32_t* scratch);

// Candidate blocks of `block` consecutive positions: the num_blocks best by their best score, the block of the last visible position
// (scores.size() - 1) always among them. Writes 1 or 0 a block to chosen [ceil(scores.size() / block)]; blocks in which nothing is
// visible do not exist. scratch: [2 * number of blocks]; block_scores: [number of blocks].
void choose_blocks(std::span<const float> scores, int32_t block, int32_t num_blocks, uint8_t* chosen, float* block_scores, int32_t* scratch);

}  // namespace deepinfer
