#include <array>

#include "model/config_values.h"
#include "model/gguf.h"

namespace deepinfer::model {
namespace {

// The metadata under "ARCHITECTURE.", with ranges.
class Keys {
 public:
  Keys(const GgufFile& file, std::string_view architecture) : file_(file), prefix_(std::string(architecture) + ".") {}

  std::string key(std::string_view suffix) const { return prefix_ + std::string(suffix); }
  std::string where(std::string_view suffix) const { return file_.path() + ": metadata key " + key(suffix); }
  bool has(std::string_view suffix) const { return file_.has(key(suffix)); }

  Result<int32_t> count(std::string_view suffix, int32_t max) const {
    DI_TRY(const int64_t value, file_.integer(key(suffix)));
    return checked_count(where(suffix), value, 1, max);
  }
  Result<int32_t> count_or(std::string_view suffix, int32_t otherwise, int32_t max) const {
    return has(suffix) ? count(suffix, max) : Result<int32_t>(otherwise);
  }
  Result<double> number_or(std::string_view suffix, double otherwise, double low, double high) const {
    DI_TRY(const auto value, file_.find_number(key(suffix)));
    return value ? checked_number(where(suffix), *value, low, high) : Result<double>(otherwise);
  }
  Error unsupported(std::string_view suffix, const std::string& what) const {
    return {Code::kUnsupported, where(suffix) + ": " + what};
  }

 private:
  const GgufFile& file_;
  std::string prefix_;
};

Result<DenseArchitecture> read_architecture(const GgufFile& file) {
  DI_TRY(const auto name, file.text("general.architecture"));
  for (const auto architecture : {DenseArchitecture::kLlama, DenseArchitecture::kQwen2, DenseArchitecture::kQwen3}) {
    if (name == dense_architecture_name(architecture)) return architecture;
  }
  return Error{Code::kUnsupported,
               fmt::format("{}: architecture {} is not supported (llama, qwen2 and qwen3 are)", file.path(), quoted(name))};
}

// What the key must be absent or zero for: parts of other networks that share the architecture's name.
Result<> reject_foreign(const GgufFile& file, const Keys& keys) {
  DI_TRY(const auto experts, file.find_integer(keys.key("expert_count")));
  if (experts && *experts != 0) return keys.unsupported("expert_count", "mixtures of experts are not supported");
  for (const std::string_view key :
       {"attention.scale", "logit_scale", "embedding_scale", "residual_scale", "attention.sliding_window_pattern",
        "attention.clamp_kqv", "rope.scaling.alpha", "rope.scaling.yarn_log_multiplier"}) {
    if (keys.has(key)) return keys.unsupported(key, "not supported");
  }
  return {};
}

Result<> read_heads(const Keys& keys, DenseConfig& config) {
  DI_TRY(config.num_attention_heads, keys.count("attention.head_count", DenseConfig::kMaxHeads));
  DI_TRY(config.num_key_value_heads,
         keys.count_or("attention.head_count_kv", config.num_attention_heads, DenseConfig::kMaxHeads));
  const int32_t heads = config.num_attention_heads;
  if (heads % config.num_key_value_heads != 0) {
    return Error{Code::kCorruption, fmt::format("{}: {} heads cannot share {} KV heads evenly",
                                                keys.where("attention.head_count_kv"), heads, config.num_key_value_heads)};
  }
  if (!keys.has("attention.key_length") && config.hidden_size % heads != 0) {
    return Error{Code::kCorruption, fmt::format("{}: an embedding of {} cannot be divided among {} heads",
                                                keys.where("attention.head_count"), config.hidden_size, heads)};
  }
  DI_TRY(config.head_dim, keys.count_or("attention.key_length", config.hidden_size / heads, DenseConfig::kMaxHeadDim));
  if (config.head_dim % 2 != 0) {
    return Error{Code::kCorruption, fmt::format("{}: heads of odd size {}", keys.where("attention.key_length"), config.head_dim)};
  }
  for (const std::string_view same : {"attention.value_length", "rope.dimension_count"}) {
    DI_TRY(const int32_t length, keys.count_or(same, config.head_dim, DenseConfig::kMaxHeadDim));
    if (length != config.head_dim) return keys.unsupported(same, fmt::format("{} in heads of {}", length, config.head_dim));
  }
  return {};
}

Result<> read_yarn(const GgufFile& file, const Keys& keys, RopeConfig& rope) {
  DI_TRY(const double ext_factor, keys.number_or("rope.scaling.yarn_ext_factor", 1, 0, 1));
  if (ext_factor != 1) return keys.unsupported("rope.scaling.yarn_ext_factor", "only 1 is supported");
  const std::string_view factor_key =
      file.has(keys.key("rope.scaling.yarn_attn_factor")) ? "rope.scaling.yarn_attn_factor" : "rope.scaling.attn_factor";
  DI_TRY(const double multiplier, keys.number_or(factor_key, 1, 1e-3, 1e3));
  rope.attention_factor = multiplier * yarn_attention_factor(rope.factor);
  DI_TRY(rope.beta_slow, keys.number_or("rope.scaling.yarn_beta_slow", 1, 1e-3, 1e6));
  DI_TRY(rope.beta_fast, keys.number_or("rope.scaling.yarn_beta_fast", 32, 1e-3, 1e6));
  if (rope.beta_fast <= rope.beta_slow) {
    return Error{Code::kCorruption, keys.where("rope.scaling.yarn_beta_fast") + ": not above yarn_beta_slow"};
  }
  return {};
}

Result<> read_rope(const GgufFile& file, const Keys& keys, int32_t context_length, DenseConfig& config) {
  RopeConfig& rope = config.rope;
  // Only this architecture's converter permutes the rows of q and k.
  rope.interleaved = config.architecture == DenseArchitecture::kLlama;
  DI_TRY(rope.theta, keys.number_or("rope.freq_base", 10000, kMinTheta, kMaxTheta));
  DI_TRY(const auto type, file.find_text(keys.key("rope.scaling.type")));
  const std::string_view factor_key =
      keys.has("rope.scaling.factor") ? "rope.scaling.factor" : "rope.scale_linear";  // the older key
  DI_TRY(rope.factor, keys.number_or(factor_key, 1, 1, kMaxRopeFactor));
  DI_TRY(rope.original_context, keys.count_or("rope.scaling.original_context_length", context_length, DenseConfig::kMaxContext));
  if (type == "yarn") {
    rope.scaling = RopeConfig::Scaling::kYarn;
    DI_TRY(read_yarn(file, keys, rope));
  } else if (type == "linear" || (!type && rope.factor != 1)) {
    rope.scaling = RopeConfig::Scaling::kLinear;
  } else if (!type || type == "none") {
    rope.factor = 1;
  } else {
    return keys.unsupported("rope.scaling.type", fmt::format("{} (none, linear and yarn are supported)", quoted(*type)));
  }
  config.max_context = extended_context(rope, context_length);
  return {};
}

Result<> read_vocabulary(const GgufFile& file, const Keys& keys, DenseConfig& config) {
  DI_TRY(const auto tokens, file.texts("tokenizer.ggml.tokens"));
  if (tokens.empty()) {
    DI_TRY(config.vocab_size, keys.count("vocab_size", DenseConfig::kMaxVocab));
  } else {
    DI_TRY(config.vocab_size, checked_count(file.path() + ": metadata key tokenizer.ggml.tokens",
                                            static_cast<int64_t>(tokens.size()), 1, DenseConfig::kMaxVocab));
    DI_TRY(const int32_t declared, keys.count_or("vocab_size", config.vocab_size, DenseConfig::kMaxVocab));
    if (declared != config.vocab_size) {
      return Error{Code::kCorruption, fmt::format("{}: {}, but tokenizer.ggml.tokens has {}", keys.where("vocab_size"), declared,
                                                  config.vocab_size)};
    }
  }
  const auto token = [&](const char* key) -> Result<std::optional<TokenId>> {
    DI_TRY(const auto id, file.find_integer(key));
    if (!id) return std::optional<TokenId>();
    DI_TRY(const TokenId checked, checked_token(file.path() + ": metadata key " + key, *id, config.vocab_size));
    return std::optional<TokenId>(checked);
  };
  DI_TRY(config.bos_id, token("tokenizer.ggml.bos_token_id"));
  for (const char* key : {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"}) {
    DI_TRY(const auto id, token(key));
    if (id) add_once(config.eos_ids, *id);
  }
  return {};
}

}  // namespace

Result<DenseConfig> dense_config_from_gguf(const GgufFile& file) {
  DenseConfig config;
  config.naming = TensorNaming::kGguf;
  DI_TRY(config.architecture, read_architecture(file));
  const Keys keys(file, dense_architecture_name(config.architecture));
  DI_TRY(reject_foreign(file, keys));
  DI_TRY(config.num_hidden_layers, keys.count("block_count", DenseConfig::kMaxLayers));
  DI_TRY(config.hidden_size, keys.count("embedding_length", DenseConfig::kMaxWidth));
  DI_TRY(config.intermediate_size, keys.count("feed_forward_length", DenseConfig::kMaxWidth));
  DI_TRY(read_heads(keys, config));
  DI_TRY(const double eps, file.number(keys.key("attention.layer_norm_rms_epsilon")));
  DI_TRY(const double checked_eps, checked_number(keys.where("attention.layer_norm_rms_epsilon"), eps, 1e-12, 0.1));
  config.rms_norm_eps = static_cast<float>(checked_eps);
  DI_TRY(const int32_t context_length, keys.count("context_length", DenseConfig::kMaxContext));
  DI_TRY(read_rope(file, keys, context_length, config));
  DI_TRY(read_vocabulary(file, keys, config));
  DI_TRY(const auto window, file.find_integer(keys.key("attention.sliding_window")));
  DI_TRY(const int32_t checked_window,
         checked_count(keys.where("attention.sliding_window"), window.value_or(0), 0, DenseConfig::kMaxContext));
  config.layer_window.assign(static_cast<size_t>(config.num_hidden_layers), checked_window);
  // The metadata do not say these; the first layer does, and binding checks that the others agree.
  config.qkv_bias = config.architecture == DenseArchitecture::kQwen2 || file.find("blk.0.attn_q.bias") != nullptr;
  config.output_bias = file.find("blk.0.attn_output.bias") != nullptr;
  config.qk_norm = config.architecture == DenseArchitecture::kQwen3;
  config.tied_head = file.find("output.weight") == nullptr;
  return config;
}

}  // namespace deepinfer::model
