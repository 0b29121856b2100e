// The shape of a dense model (Llama, Qwen2, Qwen3), read from the metadata of a GGUF file or from config.json and
// generation_config.json, with every value checked: a DenseConfig in hand satisfies all that is said below. Errors name the file
// and the key. Plain data, immutable after loading. The alternative that lost: keeping the two spellings apart up to the forward
// pass, which would then have two ways to be wrong.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "core/request.h"

namespace deepinfer::model {

constexpr size_t kMaxConfigBytes = 4 << 20;  // of a config.json, whatever the architecture

class GgufFile;

enum class DenseArchitecture : uint8_t { kLlama, kQwen2, kQwen3 };
std::string_view dense_architecture_name(DenseArchitecture architecture);  // "llama", "qwen2", "qwen3"

// How the tensors are named, and with it how q and k rows are ordered (RopeConfig::interleaved).
enum class TensorNaming : uint8_t { kGguf, kHuggingFace };

// Rotary position embedding. Pair i of a head (i < head_dim / 2) at position p is rotated by the angle p * w(i), and both cos and
// sin are multiplied by attention_factor. With b(i) = theta^(-2i / head_dim) and d(i) the optional divisors of the checkpoint
// (DenseWeights::rope_divisors, 1 without):
//   kNone    w = b / d
//   kLinear  w = b / d / factor
//   kNtk     w = b / d: theta already holds the enlarged base. It is the one of the longest context, for every position: a base
//            that follows the length (as transformers has it) would change the keys that are already in the cache.
//   kYarn    w = b * (ramp / factor + 1 - ramp), ramp(i) = clamp((i - low) / (high - low), 0, 1) with
//            dim(r) = head_dim * ln(original_context / (2 pi r)) / (2 ln theta), low = max(floor(dim(beta_fast)), 0),
//            high = min(ceil(dim(beta_slow)), head_dim - 1), + 0.001 if both are equal; without floor and ceil if !truncate
//   kLlama3  wavelength = 2 pi / b; b above original_context / high_freq_factor's frequency, b / factor below that of
//            low_freq_factor, in between a blend with s = (original_context / wavelength - low) / (high - low):
//            w = b * ((1 - s) / factor + s). (GGUF files of these models carry divisors instead and say kNone.)
struct RopeConfig {
  enum class Scaling : uint8_t { kNone, kLinear, kNtk, kYarn, kLlama3 };
  Scaling scaling = Scaling::kNone;
  double theta = 10000;          // > 1
  double factor = 1;             // >= 1
  int32_t original_context = 0;  // tokens the model was trained on, >= 1
  double attention_factor = 1;   // > 0; YaRN's magnitude, resolved (0.1 ln factor + 1 unless the file says otherwise)
  double beta_fast = 32;         // YaRN: > beta_slow
  double beta_slow = 1;          // YaRN: > 0
  bool truncate = true;          // YaRN: ramp ends on whole dimensions
  double low_freq_factor = 1;    // Llama 3: > 0
  double high_freq_factor = 4;   // Llama 3: > low_freq_factor
  // Which numbers of a head make pair i: (2i, 2i + 1) if interleaved (GGUF llama: its q and k rows were permuted for that), else
  // (i, i + head_dim / 2) (safetensors, and GGUF qwen2 and qwen3).
  bool interleaved = false;
};
std::string_view rope_scaling_name(RopeConfig::Scaling scaling);  // "none", "linear", "ntk", "yarn", "llama3"

struct DenseConfig {
  // Bounds on what a damaged file can make us compute or allocate; far above any model of these families.
  static constexpr int32_t kMaxLayers = 1024, kMaxHeads = 4096, kMaxHeadDim = 4096, kMaxWidth = 1 << 20, kMaxVocab = 1 << 24,
                           kMaxContext = 1 << 28;

  DenseArchitecture architecture = DenseArchitecture::kLlama;
  TensorNaming naming = TensorNaming::kGguf;
  int32_t num_hidden_layers = 0;    // >= 1
  int32_t hidden_size = 0;          // >= 1
  int32_t num_attention_heads = 0;  // >= 1; a multiple of num_key_value_heads
  int32_t num_key_value_heads = 0;  // >= 1
  int32_t head_dim = 0;             // >= 2, even; not always hidden_size / num_attention_heads
  int32_t intermediate_size = 0;    // >= 1
  int32_t vocab_size = 0;           // >= 1: rows of the embedding
  int32_t max_context = 0;          // >= 1: positions that the model is good for, RoPE scaling included
  float rms_norm_eps = 0;           // > 0
  RopeConfig rope;
  bool qkv_bias = false;     // biases on the q, k and v projections
  bool output_bias = false;  // bias on the attention's output projection
  bool qk_norm = false;      // RMS norm of each q and k head before RoPE
  bool tied_head = false;    // the head is the embedding
  // Layer i attends to the last layer_window[i] tokens (its own position included); 0: to all. One entry a layer.
  std::vector<int32_t> layer_window;
  std::optional<TokenId> bos_id;  // below vocab_size
  std::vector<TokenId> eos_ids;   // below vocab_size, without repetition; may be empty (the tokenizer knows others)

  int64_t q_size() const { return int64_t{num_attention_heads} * head_dim; }
  int64_t kv_size() const { return int64_t{num_key_value_heads} * head_dim; }
};

// From a GGUF file's metadata. What the metadata leave to the tensors (biases, tied head, divisors) is read from their names.
// Errors: kCorruption (a key is absent, of the wrong type or out of range), kUnsupported (another architecture, experts, …).
Result<DenseConfig> dense_config_from_gguf(const GgufFile& file);

// From the texts of config.json and generation_config.json (empty: there is none). path: of config.json, for messages.
Result<DenseConfig> dense_config_from_json(std::string_view config_json, std::string_view generation_json,
                                           const std::string& path);
// The same from a folder's files.
Result<DenseConfig> dense_config_from_folder(const std::string& folder);

}  // namespace deepinfer::model
