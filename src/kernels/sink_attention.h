// Attention of DeepSeek-V4.1: one KV row serves as key and value for all heads of a query, each query reads a list of rows (its
// window, then the compressed rows that were selected), and a learned sink per head takes part in the denominator only
// (model.md 2.0). Rows are read where they lie, as the caches store them. Lists are walked in blocks of 64 with a running maximum that
// starts at -1e30; probabilities are summed in f32 and weigh the values rounded to bf16, as the model was trained.
#pragma once

#include <cstdint>

#include "base/float8.h"
#include "base/half.h"
#include "kernels/linear.h"

namespace deepinfer {

struct KvRow {
  enum class Kind : uint8_t { kNone, kBf16, kFp8, kFp4 };
  Kind kind = Kind::kNone;        // kNone: an empty place of the list
  const void* values = nullptr;   // bf16, e4m3 or packed e2m1
  const void* scales = nullptr;   // fp8: e8m0 a block of 32; fp4: e4m3 a block of 16
};

constexpr int32_t kSinkBlock = 64;       // rows of a block
constexpr int32_t kMaxSinkHeads = 128;

struct SinkAttentionParams {
  const bf16* q;               // [num_heads, head_dim]
  const KvRow* rows;           // [num_rows]
  const float* sinks;          // [num_heads]: raw logits
  float* out;                  // [num_heads, head_dim], bf16 numbers
  bf16* scratch;               // [kSinkBlock + 1, head_dim]
  int32_t num_heads, head_dim, num_rows;  // head_dim a multiple of 32, at most kMaxSinkHeads heads
};

// One query, on the calling thread; a head's numbers depend on none of the others. A list without rows gives zeros.
void sink_attention(const SinkAttentionParams& p, Isa isa);

namespace ref {
void sink_attention(const SinkAttentionParams& p);  // in double but for the rounding of the probabilities; no scratch
}

}  // namespace deepinfer
