#include <simdjson.h>
#include <cmath>

#include "io/mapped_file.h"
#include "model/config_values.h"

namespace deepinfer::model {
namespace {

// An object of config.json. A null is an absent key, as transformers writes it.
class Json {
 public:
  Json(simdjson::dom::object object, std::string where) : object_(object), where_(std::move(where)) {}

  std::string where(std::string_view key) const { return where_ + std::string(key); }
  std::optional<simdjson::dom::element> find(std::string_view key) const {
    simdjson::dom::element value;
    if (object_[key].get(value) != simdjson::SUCCESS || value.is_null()) return std::nullopt;
    return value;
  }
  bool has(std::string_view key) const { return find(key).has_value(); }
  Error wrong(std::string_view key, std::string_view what) const {
    return {Code::kCorruption, where(key) + " " + std::string(what)};
  }
  Error unsupported(std::string_view key, const std::string& what) const {
    return {Code::kUnsupported, where(key) + ": " + what};
  }

  Result<int32_t> count(std::string_view key, int32_t min, int32_t max) const {
    const auto value = find(key);
    if (!value) return wrong(key, "is absent");
    int64_t number = 0;
    if (value->get(number) != simdjson::SUCCESS) return wrong(key, "is not an integer");
    return checked_count(where(key), number, min, max);
  }
  Result<int32_t> count_or(std::string_view key, int32_t otherwise, int32_t min, int32_t max) const {
    return has(key) ? count(key, min, max) : Result<int32_t>(otherwise);
  }
  Result<double> number(std::string_view key, double low, double high) const {
    const auto value = find(key);
    if (!value) return wrong(key, "is absent");
    double number = 0;
    if (value->get(number) != simdjson::SUCCESS) return wrong(key, "is not a number");
    return checked_number(where(key), number, low, high);
  }
  Result<double> number_or(std::string_view key, double otherwise, double low, double high) const {
    return has(key) ? number(key, low, high) : Result<double>(otherwise);
  }
  Result<bool> bool_or(std::string_view key, bool otherwise) const {
    const auto value = find(key);
    if (!value) return otherwise;
    bool flag = false;
    if (value->get(flag) != simdjson::SUCCESS) return wrong(key, "is neither true nor false");
    return flag;
  }
  Result<std::string_view> text_or(std::string_view key, std::string_view otherwise) const {
    const auto value = find(key);
    if (!value) return otherwise;
    std::string_view text;
    if (value->get(text) != simdjson::SUCCESS) return wrong(key, "is not a string");
    return text;
  }
  Result<std::optional<Json>> child(std::string_view key) const {
    const auto value = find(key);
    if (!value) return std::optional<Json>();
    simdjson::dom::object object;
    if (value->get(object) != simdjson::SUCCESS) return wrong(key, "is not an object");
    return std::optional<Json>(Json(object, where_ + std::string(key) + "."));
  }
  // One token id or an array of them.
  Result<> add_tokens(std::string_view key, int32_t vocab_size, std::vector<TokenId>& out) const {
    const auto value = find(key);
    if (!value) return {};
    const auto add = [&](simdjson::dom::element element) -> Result<> {
      int64_t id = 0;
      if (element.get(id) != simdjson::SUCCESS) return wrong(key, "is not a token id or a list of them");
      DI_TRY(const TokenId checked, checked_token(where(key), id, vocab_size));
      add_once(out, checked);
      return {};
    };
    simdjson::dom::array array;
    if (value->get(array) != simdjson::SUCCESS) return add(*value);
    for (const simdjson::dom::element element : array) DI_TRY(add(element));
    return {};
  }

 private:
  simdjson::dom::object object_;
  std::string where_;
};

Result<Json> parse(simdjson::dom::parser& parser, std::string_view text, const std::string& path) {
  simdjson::dom::object object;
  const auto error = parser.parse(text.data(), text.size()).get(object);
  if (error != simdjson::SUCCESS) {
    return Error{Code::kCorruption, path + ": not a JSON object (" + simdjson::error_message(error) + ")"};
  }
  return Json(object, path + ": key ");
}

Result<DenseArchitecture> read_architecture(const Json& json) {
  DI_TRY(const auto type, json.text_or("model_type", ""));
  if (type.empty()) return json.wrong("model_type", "is absent");
  for (const auto architecture : {DenseArchitecture::kLlama, DenseArchitecture::kQwen2, DenseArchitecture::kQwen3}) {
    if (type == dense_architecture_name(architecture)) return architecture;
  }
  return json.unsupported("model_type", fmt::format("{} (llama, qwen2 and qwen3 are supported)", quoted(type)));
}

Result<> reject_foreign(const Json& json) {
  DI_TRY(const auto activation, json.text_or("hidden_act", "silu"));
  if (activation != "silu") return json.unsupported("hidden_act", fmt::format("{} (silu is supported)", quoted(activation)));
  DI_TRY(const bool mlp_bias, json.bool_or("mlp_bias", false));
  if (mlp_bias) return json.unsupported("mlp_bias", "biases in the feed-forward network are not supported");
  DI_TRY(const double rotary, json.number_or("partial_rotary_factor", 1, 0, 1));
  if (rotary != 1) return json.unsupported("partial_rotary_factor", "only 1 is supported");
  if (json.has("quantization_config"))
    return json.unsupported("quantization_config", "weights quantised this way are not supported");
  return {};
}

Result<> read_heads(const Json& json, DenseConfig& config) {
  DI_TRY(config.num_attention_heads, json.count("num_attention_heads", 1, DenseConfig::kMaxHeads));
  const int32_t heads = config.num_attention_heads;
  DI_TRY(config.num_key_value_heads, json.count_or("num_key_value_heads", heads, 1, DenseConfig::kMaxHeads));
  if (heads % config.num_key_value_heads != 0) {
    return json.wrong("num_key_value_heads",
                      fmt::format("is {}: {} heads cannot share that many evenly", config.num_key_value_heads, heads));
  }
  // Qwen3's default does not follow from the width.
  const bool fixed = config.architecture == DenseArchitecture::kQwen3;
  if (!fixed && !json.has("head_dim") && config.hidden_size % heads != 0) {
    return json.wrong("num_attention_heads",
                      fmt::format("is {}: a hidden size of {} cannot be divided by it", heads, config.hidden_size));
  }
  DI_TRY(config.head_dim, json.count_or("head_dim", fixed ? 128 : config.hidden_size / heads, 1, DenseConfig::kMaxHeadDim));
  if (config.head_dim % 2 != 0) return json.wrong("head_dim", fmt::format("is {}: heads must be of even size", config.head_dim));
  return {};
}

Result<> read_yarn(const Json& json, RopeConfig& rope) {
  DI_TRY(const double mscale, json.number_or("mscale", 0, 0, 1e3));
  DI_TRY(const double mscale_all_dim, json.number_or("mscale_all_dim", 0, 0, 1e3));
  const double resolved = mscale != 0 && mscale_all_dim != 0
                              ? yarn_attention_factor(rope.factor, mscale) / yarn_attention_factor(rope.factor, mscale_all_dim)
                              : yarn_attention_factor(rope.factor);
  DI_TRY(rope.attention_factor, json.number_or("attention_factor", resolved, 1e-3, 1e3));
  DI_TRY(rope.beta_slow, json.number_or("beta_slow", 1, 1e-3, 1e6));
  DI_TRY(rope.beta_fast, json.number_or("beta_fast", 32, 1e-3, 1e6));
  if (rope.beta_fast <= rope.beta_slow) return json.wrong("beta_fast", "is not above beta_slow");
  DI_TRY(rope.truncate, json.bool_or("truncate", true));
  return {};
}

Result<> read_llama3(const Json& json, RopeConfig& rope) {
  DI_TRY(rope.low_freq_factor, json.number("low_freq_factor", 1e-3, 1e6));
  DI_TRY(rope.high_freq_factor, json.number("high_freq_factor", 1e-3, 1e6));
  if (rope.high_freq_factor <= rope.low_freq_factor) return json.wrong("high_freq_factor", "is not above low_freq_factor");
  return {};
}

Result<> read_scaling(const Json& json, int32_t max_position, DenseConfig& config) {
  RopeConfig& rope = config.rope;
  for (const std::string_view key : {"full_attention", "sliding_attention", "alpha", "mrope_section", "long_factor"}) {
    if (json.has(key)) return json.unsupported(key, "not supported");
  }
  DI_TRY(const auto older, json.text_or("type", "default"));
  DI_TRY(const auto type, json.text_or("rope_type", older));
  if (type == "default" || type == "none") return {};
  DI_TRY(rope.factor, json.number("factor", 1, kMaxRopeFactor));
  DI_TRY(rope.original_context, json.count_or("original_max_position_embeddings", max_position, 1, DenseConfig::kMaxContext));
  if (type == "linear") {
    rope.scaling = RopeConfig::Scaling::kLinear;
    return {};
  }
  if (type == "yarn") {
    rope.scaling = RopeConfig::Scaling::kYarn;
    return read_yarn(json, rope);
  }
  if (type == "llama3") {
    rope.scaling = RopeConfig::Scaling::kLlama3;
    return read_llama3(json, rope);
  }
  if (type == "dynamic") {
    if (config.head_dim <= 2) return json.unsupported("rope_type", "dynamic scaling of heads of size 2");
    rope.scaling = RopeConfig::Scaling::kNtk;
    // Dynamic NTK's base for a sequence of length factor * original_context.
    rope.theta *= std::pow(rope.factor * rope.factor - (rope.factor - 1), config.head_dim / (config.head_dim - 2.0));
    return {};
  }
  return json.unsupported("rope_type", fmt::format("{} (default, linear, dynamic, yarn and llama3 are supported)", quoted(type)));
}

Result<> read_rope(const Json& json, DenseConfig& config) {
  DI_TRY(const int32_t max_position, json.count("max_position_embeddings", 1, DenseConfig::kMaxContext));
  config.rope.original_context = max_position;
  DI_TRY(config.rope.theta, json.number_or("rope_theta", 10000, kMinTheta, kMaxTheta));
  DI_TRY(const auto newer, json.child("rope_parameters"));
  DI_TRY(const auto classic, json.child("rope_scaling"));
  if (newer) {
    DI_TRY(config.rope.theta, newer->number_or("rope_theta", config.rope.theta, kMinTheta, kMaxTheta));
    DI_TRY(const double rotary, newer->number_or("partial_rotary_factor", 1, 0, 1));
    if (rotary != 1) return newer->unsupported("partial_rotary_factor", "only 1 is supported");
    DI_TRY(read_scaling(*newer, max_position, config));
  } else if (classic) {
    DI_TRY(read_scaling(*classic, max_position, config));
  }
  config.max_context = extended_context(config.rope, max_position);
  return {};
}

// Qwen2 and Qwen3: windows only if use_sliding_window, in the layers that layer_types names or else from max_window_layers on.
// Llama has none (transformers ignores the key there).
Result<> read_windows(const Json& json, DenseConfig& config) {
  config.layer_window.assign(static_cast<size_t>(config.num_hidden_layers), 0);
  DI_TRY(const bool use, json.bool_or("use_sliding_window", false));
  if (config.architecture == DenseArchitecture::kLlama || !use || !json.has("sliding_window")) return {};
  DI_TRY(const int32_t window, json.count("sliding_window", 1, DenseConfig::kMaxContext));
  const auto types = json.find("layer_types");
  if (!types) {
    DI_TRY(const int32_t first, json.count_or("max_window_layers", 28, 0, DenseConfig::kMaxLayers));
    for (int32_t i = first; i < config.num_hidden_layers; ++i) config.layer_window[static_cast<size_t>(i)] = window;
    return {};
  }
  simdjson::dom::array array;
  if (types->get(array) != simdjson::SUCCESS || array.size() != config.layer_window.size()) {
    return json.wrong("layer_types", "is not a list of one type a layer");
  }
  size_t layer = 0;
  for (const simdjson::dom::element element : array) {
    std::string_view type;
    if (element.get(type) != simdjson::SUCCESS) return json.wrong("layer_types", "is not a list of strings");
    if (type != "full_attention" && type != "sliding_attention") return json.unsupported("layer_types", quoted(type));
    config.layer_window[layer++] = type == "sliding_attention" ? window : 0;
  }
  return {};
}

Result<> read_tokens(const Json& json, std::string_view generation_text, const std::string& path, DenseConfig& config) {
  std::vector<TokenId> bos;
  DI_TRY(json.add_tokens("bos_token_id", config.vocab_size, bos));
  if (!bos.empty()) config.bos_id = bos.front();
  if (!generation_text.empty()) {
    const std::string generation_path = path.substr(0, path.rfind('/') + 1) + "generation_config.json";
    simdjson::dom::parser parser;
    DI_TRY(const Json generation, parse(parser, generation_text, generation_path));
    DI_TRY(generation.add_tokens("eos_token_id", config.vocab_size, config.eos_ids));
  }
  return json.add_tokens("eos_token_id", config.vocab_size, config.eos_ids);
}

}  // namespace

Result<DenseConfig> dense_config_from_json(std::string_view config_json, std::string_view generation_json,
                                           const std::string& path) {
  simdjson::dom::parser parser;
  DI_TRY(const Json json, parse(parser, config_json, path));
  DenseConfig config;
  config.naming = TensorNaming::kHuggingFace;
  DI_TRY(config.architecture, read_architecture(json));
  DI_TRY(reject_foreign(json));
  DI_TRY(config.num_hidden_layers, json.count("num_hidden_layers", 1, DenseConfig::kMaxLayers));
  DI_TRY(config.hidden_size, json.count("hidden_size", 1, DenseConfig::kMaxWidth));
  DI_TRY(config.intermediate_size, json.count("intermediate_size", 1, DenseConfig::kMaxWidth));
  DI_TRY(config.vocab_size, json.count("vocab_size", 1, DenseConfig::kMaxVocab));
  DI_TRY(read_heads(json, config));
  DI_TRY(const double eps, json.number("rms_norm_eps", 1e-12, 0.1));
  config.rms_norm_eps = static_cast<float>(eps);
  DI_TRY(read_rope(json, config));
  DI_TRY(read_windows(json, config));
  DI_TRY(const bool attention_bias, json.bool_or("attention_bias", false));
  // Qwen2 has them without a key, and never on the output.
  config.qkv_bias = config.architecture == DenseArchitecture::kQwen2 || attention_bias;
  config.output_bias = config.architecture != DenseArchitecture::kQwen2 && attention_bias;
  config.qk_norm = config.architecture == DenseArchitecture::kQwen3;
  DI_TRY(config.tied_head, json.bool_or("tie_word_embeddings", false));
  DI_TRY(read_tokens(json, generation_json, path, config));
  return config;
}

Result<DenseConfig> dense_config_from_folder(const std::string& folder) {
  const std::string path = folder + "/config.json";
  DI_TRY(const std::string text, io::read_small_file(path, kMaxConfigBytes));
  auto generation = io::read_small_file(folder + "/generation_config.json", kMaxConfigBytes);
  if (!generation && generation.error().code != Code::kNotFound) return std::move(generation).error();
  return dense_config_from_json(text, generation ? std::string_view(*generation) : std::string_view(), path);
}

}  // namespace deepinfer::model
