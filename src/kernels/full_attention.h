// Attention in which every row sees every row: of the patches of one picture. bf16 numbers in and out, f32 inside: scores, softmax over
// all keys at once, sums over keys ascending; the weights of the values are rounded to bf16, their sum is not. A row's bits do not depend on how the work is split, over threads or over calls: a large
// picture takes seconds, between whose pieces others want to be served.
#pragma once

#include <cstdint>
#include <vector>

#include "base/half.h"
#include "kernels/linear.h"
#include "kernels/team.h"

namespace deepinfer {

struct FullAttentionParams {
  const bf16* queries;  // [num_rows, num_heads * head_dim], row stride ld; keys and values alike
  const bf16* keys;
  const bf16* values;
  int64_t ld;
  int64_t num_rows;
  int32_t num_heads, head_dim;
  float scale;          // of q · k
  bf16* out;            // [num_rows, num_heads * head_dim], row stride ld_out
  int64_t ld_out;
};

// Working memory: the keys and values of all heads as a kernel reads them, and the scores of a few rows for each thread.
class FullAttentionScratch {
 public:
  FullAttentionScratch(int64_t num_rows, int32_t num_heads, int32_t head_dim, int num_threads);

 private:
  friend void lay_out_keys(const FullAttentionParams& p, FullAttentionScratch& scratch, Team& team);
  friend void full_attention(const FullAttentionParams& p, FullAttentionScratch& scratch, int64_t first_tile, int64_t end_tile, Isa isa, Team& team);
  std::vector<float> keys_;    // [heads][num_rows / 16][head_dim][16], zeros past the last row
  std::vector<float> values_;  // [heads][num_rows][head_dim rounded up to 16]
  std::vector<float> rows_;    // [threads] of a query tile, its scores and its result
};

// All threads call together; both begin at once and end without a barrier, and there must be one between them.
void lay_out_keys(const FullAttentionParams& p, FullAttentionScratch& scratch, Team& team);
// Of full_attention_tiles(p), which cost the same.
void full_attention(const FullAttentionParams& p, FullAttentionScratch& scratch, int64_t first_tile, int64_t end_tile, Isa isa, Team& team);
int64_t full_attention_tiles(const FullAttentionParams& p);

namespace ref {
void full_attention(const FullAttentionParams& p, double* out);  // [num_rows, num_heads * head_dim], in double, not rounded
}

}  // namespace deepinfer
