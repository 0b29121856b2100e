// The shape of a DeepSeek-V4.1 model, read from config.json in either spelling: Hugging Face's (nested text_config, vision_config) or
// that of the official inference code (flat). Every value is checked, and so are the relations between them (model.md 1.4), so that
// code which holds a V41Config needs no further checks. Errors name the file and the key. Plain data, immutable after loading.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "core/request.h"

namespace deepinfer::model {

struct V41Vision {
  int32_t num_hidden_layers = 0, hidden_size = 0, num_attention_heads = 0, intermediate_size = 0;
  int32_t patch_size = 0;        // pixels
  int32_t downsample_ratio = 0;  // patches a side that one image token covers
  int32_t max_image_tokens = 0;  // start, row ends and end included
  int64_t min_pixels = 0;        // smaller pictures are scaled up
  double rope_theta = 10000;
  std::optional<double> max_wh_ratio;
};

struct V41Config {
  static constexpr int32_t kStreams = 4;         // hc_mult: residual streams; other values are refused
  static constexpr int32_t kMaxLayers = 256, kMaxWidth = 1 << 17, kMaxVocab = 1 << 20, kMaxExperts = 4096, kMaxContext = 1 << 24;
  static constexpr int32_t kMaxWindow = 1 << 14, kMaxTopk = 1 << 16;  // cap what a damaged file makes a step's workspace cost

  int32_t vocab_size = 0, hidden_size = 0, num_hidden_layers = 0;
  int32_t num_attention_heads = 0, head_dim = 0, qk_rope_head_dim = 0, q_lora_rank = 0, o_groups = 0, o_lora_rank = 0;
  float rms_norm_eps = 0;
  int32_t sliding_window = 0;
  std::vector<int32_t> compress_ratios;  // 0, 1 or 2 for each layer and draft stage
  std::vector<int32_t> kv_source_layer_ids, index_source_layer_ids;  // ascending
  int32_t candidate_source_layer_id = -1, candidate_topk_blocks = 0, candidate_block_size = 0;  // source -1: no candidates
  int32_t index_n_heads = 0, index_head_dim = 0, index_topk = 0;
  double rope_theta = 0, compress_rope_theta = 0;
  double rope_factor = 1, rope_beta_fast = 32, rope_beta_slow = 1;  // YaRN, of layers with a compress ratio only
  int32_t rope_original_context = 0;
  int32_t max_position_embeddings = 0;
  int32_t n_routed_experts = 0, n_shared_experts = 0, num_experts_per_tok = 0, moe_intermediate_size = 0;
  bool norm_topk_prob = true;
  float routed_scaling_factor = 1, swiglu_limit = 0, gate_temp = 1;
  int32_t hc_sinkhorn_iters = 0;
  float hc_eps = 0;
  std::vector<int32_t> engram_layer_ids;        // ascending
  std::vector<int64_t> engram_num_embeddings;   // table rows, one entry an Engram layer
  int64_t engram_vocab_size = 0;                // where the search for primes starts
  int32_t engram_max_ngram_size = 0, engram_n_heads = 0, engram_head_dim = 0;
  TokenId engram_pad_token_id = 0;
  int32_t engram_compressed_vocab_size = 0;
  std::string engram_token_map;                 // file beside config.json that replaces the derivation from the tokenizer; may be empty
  int32_t num_draft_stages = 0;                 // DSpark (num_nextn_predict_layers, n_mtp_layers)
  int32_t dspark_block_size = 0, dspark_markov_rank = 0, dspark_n_routed_experts = 0, dspark_num_experts_per_tok = 0;
  TokenId dspark_noise_token_id = 0;
  std::vector<int32_t> dspark_target_layer_ids;  // ascending
  TokenId image_token_id = -1;                   // -1: a model without vision
  TokenId bos_id = 0, eos_id = 1;
  std::optional<V41Vision> vision;

  // Roles, derived. Layer numbers are 0-based; draft stages are not layers here.
  int32_t compress_ratio(int32_t layer) const { return compress_ratios[static_cast<size_t>(layer)]; }
  int32_t kv_source(int32_t layer) const;     // the layer whose compressed rows it reads; -1: window only
  int32_t index_source(int32_t layer) const;  // the layer whose selection it uses; -1: window only
  bool is_kv_source(int32_t layer) const;
  bool is_index_source(int32_t layer) const;
  int32_t engram_index(int32_t layer) const;  // which of the Engram tables precedes the layer; -1: none
  bool is_reindex(int32_t layer) const;       // selects among the candidates of candidate_source_layer_id
  // Layers from this one on need only the rows whose outputs are wanted: the last KV source (its rows are made for all tokens).
  int32_t narrowing_layer() const { return kv_source_layer_ids.back(); }
  int32_t rows_after(int32_t layer, int64_t num_tokens) const {  // compressed rows that exist after num_tokens tokens
    const int32_t ratio = compress_ratio(layer);
    return ratio == 0 ? 0 : static_cast<int32_t>(num_tokens / ratio);
  }
};

// Whether a config.json is of this architecture, in one of its spellings. False for what is no JSON object.
bool is_v41_config(std::string_view config_json);

// config_json: the text of config.json; path: of the file, for messages.
// Errors: kCorruption (a key is absent, of the wrong type or out of range; a relation does not hold), kUnsupported.
Result<V41Config> v41_config_from_json(std::string_view config_json, const std::string& path);

}  // namespace deepinfer::model
