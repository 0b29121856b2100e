#include "model/dense_weights.h"

#include <fmt/format.h>
#include <cmath>
#include <cstring>

namespace deepinfer::model {
namespace {

// How a file spells a role. In a layer, "{}" is its number.
struct Spelling {
  std::string_view role, gguf, hugging_face;
};
constexpr Spelling kSpellings[] = {
    {"embedding", "token_embd.weight", "model.embed_tokens.weight"},
    {"output_norm", "output_norm.weight", "model.norm.weight"},
    {"head", "output.weight", "lm_head.weight"},
    {"rope_divisors", "rope_freqs.weight", ""},
    {"attention_norm", "blk.{}.attn_norm.weight", "model.layers.{}.input_layernorm.weight"},
    {"q", "blk.{}.attn_q.weight", "model.layers.{}.self_attn.q_proj.weight"},
    {"k", "blk.{}.attn_k.weight", "model.layers.{}.self_attn.k_proj.weight"},
    {"v", "blk.{}.attn_v.weight", "model.layers.{}.self_attn.v_proj.weight"},
    {"output", "blk.{}.attn_output.weight", "model.layers.{}.self_attn.o_proj.weight"},
    {"q_bias", "blk.{}.attn_q.bias", "model.layers.{}.self_attn.q_proj.bias"},
    {"k_bias", "blk.{}.attn_k.bias", "model.layers.{}.self_attn.k_proj.bias"},
    {"v_bias", "blk.{}.attn_v.bias", "model.layers.{}.self_attn.v_proj.bias"},
    {"output_bias", "blk.{}.attn_output.bias", "model.layers.{}.self_attn.o_proj.bias"},
    {"q_norm", "blk.{}.attn_q_norm.weight", "model.layers.{}.self_attn.q_norm.weight"},
    {"k_norm", "blk.{}.attn_k_norm.weight", "model.layers.{}.self_attn.k_norm.weight"},
    {"ffn_norm", "blk.{}.ffn_norm.weight", "model.layers.{}.post_attention_layernorm.weight"},
    {"gate", "blk.{}.ffn_gate.weight", "model.layers.{}.mlp.gate_proj.weight"},
    {"up", "blk.{}.ffn_up.weight", "model.layers.{}.mlp.up_proj.weight"},
    {"down", "blk.{}.ffn_down.weight", "model.layers.{}.mlp.down_proj.weight"},
};

std::string shape_text(const std::vector<int64_t>& shape) { return fmt::format("{}", fmt::join(shape, " x ")); }

bool is_vector_dtype(DType dtype) { return dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16; }

// Finds tensors one by one and remembers which were asked for, so that the rest can be named.
class Binder {
 public:
  Binder(const Checkpoint& checkpoint, const DenseConfig& config)
      : checkpoint_(checkpoint), config_(config), used_(checkpoint.tensors().size(), false) {}

  // Binds `out` if `wanted`.
  Result<> bind(std::string_view role, int layer, bool wanted, const std::vector<int64_t>& shape, const TensorView*& out) {
    if (!wanted) return {};
    const std::string name = dense_tensor_name(config_.naming, role, layer);
    const TensorView* tensor = checkpoint_.find(name);
    if (tensor == nullptr) return corrupt(name, "is missing");
    if (tensor->shape != shape) {
      return corrupt(name, fmt::format("is {}, the configuration asks for {}", shape_text(tensor->shape), shape_text(shape)));
    }
    if (shape.size() == 1 && !is_vector_dtype(tensor->dtype)) {
      return corrupt(name, fmt::format("is a vector in {}; F32, F16 or BF16 is expected", dtype_info(tensor->dtype).name));
    }
    if (!is_self_contained(tensor->dtype)) {
      return Error{Code::kUnsupported, fmt::format("{}: tensor {} is in {}, which dense models cannot use here",
                                                   checkpoint_.path(), name, dtype_info(tensor->dtype).name)};
    }
    used_[static_cast<size_t>(tensor - checkpoint_.tensors().data())] = true;
    out = tensor;
    return {};
  }

  Result<> reject_left_over() const {
    for (size_t i = 0; i < used_.size(); ++i) {
      const std::string_view name = checkpoint_.tensors()[i].name;
      if (!used_[i] && !is_surplus(name)) return corrupt(name, "is left over: a model of this configuration does not have it");
    }
    return {};
  }

  Error corrupt(std::string_view tensor, const std::string& what) const {
    return Error{Code::kCorruption, fmt::format("{}: tensor {} {}", checkpoint_.path(), tensor, what)};
  }

 private:
  bool is_surplus(std::string_view name) const {
    // Tables of rotation frequencies, which older files carry and the configuration determines.
    if (name.ends_with("rotary_emb.inv_freq") || name.ends_with(".attn_rot_embd")) return true;
    return config_.tied_head && name == "lm_head.weight";
  }

  const Checkpoint& checkpoint_;
  const DenseConfig& config_;
  std::vector<bool> used_;
};

Result<> bind_layer(Binder& binder, const DenseConfig& c, int layer, DenseLayerWeights& w) {
  const auto bind = [&](std::string_view role, bool wanted, const std::vector<int64_t>& shape, const TensorView*& out) {
    return binder.bind(role, layer, wanted, shape, out);
  };
  const int64_t hidden = c.hidden_size, intermediate = c.intermediate_size;
  DI_TRY(bind("attention_norm", true, {hidden}, w.attention_norm));
  DI_TRY(bind("q", true, {c.q_size(), hidden}, w.q));
  DI_TRY(bind("k", true, {c.kv_size(), hidden}, w.k));
  DI_TRY(bind("v", true, {c.kv_size(), hidden}, w.v));
  DI_TRY(bind("output", true, {hidden, c.q_size()}, w.output));
  DI_TRY(bind("q_bias", c.qkv_bias, {c.q_size()}, w.q_bias));
  DI_TRY(bind("k_bias", c.qkv_bias, {c.kv_size()}, w.k_bias));
  DI_TRY(bind("v_bias", c.qkv_bias, {c.kv_size()}, w.v_bias));
  DI_TRY(bind("output_bias", c.output_bias, {hidden}, w.output_bias));
  DI_TRY(bind("q_norm", c.qk_norm, {c.head_dim}, w.q_norm));
  DI_TRY(bind("k_norm", c.qk_norm, {c.head_dim}, w.k_norm));
  DI_TRY(bind("ffn_norm", true, {hidden}, w.ffn_norm));
  DI_TRY(bind("gate", true, {intermediate, hidden}, w.gate));
  DI_TRY(bind("up", true, {intermediate, hidden}, w.up));
  return bind("down", true, {hidden, intermediate}, w.down);
}

// The only values that binding reads: a zero or NaN here would turn every position into NaN.
Result<> check_divisors(const Binder& binder, const TensorView& divisors) {
  if (divisors.dtype != DType::kF32) return binder.corrupt(divisors.name, "is not in F32");
  for (size_t i = 0; i < divisors.data.size(); i += sizeof(float)) {
    float value = 0;
    std::memcpy(&value, divisors.data.data() + i, sizeof(value));
    if (!std::isfinite(value) || value <= 0) return binder.corrupt(divisors.name, "holds a number that is not above zero");
  }
  return {};
}

}  // namespace

std::string dense_tensor_name(TensorNaming naming, std::string_view role, int layer) {
  for (const Spelling& spelling : kSpellings) {
    if (spelling.role != role) continue;
    const std::string_view pattern = naming == TensorNaming::kGguf ? spelling.gguf : spelling.hugging_face;
    return fmt::format(fmt::runtime(pattern), layer);
  }
  CHECK(!"a role of DenseWeights");
}

Result<DenseWeights> bind_dense(const Checkpoint& checkpoint, const DenseConfig& config) {
  const int64_t vocab = config.vocab_size, hidden = config.hidden_size;
  Binder binder(checkpoint, config);
  DenseWeights weights;
  DI_TRY(binder.bind("embedding", -1, true, {vocab, hidden}, weights.embedding));
  DI_TRY(binder.bind("output_norm", -1, true, {hidden}, weights.output_norm));
  DI_TRY(binder.bind("head", -1, !config.tied_head, {vocab, hidden}, weights.head));
  if (config.tied_head) weights.head = weights.embedding;
  const bool has_divisors = config.naming == TensorNaming::kGguf && checkpoint.find("rope_freqs.weight") != nullptr;
  DI_TRY(binder.bind("rope_divisors", -1, has_divisors, {config.head_dim / 2}, weights.rope_divisors));
  if (has_divisors) DI_TRY(check_divisors(binder, *weights.rope_divisors));
  weights.layers.resize(static_cast<size_t>(config.num_hidden_layers));
  for (int layer = 0; layer < config.num_hidden_layers; ++layer) {
    DI_TRY(bind_layer(binder, config, layer, weights.layers[static_cast<size_t>(layer)]));
  }
  DI_TRY(binder.reject_left_over());
  return weights;
}

}  // namespace deepinfer::model
