// Every tensor of a DeepSeek-V4.1 checkpoint by its role, read where it lies in the mapping: nothing is copied or converted. Binding
// checks that exactly the tensors which the config asks for are there, each with its dtype and shape (model.md 5.1), so that the
// forward pass reads them without further checks. The pointers belong to the checkpoint, which must outlive the weights.
//
// Of the values only the block scales of dense matrices are looked at (a NaN there spoils every answer): megabytes, whatever the model.
// Those of experts and Engram tables are tens of gigabytes; check_values() reads them on demand.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/half.h"
#include "base/result.h"
#include "kernels/block_linear.h"
#include "kernels/hyper_connection.h"
#include "model/checkpoint.h"
#include "model/v41_config.h"

namespace deepinfer::model {

struct V41Expert {
  Fp4Matrix w1, w3;  // [moe_intermediate_size, hidden_size]: gate, up
  Fp4Matrix w2;      // [hidden_size, moe_intermediate_size]
};

struct V41SharedExpert {
  Fp8Matrix w1, w3, w2;
};

// A layer, or a draft stage, which is one of compress ratio 0.
struct V41Block {
  const bf16* attn_norm = nullptr;   // [hidden_size]
  const bf16* ffn_norm = nullptr;    // [hidden_size]
  HyperWeights hc_attn{}, hc_ffn{};
  const float* attn_sink = nullptr;  // [num_attention_heads]
  Fp8Matrix wq_a, wq_b, wkv;         // [q_lora, hidden], [heads * head_dim, q_lora], [head_dim, hidden]
  const bf16* q_norm = nullptr;      // [q_lora_rank]
  const bf16* kv_norm = nullptr;     // [head_dim]
  Fp8Matrix wo_a;                    // [o_groups * o_lora, heads * head_dim / o_groups]; used as if it were bf16
  Fp8Matrix wo_b;                    // [hidden, o_groups * o_lora]
  Bf16Matrix gate;                   // [experts, hidden]
  const float* gate_bias = nullptr;     // [experts]
  const float* gate_bias_vl = nullptr;  // [experts]: of positions inside an image
  std::vector<V41Expert> experts;
  V41SharedExpert shared;

  // KV sources.
  Bf16Matrix compressor_wkv;            // [head_dim, hidden]
  Bf16Matrix compressor_wgate;          // [head_dim, hidden]; ratio 2 only
  const bf16* compressor_norm = nullptr;  // [head_dim]
  Bf16Matrix index_wk;                  // [index_head_dim, head_dim]
  const bf16* index_k_norm = nullptr;   // [index_head_dim]
  // Index sources.
  Fp8Matrix index_wq_b;                 // [index_n_heads * index_head_dim, q_lora]
  Bf16Matrix index_weights_proj;        // [index_n_heads, hidden]
};

// One table and its projection.
struct V41Engram {
  const e4m3* codes = nullptr;      // [rows, engram_head_dim]
  const e8m0* scales = nullptr;     // [rows, engram_head_dim / 32]
  int64_t num_rows = 0;
  Fp8Matrix wkv;                    // [5 * hidden, columns * engram_head_dim]: keys of the four streams, then the value
  const bf16* q_weight = nullptr;   // [4, hidden]
  const bf16* k_weight = nullptr;   // [4, hidden]
};

struct V41VisionBlock {
  const bf16* norm1 = nullptr;
  const bf16* norm2 = nullptr;
  Bf16Matrix wqkv, wo, w1, w2;      // [3d, d], [d, d], [2 * inter, d] (gate, up), [d, inter]
  const bf16* wqkv_bias = nullptr;
  const bf16* wo_bias = nullptr;
};

struct V41VisionWeights {
  Bf16Matrix patch;                 // [d, 3 * patch * patch]
  const bf16* patch_bias = nullptr;
  std::vector<V41VisionBlock> blocks;
  const bf16* norm = nullptr;
  Bf16Matrix aligner_w1, aligner_w2;  // [hidden, d * ratio * ratio], [hidden, hidden]
  const bf16* aligner_w1_bias = nullptr;
  const bf16* aligner_w2_bias = nullptr;
  const bf16* image_start = nullptr;  // [hidden]
  const bf16* image_end = nullptr;
  const bf16* image_newline = nullptr;
};

struct V41DraftHeads {
  Fp8Matrix main_proj;              // [hidden, targets * hidden]
  const bf16* main_norm = nullptr;
  const bf16* norm = nullptr;
  Bf16Matrix markov_embed, markov_head;  // [vocab, rank]
  Bf16Matrix confidence;            // [1, hidden + rank]
};

struct V41Weights {
  Bf16Matrix embed, head;           // [vocab, hidden]
  const bf16* norm = nullptr;       // [hidden]
  std::vector<V41Block> layers, draft_stages;
  std::vector<V41Engram> engrams;
  V41DraftHeads draft;              // if there are draft stages
  V41VisionWeights vision;          // if the config has vision
};

// Reads scales, vectors and what selects: megabytes.
// Errors: kCorruption naming the file and the tensor: missing, of another shape or dtype, misaligned, left over, or with a NaN that a step
// would not show.
Result<V41Weights> bind_v41(const Checkpoint& checkpoint, const V41Config& config);

struct V41Tensor {
  std::string name;
  DType dtype;
  std::vector<int64_t> shape;  // outermost first
  int64_t num_bytes() const;
};

// The tensors that a checkpoint of this configuration consists of: exactly those that bind_v41 takes, in that order.
std::vector<V41Tensor> v41_tensors(const V41Config& config);

}  // namespace deepinfer::model
