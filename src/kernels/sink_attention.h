// Attention of DeepSeek-V4.1: one KV row serves as key and value for all heads of a query, each query reads a list of rows (its
// window, then the compressed rows that were selected), and a learned sink per head takes part in the denominator only
// (model.md 2.0). Lists are walked in blocks of 64 with a running maximum that starts at -1e30; probabilities are summed in f32 and
// weigh the values rounded to bf16, as the model was trained.
#pragma once

#include <cstdint>

namespace deepinfer {

struct SinkAttentionParams {
  const float* q;              // [num_heads, head_dim]
  const float* const* rows;    // [num_rows]: rows of head_dim floats (bf16 values); null: an empty place of the list
  const float* sinks;          // [num_heads]: raw logits
  float* out;                  // [num_heads, head_dim], bf16 values
  int32_t num_heads, head_dim, num_rows;
};

// One query, on the calling thread. A list without rows gives zeros.
void sink_attention(const SinkAttentionParams& p);

}  // namespace deepinfer
