#include "model/v41_weights.h"

#include <cstring>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <functional>
#include <numeric>
#include <optional>

#include "base/text.h"
#include "model/check_values.h"

namespace deepinfer::model {
namespace {

// Takes tensors by name and remembers which; keeps the first error, after which it only hands out nulls. Without a checkpoint it lists
// what would be taken, so that there is one place that knows the tensors.
class Binder {
 public:
  explicit Binder(const Checkpoint& checkpoint) : checkpoint_(&checkpoint), used_(checkpoint.tensors().size(), false) {}
  explicit Binder(std::vector<V41Tensor>& list) : list_(&list) {}

  bool failed() const { return error_.has_value(); }

  const std::byte* take(const std::string& name, DType dtype, const std::vector<int64_t>& shape) {
    if (error_) return nullptr;
    if (list_ != nullptr) {
      list_->push_back({name, dtype, shape});
      return nullptr;
    }
    const TensorView* tensor = checkpoint_->find(name);
    if (tensor == nullptr) return fail(name, "is missing");
    if (tensor->dtype != dtype) {
      return fail(name, fmt::format("is in {}, {} is expected", dtype_info(tensor->dtype).name, dtype_info(dtype).name));
    }
    if (tensor->shape != shape) {
      return fail(name, fmt::format("is [{}], the configuration asks for [{}]", fmt::join(tensor->shape, ", "), fmt::join(shape, ", ")));
    }
    if (const auto size = static_cast<uintptr_t>(dtype_info(dtype).block_bytes); reinterpret_cast<uintptr_t>(tensor->data.data()) % size != 0) {
      return fail(name, fmt::format("begins at an address that is no multiple of {} bytes: its file's header is not padded", size));
    }
    used_[static_cast<size_t>(tensor - checkpoint_->tensors().data())] = true;
    return tensor->data.data();
  }

  const bf16* vector(const std::string& name, int64_t n) { return reinterpret_cast<const bf16*>(take(name, DType::kBF16, {n})); }
  const float* floats(const std::string& name, const std::vector<int64_t>& shape) {
    return reinterpret_cast<const float*>(take(name, DType::kF32, shape));
  }
  const bf16* values(const std::string& name, int64_t rows, int64_t cols) {
    return reinterpret_cast<const bf16*>(take(name, DType::kBF16, {rows, cols}));
  }
  Bf16Matrix matrix(const std::string& name, int64_t rows, int64_t cols) { return {values(name, rows, cols), rows, cols}; }
  Fp8Matrix fp8(const std::string& name, int64_t rows, int64_t cols) {
    const int64_t tile_rows = (rows + 31) / 32, tile_cols = cols / 32;
    const Fp8Matrix m{reinterpret_cast<const e4m3*>(take(name + ".weight", DType::kF8_E4M3, {rows, cols})),
                      reinterpret_cast<const e8m0*>(take(name + ".scale", DType::kF8_E8M0, {tile_rows, tile_cols})), rows, cols};
    if (m.scales == nullptr) return m;
    if (const void* nan = std::memchr(m.scales, 0xff, static_cast<size_t>(tile_rows * tile_cols))) {
      const int64_t tile = static_cast<const e8m0*>(nan) - m.scales;
      fail(name + ".scale", fmt::format("holds a NaN for tile [{}, {}]", tile / tile_cols, tile % tile_cols));
    }
    return m;
  }
  Fp4Matrix fp4(const std::string& name, int64_t rows, int64_t cols) {
    return {reinterpret_cast<const uint8_t*>(take(name + ".weight", DType::kI8, {rows, cols / 2})),
            reinterpret_cast<const e8m0*>(take(name + ".scale", DType::kF8_E8M0, {rows, cols / 32})), rows, cols};
  }

  Result<> finish() {
    for (size_t i = 0; i < used_.size() && !error_; ++i)
      if (!used_[i]) fail(std::string(checkpoint_->tensors()[i].name), "is left over: a model of this configuration does not have it");
    if (error_) return *error_;
    return {};
  }

 private:
  std::nullptr_t fail(const std::string& tensor, const std::string& what) {
    if (!error_) error_ = Error{Code::kCorruption, fmt::format("{}: tensor {} {}", checkpoint_->path(), tensor, what)};
    return nullptr;
  }

  const Checkpoint* checkpoint_ = nullptr;
  std::vector<V41Tensor>* list_ = nullptr;
  std::vector<bool> used_;
  std::optional<Error> error_;
};

HyperWeights bind_hyper(Binder& b, const std::string& prefix, int64_t hidden) {
  return {b.floats(prefix + "_fn", {24, kHyperStreams * hidden}), b.floats(prefix + "_base", {24}), b.floats(prefix + "_scale", {3})};
}

void bind_attention(Binder& b, const V41Config& c, const std::string& p, V41Block& block) {
  const int64_t width = int64_t{c.num_attention_heads} * c.head_dim;
  block.attn_sink = b.floats(p + "attn_sink", {c.num_attention_heads});
  block.wq_a = b.fp8(p + "wq_a", c.q_lora_rank, c.hidden_size);
  block.wq_b = b.fp8(p + "wq_b", width, c.q_lora_rank);
  block.wkv = b.fp8(p + "wkv", c.head_dim, c.hidden_size);
  block.q_norm = b.vector(p + "q_norm.weight", c.q_lora_rank);
  block.kv_norm = b.vector(p + "kv_norm.weight", c.head_dim);
  block.wo_a = b.fp8(p + "wo_a", int64_t{c.o_groups} * c.o_lora_rank, width / c.o_groups);
  block.wo_b = b.fp8(p + "wo_b", c.hidden_size, int64_t{c.o_groups} * c.o_lora_rank);
}

void bind_experts(Binder& b, const V41Config& c, const std::string& p, int32_t num_experts, V41Block& block) {
  const int64_t hidden = c.hidden_size, inter = c.moe_intermediate_size;
  block.gate = b.matrix(p + "gate.weight", num_experts, hidden);
  block.gate_bias = b.floats(p + "gate.bias", {num_experts});
  block.gate_bias_vl = b.floats(p + "gate.bias_vl", {num_experts});
  // A config may claim a million experts that no tensor stands for: the first that is missing ends it.
  for (int32_t e = 0; e < num_experts && !b.failed(); ++e) {
    const std::string prefix = fmt::format("{}experts.{}.", p, e);
    V41Expert& expert = block.experts.emplace_back();
    expert.w1 = b.fp4(prefix + "w1", inter, hidden);
    expert.w3 = b.fp4(prefix + "w3", inter, hidden);
    expert.w2 = b.fp4(prefix + "w2", hidden, inter);
  }
  block.shared.w1 = b.fp8(p + "shared_experts.w1", inter, hidden);
  block.shared.w3 = b.fp8(p + "shared_experts.w3", inter, hidden);
  block.shared.w2 = b.fp8(p + "shared_experts.w2", hidden, inter);
}

V41Block bind_block(Binder& b, const V41Config& c, const std::string& p, int32_t num_experts) {
  V41Block block;
  block.attn_norm = b.vector(p + "attn_norm.weight", c.hidden_size);
  block.ffn_norm = b.vector(p + "ffn_norm.weight", c.hidden_size);
  block.hc_attn = bind_hyper(b, p + "hc_attn", c.hidden_size);
  block.hc_ffn = bind_hyper(b, p + "hc_ffn", c.hidden_size);
  bind_attention(b, c, p + "attn.", block);
  bind_experts(b, c, p + "ffn.", num_experts, block);
  return block;
}

void bind_sources(Binder& b, const V41Config& c, int32_t layer, V41Block& block) {
  const std::string p = fmt::format("layers.{}.attn.", layer);
  if (c.is_kv_source(layer)) {
    block.compressor_wkv = b.matrix(p + "compressor.wkv.weight", c.head_dim, c.hidden_size);
    if (c.compress_ratio(layer) == 2) block.compressor_wgate = b.matrix(p + "compressor.wgate.weight", c.head_dim, c.hidden_size);
    block.compressor_norm = b.vector(p + "compressor.norm.weight", c.head_dim);
    block.index_wk = b.matrix(p + "indexer.wk.weight", c.index_head_dim, c.head_dim);
    block.index_k_norm = b.vector(p + "indexer.k_norm.weight", c.index_head_dim);
  }
  if (c.is_index_source(layer)) {
    block.index_wq_b = b.fp8(p + "indexer.wq_b", int64_t{c.index_n_heads} * c.index_head_dim, c.q_lora_rank);
    block.index_weights_proj = b.matrix(p + "indexer.weights_proj.weight", c.index_n_heads, c.hidden_size);
  }
}

V41Engram bind_engram(Binder& b, const V41Config& c, size_t table) {
  const std::string p = fmt::format("layers.{}.engram.", c.engram_layer_ids[table]);
  const int64_t rows = c.engram_num_embeddings[table], dim = c.engram_head_dim;
  const int64_t columns = int64_t{c.engram_max_ngram_size - 1} * c.engram_n_heads;
  V41Engram engram;
  engram.codes = reinterpret_cast<const e4m3*>(b.take(p + "embed.weight", DType::kF8_E4M3, {rows, dim}));
  engram.scales = reinterpret_cast<const e8m0*>(b.take(p + "embed.scale", DType::kF8_E8M0, {rows, dim / 32}));
  engram.num_rows = rows;
  engram.wkv = b.fp8(p + "wkv", (kHyperStreams + 1) * int64_t{c.hidden_size}, columns * dim);
  engram.q_weight = b.values(p + "q_weight", kHyperStreams, c.hidden_size);
  engram.k_weight = b.values(p + "k_weight", kHyperStreams, c.hidden_size);
  return engram;
}

V41DraftHeads bind_draft(Binder& b, const V41Config& c) {
  V41DraftHeads draft;
  draft.main_proj = b.fp8("mtp.0.main_proj", c.hidden_size, static_cast<int64_t>(c.dspark_target_layer_ids.size()) * c.hidden_size);
  draft.main_norm = b.vector("mtp.0.main_norm.weight", c.hidden_size);
  const std::string p = fmt::format("mtp.{}.", c.num_draft_stages - 1);
  draft.norm = b.vector(p + "norm.weight", c.hidden_size);
  draft.markov_embed = b.matrix(p + "markov_head.embed.weight", c.vocab_size, c.dspark_markov_rank);
  draft.markov_head = b.matrix(p + "markov_head.head.weight", c.vocab_size, c.dspark_markov_rank);
  draft.confidence = b.matrix(p + "confidence_head.proj.weight", 1, int64_t{c.hidden_size} + c.dspark_markov_rank);
  return draft;
}

V41VisionWeights bind_vision(Binder& b, const V41Config& c) {
  const V41Vision& v = *c.vision;
  const int64_t d = v.hidden_size, inter = v.intermediate_size;
  V41VisionWeights w;
  w.patch = b.matrix("vision.patch_embed.proj.weight", d, 3 * int64_t{v.patch_size} * v.patch_size);
  w.patch_bias = b.vector("vision.patch_embed.proj.bias", d);
  for (int32_t i = 0; i < v.num_hidden_layers; ++i) {
    const std::string p = fmt::format("vision.blocks.{}.", i);
    V41VisionBlock block;
    block.norm1 = b.vector(p + "norm1.weight", d);
    block.norm2 = b.vector(p + "norm2.weight", d);
    block.wqkv = b.matrix(p + "attn.wqkv.weight", 3 * d, d);
    block.wqkv_bias = b.vector(p + "attn.wqkv.bias", 3 * d);
    block.wo = b.matrix(p + "attn.wo.weight", d, d);
    block.wo_bias = b.vector(p + "attn.wo.bias", d);
    block.w1 = b.matrix(p + "mlp.w1.weight", 2 * inter, d);
    block.w2 = b.matrix(p + "mlp.w2.weight", d, inter);
    w.blocks.push_back(block);
  }
  w.norm = b.vector("vision.norm.weight", d);
  w.aligner_w1 = b.matrix("aligner.w1.weight", c.hidden_size, d * v.downsample_ratio * v.downsample_ratio);
  w.aligner_w1_bias = b.vector("aligner.w1.bias", c.hidden_size);
  w.aligner_w2 = b.matrix("aligner.w2.weight", c.hidden_size, c.hidden_size);
  w.aligner_w2_bias = b.vector("aligner.w2.bias", c.hidden_size);
  w.image_start = b.vector("image_start", c.hidden_size);
  w.image_end = b.vector("image_end", c.hidden_size);
  w.image_newline = b.vector("image_newline", c.hidden_size);
  return w;
}

// Where a NaN would only choose other rows or experts, or weigh them otherwise, and so turn into a wrong answer instead of into none: packed
// rows, maxima and comparisons have no NaN. Vectors are few bytes and are looked at as well; of all else a step's output is NaN.
bool hides_nan(const TensorView& tensor) {
  return tensor.shape.size() == 1 || contains(tensor.name, ".attn.compressor.") || contains(tensor.name, ".attn.indexer.") ||
         tensor.name.ends_with(".engram.q_weight") || tensor.name.ends_with(".engram.k_weight");
}

V41Weights bind_all(Binder& b, const V41Config& c) {
  V41Weights w;
  w.embed = b.matrix("embed.weight", c.vocab_size, c.hidden_size);
  w.head = b.matrix("head.weight", c.vocab_size, c.hidden_size);
  w.norm = b.vector("norm.weight", c.hidden_size);
  for (int32_t layer = 0; layer < c.num_hidden_layers && !b.failed(); ++layer) {
    w.layers.push_back(bind_block(b, c, fmt::format("layers.{}.", layer), c.n_routed_experts));
    bind_sources(b, c, layer, w.layers.back());
  }
  for (size_t table = 0; table < c.engram_layer_ids.size(); ++table) w.engrams.push_back(bind_engram(b, c, table));
  for (int32_t stage = 0; stage < c.num_draft_stages; ++stage)
    w.draft_stages.push_back(bind_block(b, c, fmt::format("mtp.{}.", stage), c.dspark_n_routed_experts));
  if (c.num_draft_stages > 0) w.draft = bind_draft(b, c);
  if (c.vision) w.vision = bind_vision(b, c);
  return w;
}

}  // namespace

Result<V41Weights> bind_v41(const Checkpoint& checkpoint, const V41Config& config) {
  Binder b(checkpoint);
  V41Weights w = bind_all(b, config);
  DI_TRY(b.finish());
  for (const TensorView& tensor : checkpoint.tensors())
    if (hides_nan(tensor)) DI_TRY(check_values(checkpoint, tensor));
  return w;
}

int64_t V41Tensor::num_bytes() const {
  return std::accumulate(shape.begin(), shape.end(), int64_t{dtype_info(dtype).block_bytes}, std::multiplies<>());
}

std::vector<V41Tensor> v41_tensors(const V41Config& config) {
  std::vector<V41Tensor> list;
  Binder b(list);
  bind_all(b, config);
  return list;
}

}  // namespace deepinfer::model
