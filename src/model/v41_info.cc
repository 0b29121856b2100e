#include "model/v41_info.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fmt/format.h>

#include "base/text.h"
#include "base/units.h"
#include "model/v41_state.h"

namespace deepinfer::model {
namespace {

enum Part : size_t {
  kEmbedding, kHead, kEngramTables, kEngram, kAttention, kIndex, kRoutedExperts, kSharedExperts, kRouter, kHyper, kNorms, kDraft, kVision, kNumParts
};
constexpr std::string_view kPartNames[kNumParts] = {
    "embedding", "head", "Engram tables", "Engram projections", "attention", "compressors and indexers", "routed experts",
    "shared experts", "router", "hyper-connections", "norms", "draft stages", "vision"};

Part part_of(std::string_view name) {
  if (name.starts_with("mtp.")) return kDraft;
  if (name.starts_with("vision.") || name.starts_with("aligner.") || name.starts_with("image_")) return kVision;
  if (name == "embed.weight") return kEmbedding;
  if (name == "head.weight") return kHead;
  if (contains(name, ".engram.embed.")) return kEngramTables;
  if (contains(name, ".engram.")) return kEngram;
  if (contains(name, ".ffn.experts.")) return kRoutedExperts;
  if (contains(name, ".ffn.shared_experts.")) return kSharedExperts;
  if (contains(name, ".ffn.gate.")) return kRouter;
  if (contains(name, ".hc_")) return kHyper;
  if (contains(name, ".compressor.") || contains(name, ".indexer.")) return kIndex;
  if (name == "norm.weight" || name.ends_with("attn_norm.weight") || name.ends_with("ffn_norm.weight")) return kNorms;
  return kAttention;
}

// N of "layers.N.…"; -1: not of a layer.
int32_t layer_of(std::string_view name) {
  constexpr std::string_view kPrefix = "layers.";
  int32_t layer = -1;
  if (name.starts_with(kPrefix)) std::from_chars(name.data() + kPrefix.size(), name.data() + name.size(), layer);
  return layer;
}

// The share of a tensor that one token reads: rows of a table, the chosen experts, all of the rest that is not for drafts and pictures.
double share_read(Part part, const TensorView& tensor, const V41Config& c) {
  if (part == kDraft || part == kVision) return 0;
  if (part == kEmbedding) return 1.0 / static_cast<double>(tensor.shape[0]);
  if (part == kEngramTables) return (c.engram_max_ngram_size - 1) * static_cast<double>(c.engram_n_heads) / static_cast<double>(tensor.shape[0]);
  if (part == kRoutedExperts) return static_cast<double>(c.num_experts_per_tok) / c.n_routed_experts;
  return 1;
}

// Whether a prompt token that narrowing keeps out of the decoder still goes through the tensor: the encoder, and what makes the rows of the
// decoder's source.
bool in_encoder(Part part, std::string_view name, const V41Config& c) {
  const int32_t layer = layer_of(name), last = c.narrowing_layer();
  if (layer < 0) return part == kEmbedding;
  if (layer < last || part == kEngram || part == kEngramTables) return true;
  return layer == last && (contains(name, ".compressor.") || contains(name, ".indexer.k_norm") || contains(name, ".indexer.wk.") ||
                           name.ends_with("attn_norm.weight") || contains(name, ".hc_attn"));
}

std::string size_text(double bytes) { return format_size(static_cast<uint64_t>(bytes)); }

std::string billions(double n) { return n >= 1e9 ? fmt::format("{:.2f} billion", n / 1e9) : fmt::format("{:.2f} million", n / 1e6); }

std::string roles_text(const V41Config& c) {
  return fmt::format("{} layers ({} encoder, {} decoder), hidden {}, {} heads of {}, {} experts of {} (top {}), window {}, vocabulary {}", c.num_hidden_layers,
                     c.narrowing_layer(), c.num_hidden_layers - c.narrowing_layer(), c.hidden_size, c.num_attention_heads, c.head_dim, c.n_routed_experts,
                     c.moe_intermediate_size, c.num_experts_per_tok, c.sliding_window, c.vocab_size);
}

double tokens_per_s(const V41Config& c, const V41Part& total, int64_t context, double read_bytes_per_s) {
  return read_bytes_per_s / (total.decode_bytes + static_cast<double>(v41_state_bytes(c, context).read));
}

}  // namespace

std::vector<V41Part> v41_parts(std::span<const TensorView> tensors, const V41Config& config) {
  std::vector<V41Part> parts(kNumParts);
  for (const TensorView& t : tensors) {
    const Part which = part_of(t.name);
    V41Part& part = parts[which];
    const double share = share_read(which, t, config);
    const auto parameters = num_parameters(t.dtype, t.num_elements());
    part.num_tensors += 1;
    part.num_parameters += parameters;
    part.num_bytes += static_cast<int64_t>(t.data.size());
    part.decode_bytes += share * static_cast<double>(t.data.size());
    part.decode_parameters += share * static_cast<double>(parameters);
    if (in_encoder(which, t.name, config)) part.encoder_parameters += share * static_cast<double>(parameters);
  }
  for (size_t i = 0; i < kNumParts; ++i) parts[i].name = kPartNames[i];
  std::erase_if(parts, [](const V41Part& part) { return part.num_tensors == 0; });
  return parts;
}

V41Part v41_total(std::span<const V41Part> parts) {
  V41Part total{.name = "total"};
  for (const V41Part& part : parts) {
    total.num_tensors += part.num_tensors;
    total.num_parameters += part.num_parameters;
    total.num_bytes += part.num_bytes;
    total.decode_bytes += part.decode_bytes;
    total.decode_parameters += part.decode_parameters;
    total.encoder_parameters += part.encoder_parameters;
  }
  return total;
}

V41Cost v41_cost(std::span<const TensorView> tensors, const V41Config& config) {
  V41Cost cost;
  for (const TensorView& t : tensors) {
    const Part part = part_of(t.name);
    const double read = share_read(part, t, config), bytes = static_cast<double>(t.data.size());
    if (read == 0) continue;
    V41Share& share = part == kHead || (part == kNorms && layer_of(t.name) < 0) ? cost.head : in_encoder(part, t.name, config) ? cost.encoder : cost.decoder;
    const bool table = part == kEmbedding || part == kEngramTables;
    (table ? share.row_bytes : part == kRoutedExperts ? share.expert_bytes : share.bytes) += table ? read * bytes : bytes;
    if (!table) share.products += read * static_cast<double>(num_parameters(t.dtype, t.num_elements()));
  }
  return cost;
}

StepCost v41_step_cost(const V41Cost& cost, const V41Config& config, const StepShape& shape) {
  StepCost step;
  const double missed_by_a_row = 1 - static_cast<double>(config.num_experts_per_tok) / config.n_routed_experts;
  const auto add = [&](const V41Share& share, int64_t rows) {
    if (rows == 0) return;
    const auto n = static_cast<double>(rows);
    step.weight_bytes += share.bytes + n * share.row_bytes + share.expert_bytes * (1 - std::pow(missed_by_a_row, n));
    step.products += n * share.products;
  };
  add(cost.encoder, shape.num_rows);
  add(cost.decoder, shape.num_decoder_rows);
  add(cost.head, shape.num_logit_rows);
  if (shape.context > 0) step.state_bytes = static_cast<double>(shape.num_rows * v41_state_bytes(config, shape.context).read);
  return step;
}

V41StateBytes v41_state_bytes(const V41Config& c, int64_t num_tokens) {
  const V41Layout layout(c);
  V41StateBytes bytes;
  bytes.blocks = (num_tokens + V41Layout::kBlockTokens - 1) / V41Layout::kBlockTokens * layout.block_bytes();
  bytes.rings = layout.state_bytes();
  const int64_t window_row = c.head_dim + c.head_dim / 32, main_row = c.head_dim / 2 + c.head_dim / 16, index_key = c.index_head_dim / 2 + c.index_head_dim / 32;
  for (int32_t layer = 0; layer < c.num_hidden_layers; ++layer) {
    const int64_t rows = c.rows_after(layer, num_tokens);
    bytes.read += std::min<int64_t>(num_tokens, c.sliding_window) * window_row + std::min<int64_t>(rows, c.index_topk) * main_row;
    if (c.is_index_source(layer)) bytes.read += rows * index_key;  // a Reindex layer scores them all before it looks at the candidates
  }
  return bytes;
}

LabelledLines v41_info_lines(const V41Config& c, std::span<const V41Part> parts, std::span<const int64_t> contexts, double read_bytes_per_s) {
  LabelledLines lines;
  const V41Part total = v41_total(parts);
  lines.emplace_back("layers", roles_text(c));
  if (c.num_draft_stages > 0) lines.emplace_back("drafts", fmt::format("{} DSpark stages, blocks of {}", c.num_draft_stages, c.dspark_block_size));
  if (c.vision) lines.emplace_back("vision", fmt::format("{} layers, at most {} tokens a picture", c.vision->num_hidden_layers, c.vision->max_image_tokens));
  std::string label = "parts";
  const auto part_line = [&](const V41Part& p) {
    lines.emplace_back(label, fmt::format("{:<26}{:>10}  read for a token {:>10}", p.name, size_text(static_cast<double>(p.num_bytes)), size_text(p.decode_bytes)));
    label.clear();
  };
  for (const V41Part& p : parts) part_line(p);
  if (!parts.empty()) {
    part_line(total);
    lines.emplace_back("active", fmt::format("{} parameters for a token; {} for a prompt token that narrowing keeps out of the decoder",
                                             billions(total.decode_parameters), billions(total.encoder_parameters)));
  }
  lines.emplace_back("context", fmt::format("{} tokens", c.max_position_embeddings));
  label = "state";
  for (const int64_t context : contexts) {
    const V41StateBytes state = v41_state_bytes(c, context);
    lines.emplace_back(label, fmt::format("{} at {} tokens (blocks {}, windows {}), of which the next token reads {}", size_text(static_cast<double>(state.blocks + state.rings)),
                                          context, size_text(static_cast<double>(state.blocks)), size_text(static_cast<double>(state.rings)),
                                          size_text(static_cast<double>(state.read))));
    label.clear();
  }
  if (read_bytes_per_s <= 0 || parts.empty()) return lines;
  label = "speed";
  for (const int64_t context : contexts) {
    lines.emplace_back(label, fmt::format("at most {:.1f} tokens/s at {} tokens, if memory gives {:.1f} GB/s as probed and holds what is read", tokens_per_s(c, total, context, read_bytes_per_s),
                                          context, read_bytes_per_s / 1e9));
    label.clear();
  }
  return lines;
}

std::string v41_info_json(const V41Config& c, std::span<const V41Part> parts, std::span<const int64_t> contexts, double read_bytes_per_s) {
  const V41Part total = v41_total(parts);
  std::string part_list, states;
  for (const V41Part& p : parts)
    part_list += fmt::format(R"({}{{"name":"{}","tensors":{},"parameters":{},"bytes":{},"bytes_per_token":{:.0f},"parameters_per_token":{:.0f}}})",
                             part_list.empty() ? "" : ",", p.name, p.num_tensors, p.num_parameters, p.num_bytes, p.decode_bytes, p.decode_parameters);
  for (const int64_t context : contexts) {
    const V41StateBytes state = v41_state_bytes(c, context);
    states += fmt::format(R"({}{{"context":{},"block_bytes":{},"window_bytes":{},"bytes_read":{})", states.empty() ? "" : ",", context, state.blocks, state.rings, state.read);
    if (read_bytes_per_s > 0 && !parts.empty()) states += fmt::format(R"(,"tokens_per_s":{:.3f})", tokens_per_s(c, total, context, read_bytes_per_s));
    states += "}";
  }
  return fmt::format(
      R"("num_hidden_layers":{},"encoder_layers":{},"hidden_size":{},"vocab_size":{},"max_context":{},"n_routed_experts":{},"num_experts_per_tok":{},"draft_stages":{},)"
      R"("vision":{},"bytes_per_token":{:.0f},"parameters_per_token":{:.0f},"encoder_parameters_per_token":{:.0f},"read_bytes_per_s":{:.0f},"parts":[{}],"state":[{}],)",
      c.num_hidden_layers, c.narrowing_layer(), c.hidden_size, c.vocab_size, c.max_position_embeddings, c.n_routed_experts, c.num_experts_per_tok, c.num_draft_stages,
      c.vision.has_value(), total.decode_bytes, total.decode_parameters, total.encoder_parameters, read_bytes_per_s, part_list, states);
}

}  // namespace deepinfer::model
