#include "model/v41_synth.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <vector>

#include "base/half.h"
#include "base/rng.h"
#include "base/text.h"
#include "base/units.h"
#include "io/output_file.h"
#include "model/safetensors_writer.h"
#include "model/synth_parts.h"
#include "model/v41_engram.h"
#include "model/v41_weights.h"

namespace deepinfer::model {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kNames[] = {"v4.1", "v4.1-tiny"};
constexpr int64_t kSliceEngramVocab = 1 << 14;
constexpr const char* kTokenMap = "engram_token_map.json";
// Control tokens in front of and behind the bytes; the image placeholder is the last.
constexpr std::string_view kHeadTokens[] = {"<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜▁pad▁｜>"};
constexpr std::string_view kTailTokens[] = {"<｜User｜>", "<｜Assistant｜>", "<think>", "</think>", "<｜deepseek_image｜>"};

V41Config flash_shape() {
  V41Config c;
  c.vocab_size = 129280, c.hidden_size = 5120, c.num_hidden_layers = 40;
  c.num_attention_heads = 64, c.head_dim = 512, c.qk_rope_head_dim = 64, c.q_lora_rank = 1280, c.o_groups = 8, c.o_lora_rank = 1024;
  c.sliding_window = 128, c.candidate_topk_blocks = 2048, c.candidate_block_size = 8;
  c.index_n_heads = 32, c.index_head_dim = 128, c.index_topk = 512;
  c.compress_rope_theta = 160000, c.rope_original_context = 65536, c.max_position_embeddings = 1 << 20;
  c.n_routed_experts = 384, c.num_experts_per_tok = 6, c.moe_intermediate_size = 2304;
  c.engram_vocab_size = 16'000'000, c.engram_n_heads = 8, c.engram_head_dim = 256, c.engram_compressed_vocab_size = 99092;
  c.num_draft_stages = 3, c.dspark_block_size = 5, c.dspark_markov_rank = 256, c.dspark_n_routed_experts = 128, c.dspark_num_experts_per_tok = 3;
  c.dspark_noise_token_id = 128799;
  c.vision = V41Vision{.num_hidden_layers = 32, .hidden_size = 1024, .num_attention_heads = 16, .intermediate_size = 2816, .patch_size = 14,
                       .downsample_ratio = 3, .max_image_tokens = 1024, .min_pixels = 295936, .rope_theta = 10000, .max_wh_ratio = {}};
  return c;
}

V41Config tiny_shape() {
  V41Config c;
  c.vocab_size = 320, c.hidden_size = 128, c.num_hidden_layers = 8;
  c.num_attention_heads = 4, c.head_dim = 64, c.qk_rope_head_dim = 16, c.q_lora_rank = 64, c.o_groups = 2, c.o_lora_rank = 32;
  c.sliding_window = 8, c.candidate_topk_blocks = 3, c.candidate_block_size = 2;
  c.index_n_heads = 8, c.index_head_dim = 32, c.index_topk = 4;
  c.compress_rope_theta = 40000, c.rope_original_context = 32, c.max_position_embeddings = 4096;
  c.n_routed_experts = 8, c.num_experts_per_tok = 2, c.moe_intermediate_size = 64;
  c.engram_vocab_size = 97, c.engram_n_heads = 2, c.engram_head_dim = 32, c.engram_compressed_vocab_size = 256;
  c.num_draft_stages = 2, c.dspark_block_size = 3, c.dspark_markov_rank = 32, c.dspark_n_routed_experts = 4, c.dspark_num_experts_per_tok = 2;
  c.dspark_noise_token_id = 7;
  c.vision = V41Vision{.num_hidden_layers = 2, .hidden_size = 64, .num_attention_heads = 2, .intermediate_size = 96, .patch_size = 4,
                       .downsample_ratio = 3, .max_image_tokens = 40, .min_pixels = 144, .rope_theta = 10000, .max_wh_ratio = {}};
  return c;
}

// The released pattern (model.md 1.3): two window layers, an encoder source every 6 layers, a decoder source, a Reindex every 4 after it.
void assign_roles(V41Config& c) {
  const int32_t layers = c.num_hidden_layers, encoder = layers / 2, windowed = std::clamp(encoder - 1, 0, 2);
  c.compress_ratios.clear();
  for (int32_t i = 0; i < layers; ++i) c.compress_ratios.push_back(i < windowed ? 0 : i < encoder ? 2 : 1);
  c.compress_ratios.insert(c.compress_ratios.end(), static_cast<size_t>(c.num_draft_stages), 0);
  c.kv_source_layer_ids.clear();
  for (int32_t i = windowed; i < encoder; i += 6) c.kv_source_layer_ids.push_back(i);
  c.kv_source_layer_ids.push_back(encoder);
  c.index_source_layer_ids = c.kv_source_layer_ids;
  for (int32_t i = encoder + 4; i < layers; i += 4) c.index_source_layer_ids.push_back(i);
  c.candidate_source_layer_id = encoder;
  const int32_t first = std::min(1, encoder - 1), second = encoder * 14 / 20;
  c.engram_layer_ids = {first};
  if (second > first) c.engram_layer_ids.push_back(second);
  c.dspark_target_layer_ids.clear();
  if (c.num_draft_stages > 0)
    for (int32_t i = std::max(0, layers - 3); i < layers; ++i) c.dspark_target_layer_ids.push_back(i);
}

std::string vision_json(const V41Vision& v) {
  return fmt::format(
      R"("vision_config":{{"model_type":"deepseek_v41_vision","num_hidden_layers":{},"hidden_size":{},"num_attention_heads":{},"intermediate_size":{},)"
      R"("patch_size":{},"rope_theta":{},"downsample_ratio":{},"max_image_tokens":{},"min_pixels":{},"max_wh_ratio":{}}},)",
      v.num_hidden_layers, v.hidden_size, v.num_attention_heads, v.intermediate_size, v.patch_size, v.rope_theta, v.downsample_ratio, v.max_image_tokens,
      v.min_pixels, v.max_wh_ratio ? fmt::format("{}", *v.max_wh_ratio) : "null");
}

// A working byte-level BPE without merges, filled up with tokens that no text encodes to.
std::string tokenizer_json(int32_t vocab_size) {
  std::vector<std::string> vocabulary(std::begin(kHeadTokens), std::end(kHeadTokens));
  for (const std::string& spelling : byte_spellings()) vocabulary.push_back(spelling == "\"" || spelling == "\\" ? "\\" + spelling : spelling);
  const auto first_tail = static_cast<size_t>(vocab_size) - std::size(kTailTokens);
  while (vocabulary.size() < first_tail) vocabulary.push_back(fmt::format("filler{}", vocabulary.size()));
  std::string vocab, added;
  for (size_t id = 0; id < vocabulary.size(); ++id) vocab += fmt::format("{}\"{}\":{}", id == 0 ? "" : ",", vocabulary[id], id);
  const auto add = [&](std::string_view text, size_t id) {
    added += fmt::format(R"({}{{"id":{},"content":"{}","single_word":false,"lstrip":false,"rstrip":false,"normalized":false,"special":true}})",
                         added.empty() ? "" : ",", id, text);
  };
  for (size_t i = 0; i < std::size(kHeadTokens); ++i) add(kHeadTokens[i], i);
  for (size_t i = 0; i < std::size(kTailTokens); ++i) add(kTailTokens[i], first_tail + i);
  return fmt::format(
      R"({{"version":"1.0","added_tokens":[{}],"normalizer":{{"type":"Sequence","normalizers":[]}},)"
      R"("pre_tokenizer":{{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":true}},)"
      R"("decoder":{{"type":"ByteLevel","add_prefix_space":true,"trim_offsets":true,"use_regex":true}},)"
      R"("model":{{"type":"BPE","dropout":null,"unk_token":null,"fuse_unk":false,"byte_fallback":false,"vocab":{{{}}},"merges":[]}}}})",
      added, vocab);
}

// Ids count up in the order of first sight, as derived maps do.
std::string token_map_json(const V41Config& c) {
  std::string json = "[";
  for (int32_t id = 0; id < c.vocab_size; ++id) json += fmt::format("{}{}", id == 0 ? "" : ",", id % c.engram_compressed_vocab_size);
  return json + "]";
}

constexpr float kCode8Deviation = 64;     // of the codes below, as numbers
constexpr float kCode4Deviation = 2.926f; // of e2m1 when all 16 codes are equally likely

// e4m3 codes with a bell-shaped spread (a logistic one): what a random byte stands for.
const std::array<uint8_t, 256>& bell_codes() {
  static const std::array<uint8_t, 256> codes = [] {
    std::array<uint8_t, 256> table{};
    for (size_t i = 0; i < table.size(); ++i) {
      const double p = (static_cast<double>(i) + 0.5) / 256, x = std::log(p / (1 - p)) * std::sqrt(3.0) / M_PI;
      table[i] = to_e4m3(static_cast<float>(x) * kCode8Deviation).bits;
    }
    return table;
  }();
  return codes;
}

// Mean and standard deviation of a tensor's numbers; of a block-scaled matrix, given its inputs, those of its products with the scales.
struct Spread {
  float mean = 0, deviation = 1;
};
Spread spread_of(std::string_view name, int64_t inputs) {
  const float by_inputs = 1 / std::sqrt(static_cast<float>(inputs));
  if (contains(name, "norm") || name.ends_with("q_weight") || name.ends_with("k_weight")) return {1, 0.2f};
  if (name.ends_with("_fn")) return {0, by_inputs};
  if (name.ends_with("_base")) return {0, 0.7f};
  if (name.ends_with("_scale")) return {0.75f, 0.15f};  // of hyper-connections
  if (name.ends_with("bias_vl")) return {0, 0.4f};
  if (name.ends_with("bias")) return {0, 0.1f};
  if (name.ends_with("attn_sink") || name.starts_with("image_") || contains(name, "embed.weight")) return {0, 1};
  if (contains(name, "engram.embed")) return {0, 0.5f};
  if (contains(name, "wo_b.") || contains(name, ".w2.")) return {0, 0.06f * by_inputs};
  return {0, (name == "head.weight" ? 3.0f : 1.2f) * by_inputs};
}

// Writes the rows of one tensor.
class TensorFiller {
 public:
  TensorFiller(const V41Tensor& tensor, uint64_t seed, uint64_t index) : tensor_(tensor), seed_(seed), index_(index), cols_(tensor.shape.back()) {
    const bool scale = tensor.dtype == DType::kF8_E8M0;
    spread_ = spread_of(tensor.name, scale ? cols_ * 32 : cols_);
    const float code = contains(tensor.name, ".experts.") ? kCode4Deviation : kCode8Deviation;
    exponent_ = 127 + static_cast<int>(std::lround(std::log2(spread_.deviation / code)));
    bytes_.resize(static_cast<size_t>(cols_ * dtype_info(tensor.dtype).block_bytes));
    if (tensor.dtype == DType::kF32 || tensor.dtype == DType::kBF16) numbers_.resize(static_cast<size_t>(cols_));
  }

  void write(io::OutputFile& file) {
    const int64_t rows = tensor_.num_bytes() / static_cast<int64_t>(bytes_.size());
    for (int64_t row = 0; row < rows && file.ok(); ++row) {
      if (numbers_.empty()) fill_codes(static_cast<uint64_t>(row));
      else fill_numbers(static_cast<uint64_t>(row));
      file.write(bytes_.data(), bytes_.size());
    }
  }

 private:
  void fill_codes(uint64_t row) {
    const uint64_t per_row = (bytes_.size() + 15) / 16;
    for (size_t i = 0; i < bytes_.size(); i += 16) {
      const auto words = philox(seed_, row * per_row + i / 16, index_);
      for (size_t j = 0; j < 16 && i + j < bytes_.size(); ++j) bytes_[i + j] = code(static_cast<uint8_t>(words[j / 4] >> j % 4 * 8));
    }
  }

  uint8_t code(uint8_t random) const {
    if (tensor_.dtype == DType::kF8_E4M3) return bell_codes()[random];
    if (tensor_.dtype == DType::kF8_E8M0) return static_cast<uint8_t>(exponent_ - 1 + random % 3);  // every block has its own magnitude
    return random;
  }

  void fill_numbers(uint64_t row) {
    random_row(seed_, index_, row, spread_.deviation, numbers_);
    for (float& x : numbers_) x += spread_.mean;
    if (tensor_.name.ends_with("_base"))  // streams mix mostly with themselves: the diagonal of comb, behind pre and post
      for (size_t k = 0; k < 4; ++k) numbers_[8 + 5 * k] += 1.2f;
    for (size_t i = 0; i < numbers_.size(); ++i) {
      if (tensor_.dtype == DType::kF32) {
        std::memcpy(&bytes_[4 * i], &numbers_[i], 4);
      } else {
        const bf16 x = to_bf16(numbers_[i]);
        std::memcpy(&bytes_[2 * i], &x, 2);
      }
    }
  }

  const V41Tensor& tensor_;
  uint64_t seed_, index_;
  int64_t cols_;
  Spread spread_;
  int exponent_ = 0;  // of e8m0 scales, biased
  std::vector<uint8_t> bytes_;
  std::vector<float> numbers_;
};

// The indices of `tensors` that a shard holds, wider numbers first.
std::vector<std::vector<size_t>> cut_into_shards(const std::vector<V41Tensor>& tensors, int64_t shard_bytes) {
  std::vector<std::vector<size_t>> shards(1);
  int64_t filled = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (filled >= shard_bytes) {
      shards.emplace_back();
      filled = 0;
    }
    shards.back().push_back(i);
    filled += tensors[i].num_bytes();
  }
  const auto place = [&](size_t i) { return std::pair(-dtype_info(tensors[i].dtype).block_bytes, i); };
  for (auto& shard : shards) std::sort(shard.begin(), shard.end(), [&](size_t a, size_t b) { return place(a) < place(b); });
  return shards;
}

Result<> write_text(const std::string& path, std::string_view text) {
  io::OutputFile file(path);
  file.write(text);
  return file.finish();
}

Result<> write_shards(const std::string& folder, const std::vector<V41Tensor>& tensors, const V41SynthOptions& options) {
  const auto shards = cut_into_shards(tensors, options.shard_bytes);
  std::string map;
  int64_t total = 0;
  for (size_t s = 0; s < shards.size(); ++s) {
    const std::string name = fmt::format("model-{:05}-of-{:05}.safetensors", s + 1, shards.size());
    std::vector<SafetensorsEntry> entries;
    for (const size_t i : shards[s]) {
      entries.push_back({tensors[i].name, std::string(dtype_info(tensors[i].dtype).name), tensors[i].shape, tensors[i].num_bytes()});
      map += fmt::format("{}\"{}\":\"{}\"", map.empty() ? "" : ",\n", tensors[i].name, name);
      total += tensors[i].num_bytes();
    }
    io::OutputFile file(folder + "/" + name);
    const std::string header = safetensors_header(entries);
    file.write(header);
    auto num_bytes = static_cast<uint64_t>(header.size());
    for (const size_t i : shards[s]) {
      num_bytes += static_cast<uint64_t>(tensors[i].num_bytes());
      if (!options.sparse) TensorFiller(tensors[i], options.seed, i).write(file);
    }
    DI_TRY(file.finish());
    std::error_code error;
    if (options.sparse) fs::resize_file(folder + "/" + name, num_bytes, error);
    if (error) return Error{Code::kIo, fmt::format("{}/{}: {}", folder, name, error.message())};
  }
  return write_text(folder + "/model.safetensors.index.json", fmt::format("{{\"metadata\":{{\"total_size\":{}}},\"weight_map\":{{\n{}}}}}\n", total, map));
}

Result<> write_all(const std::string& folder, const V41Config& config, const std::vector<V41Tensor>& tensors, const V41SynthOptions& options) {
  DI_TRY(write_text(folder + "/config.json", v41_config_json(config)));
  DI_TRY(write_text(folder + "/tokenizer.json", tokenizer_json(config.vocab_size)));
  if (!config.engram_token_map.empty()) DI_TRY(write_text(folder + "/" + config.engram_token_map, token_map_json(config)));
  return write_shards(folder, tensors, options);
}

}  // namespace

std::span<const std::string_view> v41_synth_names() { return kNames; }

Result<V41Config> v41_synth_shape(std::string_view name, const V41SynthSizes& sizes) {
  if (std::find(std::begin(kNames), std::end(kNames), name) == std::end(kNames))
    return Error{Code::kNotFound, fmt::format("{} is not a DeepSeek-V4.1 shape", name)};
  V41Config c = name == kNames[0] ? flash_shape() : tiny_shape();
  const std::optional<V41Vision> vision = c.vision;
  c.rms_norm_eps = 1e-20f, c.rope_theta = 10000, c.rope_factor = 16;
  c.n_shared_experts = 1, c.routed_scaling_factor = 1.5f, c.swiglu_limit = 10, c.hc_sinkhorn_iters = 20, c.hc_eps = 1e-6f;
  c.engram_max_ngram_size = 4, c.engram_pad_token_id = 2, c.engram_token_map = kTokenMap;
  if (sizes.layers > 0) {
    c.num_hidden_layers = sizes.layers;
    c.num_draft_stages = 0;
    c.vision.reset();
    c.engram_vocab_size = std::min(c.engram_vocab_size, kSliceEngramVocab);
  }
  if (sizes.experts > 0) {
    c.n_routed_experts = sizes.experts;
    c.dspark_n_routed_experts = std::min(c.dspark_n_routed_experts, sizes.experts);
    c.dspark_num_experts_per_tok = std::min(c.dspark_num_experts_per_tok, c.dspark_n_routed_experts);
  }
  if (sizes.experts_per_token > 0) c.num_experts_per_tok = sizes.experts_per_token;
  if (sizes.engram_vocab > 0) c.engram_vocab_size = sizes.engram_vocab;
  if (sizes.draft_stages >= 0) c.num_draft_stages = sizes.draft_stages;
  if (sizes.vision_layers == 0) c.vision.reset();
  if (sizes.vision_layers > 0) {
    c.vision = vision;
    c.vision->num_hidden_layers = sizes.vision_layers;
  }
  if (c.num_hidden_layers < 3) return Error{Code::kInvalidArgument, "a DeepSeek-V4.1 model has 3 layers at least: an encoder, a decoder source and one after it"};
  if (c.num_draft_stages == 0) c.dspark_block_size = c.dspark_markov_rank = c.dspark_n_routed_experts = c.dspark_num_experts_per_tok = 0;
  if (c.vision) c.image_token_id = c.vocab_size - 1;
  assign_roles(c);
  c.engram_num_embeddings = EngramHash::table_rows(c);
  // What reading it back refuses must not be written.
  auto read_back = v41_config_from_json(v41_config_json(c), std::string(name));
  if (!read_back) return Error{Code::kInvalidArgument, read_back.error().message};
  return read_back;
}

std::string v41_config_json(const V41Config& c) {
  std::string text = fmt::format(
      R"("model_type":"deepseek_v41_text","vocab_size":{},"hidden_size":{},"num_hidden_layers":{},"num_attention_heads":{},"num_key_value_heads":1,)"
      R"("head_dim":{},"qk_rope_head_dim":{},"q_lora_rank":{},"o_groups":{},"o_lora_rank":{},"rms_norm_eps":{},"sliding_window":{},"compress_ratios":[{}],)"
      R"("kv_source_layer_ids":[{}],"index_source_layer_ids":[{}],"candidate_source_layer_id":{},"candidate_topk_blocks":{},"candidate_block_size":{},)"
      R"("index_n_heads":{},"index_head_dim":{},"index_topk":{},"rope_theta":{},"compress_rope_theta":{},)",
      c.vocab_size, c.hidden_size, c.num_hidden_layers, c.num_attention_heads, c.head_dim, c.qk_rope_head_dim, c.q_lora_rank, c.o_groups, c.o_lora_rank,
      c.rms_norm_eps, c.sliding_window, fmt::join(c.compress_ratios, ","), fmt::join(c.kv_source_layer_ids, ","), fmt::join(c.index_source_layer_ids, ","),
      c.candidate_source_layer_id, c.candidate_topk_blocks, c.candidate_block_size, c.index_n_heads, c.index_head_dim, c.index_topk, c.rope_theta,
      c.compress_rope_theta);
  text += fmt::format(
      R"("rope_scaling":{{"rope_type":"yarn","factor":{},"original_max_position_embeddings":{},"beta_fast":{},"beta_slow":{}}},"max_position_embeddings":{},)"
      R"("n_routed_experts":{},"n_shared_experts":{},"num_experts_per_tok":{},"moe_intermediate_size":{},"scoring_func":"sqrtsoftplus","topk_method":"noaux_tc",)"
      R"("norm_topk_prob":{},"routed_scaling_factor":{},"swiglu_limit":{},"gate_temp":{},"hidden_act":"silu","hc_mult":{},"hc_sinkhorn_iters":{},"hc_eps":{},)",
      c.rope_factor, c.rope_original_context, c.rope_beta_fast, c.rope_beta_slow, c.max_position_embeddings, c.n_routed_experts, c.n_shared_experts,
      c.num_experts_per_tok, c.moe_intermediate_size, c.norm_topk_prob, c.routed_scaling_factor, c.swiglu_limit, c.gate_temp, V41Config::kStreams,
      c.hc_sinkhorn_iters, c.hc_eps);
  if (!c.engram_layer_ids.empty())
    text += fmt::format(
        R"("engram_layer_ids":[{}],"engram_num_embeddings":[{}],"engram_vocab_size":{},"engram_max_ngram_size":{},"engram_n_heads":{},"engram_head_dim":{},)"
        R"("engram_pad_token_id":{},"engram_compressed_vocab_size":{},)",
        fmt::join(c.engram_layer_ids, ","), fmt::join(c.engram_num_embeddings, ","), c.engram_vocab_size, c.engram_max_ngram_size, c.engram_n_heads,
        c.engram_head_dim, c.engram_pad_token_id, c.engram_compressed_vocab_size);
  if (!c.engram_token_map.empty()) text += fmt::format(R"("engram_token_map":"{}",)", c.engram_token_map);
  if (c.num_draft_stages > 0)
    text += fmt::format(
        R"("dspark_block_size":{},"dspark_noise_token_id":{},"dspark_target_layer_ids":[{}],"dspark_markov_rank":{},"dspark_n_routed_experts":{},)"
        R"("dspark_num_experts_per_tok":{},)",
        c.dspark_block_size, c.dspark_noise_token_id, fmt::join(c.dspark_target_layer_ids, ","), c.dspark_markov_rank, c.dspark_n_routed_experts,
        c.dspark_num_experts_per_tok);
  text += fmt::format(R"("num_nextn_predict_layers":{},"tie_word_embeddings":false,"attention_bias":false)", c.num_draft_stages);
  return fmt::format(
      R"({{"architectures":["DeepseekV41ForCausalLM"],"model_type":"deepseek_v41","torch_dtype":"bfloat16","bos_token_id":{},"eos_token_id":{},{}{})"
      R"("text_config":{{{}}},"quantization_config":{{"quant_method":"fp8","activation_scheme":"dynamic","scale_fmt":"ue8m0","weight_block_size":[32,32],)"
      R"("expert_dtype":"fp4"}}}})"
      "\n",
      c.bos_id, c.eos_id, c.image_token_id >= 0 ? fmt::format(R"("image_token_id":{},)", c.image_token_id) : "", c.vision ? vision_json(*c.vision) : "", text);
}

Result<> write_v41_synth(const std::string& path, const V41Config& config, const V41SynthOptions& options) {
  constexpr int32_t kMinVocab = 256 + std::size(kHeadTokens) + std::size(kTailTokens);
  if (config.vocab_size < kMinVocab) return Error{Code::kInvalidArgument, fmt::format("a vocabulary below {} tokens", kMinVocab)};
  const std::string folder = path.substr(0, path.find_last_not_of('/') + 1);  // "x/.part" would lie inside
  std::error_code error;
  if (fs::exists(folder, error)) return Error{Code::kInvalidArgument, fmt::format("{} is there already", folder)};
  const std::string temporary = folder + ".part";
  if (!fs::create_directories(temporary, error)) {
    if (error) return Error{Code::kIo, fmt::format("{}: {}", temporary, error.message())};
    // Its files would become part of this one.
    return Error{Code::kInvalidArgument, fmt::format("{} is there already: a run that was interrupted left it", temporary)};
  }
  const std::vector<V41Tensor> tensors = v41_tensors(config);
  uint64_t needed = 0;
  for (const V41Tensor& t : tensors) needed += static_cast<uint64_t>(t.num_bytes());
  const fs::space_info space = fs::space(temporary, error);
  Result<> written;
  if (!error && !options.sparse && space.available < needed)
    written = Error{Code::kResourceExhausted, fmt::format("{}: the model has {}, the disk {} left", folder, format_size(needed), format_size(space.available))};
  else written = write_all(temporary, config, tensors, options);
  if (written) fs::rename(temporary, folder, error);
  else fs::remove_all(temporary, error);
  if (written && error) return Error{Code::kIo, fmt::format("{}: {}", folder, error.message())};
  return written;
}

}  // namespace deepinfer::model
