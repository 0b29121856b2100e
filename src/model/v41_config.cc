#include "model/v41_config.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <limits>
#include <simdjson.h>
#include <tuple>

namespace deepinfer::model {
namespace {

using simdjson::dom::element;
using simdjson::dom::object;

// One object of the file in which keys may have two spellings; a file that has both must mean the same by them. Keeps the first error; later
// reads then do nothing.
class Keys {
 public:
  Keys(object json, std::string path, std::string prefix, std::optional<Error>& error)
      : json_(json), path_(std::move(path)), prefix_(std::move(prefix)), error_(error) {}

  // The value under the names (separated by '|'); null counts as absent.
  std::optional<element> find(std::string_view names) {
    std::optional<element> found;
    for (std::string_view rest = names; !rest.empty();) {
      const size_t bar = std::min(rest.find('|'), rest.size());
      element value;
      if (json_.at_key(rest.substr(0, bar)).get(value) == simdjson::SUCCESS && !value.is_null()) {
        if (found && !same(*found, value)) fail(names, fmt::format("and {} contradict each other", rest.substr(0, bar)));
        if (!found) found = value;
      }
      rest.remove_prefix(std::min(bar + 1, rest.size()));
    }
    return found;
  }

  template <class T>
  void integer(std::string_view names, T& out, int64_t low, int64_t high, std::optional<T> fallback = {}) {
    const auto value = find(names);
    if (!value && fallback) {
      out = *fallback;
      return;
    }
    int64_t number = 0;
    if (!value || value->get(number) != simdjson::SUCCESS) return fail(names, value ? "is not a whole number" : "is missing");
    if (number < low || number > high) return fail(names, fmt::format("is {}, outside {}..{}", number, low, high));
    out = static_cast<T>(number);
  }

  template <class T>
  void real(std::string_view names, T& out, double low, double high, std::optional<T> fallback = {}) {
    const auto value = find(names);
    if (!value && fallback) {
      out = *fallback;
      return;
    }
    double number = 0;
    if (!value || value->get(number) != simdjson::SUCCESS) return fail(names, value ? "is not a number" : "is missing");
    if (!(number >= low && number <= high)) return fail(names, fmt::format("is {}, outside {}..{}", number, low, high));
    out = static_cast<T>(number);
  }

  void boolean(std::string_view names, bool& out, bool fallback) {
    const auto value = find(names);
    out = fallback;
    if (value && value->get(out) != simdjson::SUCCESS) fail(names, "is not true or false");
  }

  template <class T>
  void integers(std::string_view names, std::vector<T>& out, int64_t low, int64_t high, size_t max_count) {
    const auto value = find(names);
    simdjson::dom::array array;
    if (!value || value->get(array) != simdjson::SUCCESS) return fail(names, value ? "is not an array" : "is missing");
    for (const element item : array) {
      int64_t number = 0;
      if (item.get(number) != simdjson::SUCCESS) return fail(names, "holds something that is not a whole number");
      if (number < low || number > high) return fail(names, fmt::format("holds {}, outside {}..{}", number, low, high));
      if (out.size() == max_count) return fail(names, fmt::format("has more than {} entries", max_count));
      out.push_back(static_cast<T>(number));
    }
  }

  // Absent, or one of the allowed texts.
  void one_of(std::string_view names, std::initializer_list<std::string_view> allowed) {
    const auto value = find(names);
    if (!value) return;
    std::string_view text;
    if (value->get(text) != simdjson::SUCCESS) return fail(names, "is not a string");
    if (std::find(allowed.begin(), allowed.end(), text) == allowed.end())
      fail(names, fmt::format("is '{}', which this version does not know", text), Code::kUnsupported);
  }

  void fail(std::string_view names, const std::string& what, Code code = Code::kCorruption) {
    if (!error_) error_ = Error{code, fmt::format("{}: {}{} {}", path_, prefix_, names.substr(0, names.find('|')), what)};
  }

 private:
  static bool same(element a, element b) {  // 16 and 16.0 are
    double x = 0, y = 0;
    if (a.get(x) == simdjson::SUCCESS && b.get(y) == simdjson::SUCCESS) return x == y;
    return simdjson::minify(a) == simdjson::minify(b);
  }

  object json_;
  std::string path_, prefix_;
  std::optional<Error>& error_;
};

constexpr int64_t kInt32Max = std::numeric_limits<int32_t>::max();

void read_attention(Keys& k, V41Config& c) {
  constexpr int32_t kWidth = V41Config::kMaxWidth;
  k.integer("num_attention_heads|n_heads", c.num_attention_heads, 1, 4096);
  k.integer("head_dim", c.head_dim, 32, 4096);
  k.integer("qk_rope_head_dim|rope_head_dim", c.qk_rope_head_dim, 2, 4096);
  k.integer("q_lora_rank", c.q_lora_rank, 32, kWidth);
  k.integer("o_groups", c.o_groups, 1, 1024);
  k.integer("o_lora_rank", c.o_lora_rank, 1, kWidth);
  k.real("rms_norm_eps|norm_eps", c.rms_norm_eps, 0, 1);
  k.integer("sliding_window|window_size", c.sliding_window, 1, V41Config::kMaxWindow);
  k.integers("compress_ratios", c.compress_ratios, 0, 2, V41Config::kMaxLayers);
  k.integers("kv_source_layer_ids|kv_source_layers", c.kv_source_layer_ids, 0, V41Config::kMaxLayers, V41Config::kMaxLayers);
  k.integers("index_source_layer_ids|index_source_layers", c.index_source_layer_ids, 0, V41Config::kMaxLayers, V41Config::kMaxLayers);
  k.integer<int32_t>("candidate_source_layer_id|candidate_source_layer", c.candidate_source_layer_id, -1, V41Config::kMaxLayers, -1);
  if (c.candidate_source_layer_id >= 0) {
    k.integer("candidate_topk_blocks", c.candidate_topk_blocks, 1, 1 << 24);
    k.integer("candidate_block_size", c.candidate_block_size, 1, 1 << 16);
  }
  k.integer("index_n_heads", c.index_n_heads, 1, 4096);
  k.integer("index_head_dim", c.index_head_dim, 32, 4096);
  k.integer("index_topk", c.index_topk, 1, V41Config::kMaxTopk);
}

void read_rope(Keys& k, V41Config& c, const std::string& path, std::optional<Error>& error) {
  k.real("rope_theta", c.rope_theta, 1, 1e12);
  k.real("compress_rope_theta", c.compress_rope_theta, 1, 1e12);
  const auto scaling = k.find("rope_scaling|rope_parameters");
  object json;
  if (scaling && scaling->get(json) == simdjson::SUCCESS) {
    Keys s(json, path, "rope_scaling.", error);
    s.one_of("rope_type|type", {"yarn"});
    s.real("factor", c.rope_factor, 1, 1e6);
    s.integer("original_max_position_embeddings", c.rope_original_context, 1, V41Config::kMaxContext);
    s.real("beta_fast", c.rope_beta_fast, 1e-3, 1e6, std::optional<double>(32));
    s.real("beta_slow", c.rope_beta_slow, 1e-3, 1e6, std::optional<double>(1));
  } else if (scaling) {
    k.fail("rope_scaling", "is not an object");
  } else {
    k.real("rope_factor", c.rope_factor, 1, 1e6, std::optional<double>(1));
    k.integer("original_seq_len", c.rope_original_context, 1, V41Config::kMaxContext);
    k.real("beta_fast", c.rope_beta_fast, 1e-3, 1e6, std::optional<double>(32));
    k.real("beta_slow", c.rope_beta_slow, 1e-3, 1e6, std::optional<double>(1));
  }
  // The released file of the official code has no length: there it is a limit of the run. What YaRN extends the model to is its own.
  const double extended = c.rope_factor * c.rope_original_context;
  std::optional<int32_t> by_rope;
  if (extended >= 1 && extended <= V41Config::kMaxContext) by_rope = static_cast<int32_t>(extended);
  k.integer("max_position_embeddings|max_seq_len", c.max_position_embeddings, 1, V41Config::kMaxContext, by_rope);
}

void read_experts(Keys& k, V41Config& c) {
  k.integer("n_routed_experts", c.n_routed_experts, 1, V41Config::kMaxExperts);
  k.integer("n_shared_experts", c.n_shared_experts, 1, 1);
  k.integer("num_experts_per_tok|n_activated_experts", c.num_experts_per_tok, 1, 64);
  k.integer("moe_intermediate_size|moe_inter_dim", c.moe_intermediate_size, 32, V41Config::kMaxWidth);
  k.one_of("scoring_func|score_func", {"sqrtsoftplus"});
  k.one_of("topk_method", {"noaux_tc"});
  k.one_of("hidden_act", {"silu"});
  k.boolean("norm_topk_prob", c.norm_topk_prob, true);
  k.real("routed_scaling_factor|route_scale", c.routed_scaling_factor, 1e-6, 1e6);
  k.real("swiglu_limit", c.swiglu_limit, 1e-6, 1e30);
  k.real("gate_temp", c.gate_temp, 1e-6, 1e6, std::optional<float>(1.0f));
  int32_t streams = 0;
  k.integer("hc_mult", streams, V41Config::kStreams, V41Config::kStreams);
  k.integer("hc_sinkhorn_iters", c.hc_sinkhorn_iters, 1, 1000);
  k.real("hc_eps", c.hc_eps, 0, 1);
}

void read_engram_and_draft(Keys& k, V41Config& c) {
  constexpr size_t kLayers = V41Config::kMaxLayers;
  if (k.find("engram_layer_ids")) k.integers("engram_layer_ids", c.engram_layer_ids, 0, V41Config::kMaxLayers, kLayers);
  if (!c.engram_layer_ids.empty()) {
    k.integers("engram_num_embeddings", c.engram_num_embeddings, 1, int64_t{1} << 40, kLayers);
    k.integer("engram_vocab_size", c.engram_vocab_size, 2, int64_t{1} << 40);
    k.integer("engram_max_ngram_size", c.engram_max_ngram_size, 2, 8);
    k.integer("engram_n_heads", c.engram_n_heads, 1, 64);
    k.integer("engram_head_dim", c.engram_head_dim, 32, 1 << 16);
    k.integer("engram_pad_token_id|engram_pad_id", c.engram_pad_token_id, 0, kInt32Max);
    k.integer("engram_compressed_vocab_size", c.engram_compressed_vocab_size, 1, V41Config::kMaxVocab);
    if (const auto map = k.find("engram_token_map")) {
      std::string_view name;
      if (map->get(name) != simdjson::SUCCESS || name.find('/') != std::string_view::npos || !name.ends_with(".json"))
        k.fail("engram_token_map", "is not the name of a .json file in the model's folder");
      c.engram_token_map = name;
    }
  }
  k.integer<int32_t>("num_nextn_predict_layers|n_mtp_layers", c.num_draft_stages, 0, 16, 0);
  if (c.num_draft_stages > 0) {
    k.integer("dspark_block_size", c.dspark_block_size, 1, 64);
    k.integer("dspark_noise_token_id", c.dspark_noise_token_id, 0, kInt32Max);
    k.integers("dspark_target_layer_ids", c.dspark_target_layer_ids, 0, V41Config::kMaxLayers, 16);
    k.integer("dspark_markov_rank", c.dspark_markov_rank, 1, 1 << 16);
    k.integer("dspark_n_routed_experts", c.dspark_n_routed_experts, 1, V41Config::kMaxExperts);
    k.integer("dspark_num_experts_per_tok|dspark_n_activated_experts", c.dspark_num_experts_per_tok, 1, 64);
  }
}

// Hugging Face nests the vision keys without a prefix, the official file has them flat with one.
V41Vision read_vision(Keys& k, bool nested) {
  V41Vision v;
  const auto name = [&](std::string_view hf, std::string_view official) { return nested ? hf : official; };
  k.integer(name("num_hidden_layers", "vision_n_layers"), v.num_hidden_layers, 1, V41Config::kMaxLayers);
  k.integer(name("hidden_size", "vision_dim"), v.hidden_size, 4, 1 << 16);
  k.integer(name("num_attention_heads", "vision_n_heads"), v.num_attention_heads, 1, 1024);
  k.integer(name("intermediate_size", "vision_inter_dim"), v.intermediate_size, 1, 1 << 17);
  k.integer(name("patch_size", "vision_patch_size"), v.patch_size, 1, 1024);
  k.real(name("rope_theta", "vision_rope_theta"), v.rope_theta, 1, 1e12);
  k.integer(name("downsample_ratio", "vision_downsample_ratio"), v.downsample_ratio, 1, 64);
  k.integer(name("max_image_tokens", "vision_max_n_token"), v.max_image_tokens, 4, 1 << 20);
  k.integer(name("min_pixels", "vision_min_pixels"), v.min_pixels, 1, int64_t{1} << 32);
  if (k.find(name("max_wh_ratio", "vision_max_wh_ratio"))) {
    double ratio = 0;
    k.real(name("max_wh_ratio", "vision_max_wh_ratio"), ratio, 1, 1e6);
    v.max_wh_ratio = ratio;
  }
  return v;
}

bool ascending(const std::vector<int32_t>& ids) {
  return std::adjacent_find(ids.begin(), ids.end(), [](int32_t a, int32_t b) { return a >= b; }) == ids.end();
}

bool has_id(const std::vector<int32_t>& ids, int32_t id) { return std::binary_search(ids.begin(), ids.end(), id); }

int32_t source_of(const V41Config& c, const std::vector<int32_t>& sources, int32_t layer) {
  if (c.compress_ratio(layer) == 0) return -1;
  const auto after = std::upper_bound(sources.begin(), sources.end(), layer);
  return after == sources.begin() ? -1 : *(after - 1);
}

// What is wrong between the sources of compressed rows and of selections; empty: nothing.
std::string check_sources(const V41Config& c) {
  if (!ascending(c.kv_source_layer_ids)) return "kv_source_layer_ids do not ascend";
  if (!ascending(c.index_source_layer_ids)) return "index_source_layer_ids do not ascend";
  if (c.kv_source_layer_ids.empty()) return "kv_source_layer_ids is empty";
  for (const int32_t id : c.index_source_layer_ids)
    if (id >= c.num_hidden_layers) return fmt::format("index_source_layer_ids names layer {} of {}", id, c.num_hidden_layers);
  for (const int32_t id : c.kv_source_layer_ids) {
    if (!has_id(c.index_source_layer_ids, id)) return fmt::format("KV source layer {} is not an index source", id);
    if (c.compress_ratio(id) == 0) return fmt::format("KV source layer {} has compress ratio 0", id);
  }
  for (int32_t layer = 0; layer < c.num_hidden_layers; ++layer) {
    if (c.compress_ratio(layer) == 0) continue;
    const int32_t source = c.kv_source(layer);
    if (source < 0) return fmt::format("layer {} has compress ratio {} and no KV source at or before it", layer, c.compress_ratio(layer));
    if (c.compress_ratio(source) != c.compress_ratio(layer)) return fmt::format("layer {} and its KV source {} differ in compress ratio", layer, source);
  }
  for (size_t i = static_cast<size_t>(c.num_hidden_layers); i < c.compress_ratios.size(); ++i)
    if (c.compress_ratios[i] != 0) return "compress_ratios of the draft stages are not 0";
  if (c.narrowing_layer() + 1 >= c.num_hidden_layers) return fmt::format("no layer follows the last KV source {}", c.narrowing_layer());
  const int32_t candidates = c.candidate_source_layer_id;
  if (candidates >= 0) {
    if (!has_id(c.kv_source_layer_ids, candidates)) return fmt::format("candidate_source_layer_id {} is not a KV source", candidates);
    for (const int32_t id : c.index_source_layer_ids)
      if (id > candidates && c.kv_source(id) != candidates)
        return fmt::format("index source layer {} reads another KV source than candidate_source_layer_id {}", id, candidates);
  }
  return {};
}

std::string check_engram_and_draft(const V41Config& c) {
  if (!ascending(c.engram_layer_ids)) return "engram_layer_ids do not ascend";
  if (c.engram_num_embeddings.size() != c.engram_layer_ids.size()) return "engram_num_embeddings does not have an entry an Engram layer";
  for (const int32_t id : c.engram_layer_ids) {
    if (id >= c.num_hidden_layers) return fmt::format("engram_layer_ids names layer {} of {}", id, c.num_hidden_layers);
    if (id > c.narrowing_layer()) return fmt::format("Engram layer {} lies after the last KV source", id);
  }
  if (!c.engram_layer_ids.empty() && c.engram_pad_token_id >= c.vocab_size) return "engram_pad_token_id is not in the vocabulary";
  if (c.engram_head_dim % 32 != 0) return "engram_head_dim is not a multiple of 32";
  if (c.num_draft_stages > 0) {
    if (c.dspark_target_layer_ids.empty() || !ascending(c.dspark_target_layer_ids)) return "dspark_target_layer_ids do not ascend";
    if (c.dspark_target_layer_ids.back() >= c.num_hidden_layers) return "dspark_target_layer_ids names a layer that is not there";
    if (c.dspark_noise_token_id >= c.vocab_size) return "dspark_noise_token_id is not in the vocabulary";
    if (c.dspark_num_experts_per_tok > c.dspark_n_routed_experts) return "dspark_num_experts_per_tok is above dspark_n_routed_experts";
  }
  return {};
}

std::string check_shapes(const V41Config& c) {
  const size_t needed = static_cast<size_t>(c.num_hidden_layers) + static_cast<size_t>(c.num_draft_stages);
  if (c.compress_ratios.size() < needed) return fmt::format("compress_ratios has {} entries for {} layers and draft stages", c.compress_ratios.size(), needed);
  for (const auto& [name, value] : {std::pair("hidden_size", c.hidden_size), {"q_lora_rank", c.q_lora_rank}, {"head_dim", c.head_dim},
                                    {"moe_intermediate_size", c.moe_intermediate_size}, {"index_head_dim", c.index_head_dim},
                                    {"o_lora_rank", c.o_lora_rank}})
    if (value % 32 != 0) return fmt::format("{} {} is not a multiple of the quantisation block of 32", name, value);
  if (c.num_attention_heads % c.o_groups != 0) return fmt::format("num_attention_heads {} is not a multiple of o_groups {}", c.num_attention_heads, c.o_groups);
  if (c.qk_rope_head_dim % 2 != 0 || c.qk_rope_head_dim > c.head_dim || c.qk_rope_head_dim > c.index_head_dim)
    return fmt::format("qk_rope_head_dim {} does not fit the heads", c.qk_rope_head_dim);
  if (c.num_experts_per_tok > c.n_routed_experts) return "num_experts_per_tok is above n_routed_experts";
  if (c.image_token_id >= c.vocab_size) return "image_token_id is not in the vocabulary";
  if (c.bos_id >= c.vocab_size || c.eos_id >= c.vocab_size) return "bos_token_id or eos_token_id is not in the vocabulary";
  if (c.vision && c.vision->hidden_size % (4 * c.vision->num_attention_heads) != 0)
    return "vision_config: hidden_size is not a multiple of four times num_attention_heads";
  return {};
}

}  // namespace

int32_t V41Config::kv_source(int32_t layer) const { return source_of(*this, kv_source_layer_ids, layer); }
int32_t V41Config::index_source(int32_t layer) const { return source_of(*this, index_source_layer_ids, layer); }
bool V41Config::is_kv_source(int32_t layer) const { return has_id(kv_source_layer_ids, layer); }
bool V41Config::is_index_source(int32_t layer) const { return has_id(index_source_layer_ids, layer); }

int32_t V41Config::engram_index(int32_t layer) const {
  const auto at = std::lower_bound(engram_layer_ids.begin(), engram_layer_ids.end(), layer);
  return at != engram_layer_ids.end() && *at == layer ? static_cast<int32_t>(at - engram_layer_ids.begin()) : -1;
}

bool V41Config::is_reindex(int32_t layer) const {
  return candidate_source_layer_id >= 0 && layer > candidate_source_layer_id && is_index_source(layer);
}

bool is_v41_config(std::string_view config_json) {
  simdjson::dom::parser parser;
  object root;
  if (parser.parse(simdjson::padded_string(config_json)).get(root) != simdjson::SUCCESS) return false;
  std::string_view type;
  if (root.at_key("model_type").get(type) == simdjson::SUCCESS) return type == "deepseek_v41" || type == "deepseek_v41_text";
  return root.at_key("kv_source_layers").error() == simdjson::SUCCESS;  // of the official inference code, which names no type
}

Result<V41Config> v41_config_from_json(std::string_view config_json, const std::string& path) {
  simdjson::dom::parser parser;
  object root;
  if (parser.parse(simdjson::padded_string(config_json)).get(root) != simdjson::SUCCESS)
    return Error{Code::kCorruption, fmt::format("{}: not a JSON object", path)};
  std::optional<Error> error;
  V41Config c;
  object text = root, vision;
  const bool nested = root.at_key("text_config").get(text) == simdjson::SUCCESS;
  Keys top(root, path, "", error), keys(text, path, nested ? "text_config." : "", error);
  keys.integer("vocab_size", c.vocab_size, 1, V41Config::kMaxVocab);
  keys.integer("hidden_size|dim", c.hidden_size, 32, V41Config::kMaxWidth);
  keys.integer("num_hidden_layers|n_layers", c.num_hidden_layers, 1, V41Config::kMaxLayers);
  read_attention(keys, c);
  read_rope(keys, c, path, error);
  read_experts(keys, c);
  read_engram_and_draft(keys, c);
  // Beside text_config or inside it, as the file's writer likes.
  for (const auto& [name, id, absent] : {std::tuple("image_token_id", &c.image_token_id, -1), {"bos_token_id", &c.bos_id, 0}, {"eos_token_id", &c.eos_id, 1}}) {
    keys.integer<TokenId>(name, *id, 0, kInt32Max, absent);
    const TokenId inside = *id;
    top.integer<TokenId>(name, *id, 0, kInt32Max, inside);
    if (*id != inside && keys.find(name)) top.fail(name, fmt::format("is {}, and {} in text_config", *id, inside));
  }
  if (root.at_key("vision_config").get(vision) == simdjson::SUCCESS) {
    Keys vision_keys(vision, path, "vision_config.", error);
    c.vision = read_vision(vision_keys, true);
  } else if (top.find("vision_n_layers")) {
    c.vision = read_vision(top, false);
  }
  if (error) return *std::move(error);
  for (const auto check : {check_shapes, check_sources, check_engram_and_draft})
    if (std::string what = check(c); !what.empty()) return Error{Code::kCorruption, fmt::format("{}: {}", path, what)};
  if (c.vision && c.image_token_id < 0) return Error{Code::kCorruption, fmt::format("{}: image_token_id is missing", path)};
  return c;
}

}  // namespace deepinfer::model
