#include "model/model_info.h"

#include <fmt/format.h>
#include <algorithm>
#include <functional>
#include <map>
#include <numeric>

#include "base/units.h"
#include "model/config_values.h"
#include "model/dense_weights.h"
#include "model/gguf_vocabulary.h"
#include "model/model_file.h"
#include "model/v41_weights.h"

namespace deepinfer::model {
namespace {

void add_tensor(std::map<std::string, CheckpointInfo::TypeShare>& types, std::string_view type, int64_t num_parameters, uint64_t num_bytes) {
  auto& share = types[std::string(type)];
  share.type = type;
  share.num_tensors += 1;
  share.num_parameters += num_parameters;
  share.num_bytes += static_cast<int64_t>(num_bytes);
}

void count_tensors(const ModelFile& file, CheckpointInfo& info) {
  std::map<std::string, CheckpointInfo::TypeShare> types;
  for (const TensorView& t : file.checkpoint().tensors()) add_tensor(types, dtype_info(t.dtype).name, num_parameters(t.dtype, t.num_elements()), t.data.size());
  if (file.gguf) {
    std::map<std::string_view, int> unsupported;
    for (const auto& t : file.gguf->unsupported_tensors()) {
      add_tensor(types, t.type, std::accumulate(t.shape.begin(), t.shape.end(), int64_t{1}, std::multiplies<>()), t.num_bytes);
      unsupported[t.type] += 1;
    }
    for (const auto& [type, count] : unsupported) {
      info.obstacles.push_back(fmt::format("{} tensors have type {}, which is not supported", count, type));
    }
  }
  for (auto& [type, share] : types) {
    info.num_tensors += share.num_tensors;
    info.num_parameters += share.num_parameters;
    info.weight_bytes += share.num_bytes;
    info.types.push_back(std::move(share));
  }
  std::sort(info.types.begin(), info.types.end(), [](const auto& a, const auto& b) {
    return a.num_bytes != b.num_bytes ? a.num_bytes > b.num_bytes : a.type < b.type;
  });
}

// The text of a metadata key, or nothing: these are for display only.
std::string text_or_empty(const GgufFile& file, std::string_view key) {
  const auto text = file.find_text(key);
  return text && *text ? std::string((*text)->substr(0, 256)) : std::string();
}

void read_v41(const ModelFile& file, const std::string& config_json, CheckpointInfo& info) {
  info.architecture = "deepseek_v41";
  auto config = v41_config_from_json(config_json, file.folder + "/config.json");
  if (!config) return info.obstacles.push_back(std::move(config).error().message);
  info.v41 = std::move(*config);
  if (const auto weights = bind_v41(file.checkpoint(), *info.v41); !weights) return info.obstacles.push_back(weights.error().message);
  info.v41_parts = v41_parts(file.checkpoint().tensors(), *info.v41);
}

void read_model(const ModelFile& file, CheckpointInfo& info) {
  if (!file.folder.empty()) {
    const auto json = io::read_small_file(file.folder + "/config.json", kMaxConfigBytes);
    if (json && is_v41_config(*json)) return read_v41(file, *json, info);
  }
  auto config = read_dense_config(file);
  if (!config) return info.obstacles.push_back(std::move(config).error().message);
  info.architecture = dense_architecture_name(config->architecture);
  info.config = std::move(*config);
  if (!info.obstacles.empty()) return;  // tensors of unsupported types would count as missing
  if (const auto weights = bind_dense(file.checkpoint(), *info.config); !weights)
    info.obstacles.push_back(weights.error().message);
  if (!file.gguf) return;
  if (const auto vocabulary = gguf_vocabulary(*file.gguf); !vocabulary) info.obstacles.push_back(vocabulary.error().message);
}

// The lengths to show, ascending.
std::vector<int64_t> shown_contexts(std::vector<int64_t> contexts, int64_t max_context) {
  if (contexts.empty()) contexts = {4096, max_context};
  std::sort(contexts.begin(), contexts.end());
  contexts.erase(std::unique(contexts.begin(), contexts.end()), contexts.end());
  std::erase_if(contexts, [max_context](int64_t context) { return context < 1 || context > max_context; });
  return contexts;
}

struct MemoryAt {
  int64_t context, kv_bytes, total_bytes;
};
std::vector<MemoryAt> memory_table(const CheckpointInfo& info, const InfoView& view) {
  std::vector<MemoryAt> out;
  for (const int64_t context : shown_contexts(view.contexts, info.config->max_context)) {
    const int64_t kv_bytes = kv_cache_bytes(*info.config, view.kv_format, context);
    out.push_back({context, kv_bytes, info.weight_bytes + kv_bytes});
  }
  return out;
}

std::string size_text(int64_t bytes) { return format_size(static_cast<uint64_t>(bytes)); }

std::string count_text(int64_t n) {
  if (n >= 1'000'000'000) return fmt::format("{:.2f} billion", static_cast<double>(n) / 1e9);
  if (n >= 1'000'000) return fmt::format("{:.1f} million", static_cast<double>(n) / 1e6);
  return fmt::format("{}", n);
}

// Foreign text on a terminal: what it would act on becomes a question mark.
std::string printable(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (static_cast<unsigned char>(c) < ' ' || c == 0x7f) c = '?';
  }
  return out;
}

std::string shape_text(const DenseConfig& c) {
  std::string out =
      fmt::format("{} layers, hidden {}, {} heads ({} KV) of {}, feed-forward {}, vocabulary {}", c.num_hidden_layers,
                  c.hidden_size, c.num_attention_heads, c.num_key_value_heads, c.head_dim, c.intermediate_size, c.vocab_size);
  if (c.tied_head) out += ", tied head";
  return out;
}

std::string context_text(const DenseConfig& c) {
  std::string out = fmt::format("{} tokens", c.max_context);
  if (c.rope.scaling != RopeConfig::Scaling::kNone) {
    out += fmt::format(" (RoPE scaling {}, factor {} of {})", rope_scaling_name(c.rope.scaling), c.rope.factor,
                       c.rope.original_context);
  }
  const auto windowed = std::count_if(c.layer_window.begin(), c.layer_window.end(), [](int32_t w) { return w > 0; });
  if (windowed > 0) {
    out += fmt::format(", {} of {} layers see the last {} only", windowed, c.layer_window.size(),
                       *std::max_element(c.layer_window.begin(), c.layer_window.end()));
  }
  return out;
}

// A JSON string; bytes that are not UTF-8 become U+FFFD.
std::string json_text(std::string_view text) {
  std::string out = "\"";
  for (size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    const size_t length = c < 0x80 ? 1 : c >= 0xc2 && c < 0xe0 ? 2 : c >= 0xe0 && c < 0xf0 ? 3 : c >= 0xf0 && c < 0xf5 ? 4 : 0;
    const std::string_view rest = text.substr(i, length);
    const bool whole = length > 0 && rest.size() == length && std::all_of(rest.begin() + 1, rest.end(), [](char b) {
                         return (static_cast<unsigned char>(b) & 0xc0) == 0x80;
                       });
    if (c == '"' || c == '\\') {
      out += '\\';
      out += static_cast<char>(c);
    } else if (c < 0x20) {
      out += fmt::format("\\u{:04x}", c);
    } else if (!whole) {
      out += "\xef\xbf\xbd";
    } else {
      out += rest;
      i += length - 1;
    }
  }
  return out + "\"";
}

}  // namespace

Result<CheckpointInfo> read_checkpoint_info(const std::string& path) {
  DI_TRY(const ModelFile file, open_model_file(path, GgufFile::UnsupportedTypes::kList));
  CheckpointInfo info;
  info.path = path;
  info.format = file.gguf ? fmt::format("GGUF version {}", file.gguf->version()) : "safetensors";
  if (file.gguf) {
    info.name = text_or_empty(*file.gguf, "general.name");
    info.architecture = text_or_empty(*file.gguf, "general.architecture");
  }
  count_tensors(file, info);
  read_model(file, info);
  return info;
}

int64_t kv_cache_bytes(const DenseConfig& config, KvFormat format, int64_t num_tokens) {
  const KvShape shape{.format = format, .num_kv_heads = config.num_key_value_heads, .head_dim = config.head_dim};
  const int64_t num_blocks = (num_tokens + kKvBlockTokens - 1) / kKvBlockTokens;
  return num_blocks * config.num_hidden_layers * shape.layer_bytes();
}

namespace {

LabelledLines dense_lines(const CheckpointInfo& info, const InfoView& view) {
  LabelledLines lines;
  lines.emplace_back("context", context_text(*info.config));
  lines.emplace_back("KV cache", fmt::format("{} a token in {}", size_text(kv_cache_bytes(*info.config, view.kv_format, kKvBlockTokens) / kKvBlockTokens),
                                             kv_format_name(view.kv_format)));
  const std::vector<MemoryAt> memory = memory_table(info, view);
  for (const MemoryAt& at : memory)
    lines.emplace_back(&at == memory.data() ? "memory" : "", fmt::format("{} at {} tokens (weights {} + KV {})", size_text(at.total_bytes), at.context,
                                                                          size_text(info.weight_bytes), size_text(at.kv_bytes)));
  for (const MemoryAt& at : memory)
    if (view.read_bytes_per_s > 0)
      lines.emplace_back(&at == memory.data() ? "speed" : "", fmt::format("at most {:.1f} tokens/s at {} tokens, with {:.1f} GB/s of memory as probed",
                                                                           view.read_bytes_per_s / static_cast<double>(at.total_bytes), at.context, view.read_bytes_per_s / 1e9));
  return lines;
}

std::string dense_json(const CheckpointInfo& info, const InfoView& view) {
  const DenseConfig& c = *info.config;
  std::string memory;
  for (const MemoryAt& at : memory_table(info, view)) {
    memory += fmt::format("{}{{\"context\":{},\"kv_bytes\":{},\"total_bytes\":{}", memory.empty() ? "" : ",", at.context, at.kv_bytes, at.total_bytes);
    if (view.read_bytes_per_s > 0) memory += fmt::format(",\"tokens_per_s\":{:.3f}", view.read_bytes_per_s / static_cast<double>(at.total_bytes));
    memory += "}";
  }
  return fmt::format(
      "\"num_hidden_layers\":{},\"hidden_size\":{},\"num_attention_heads\":{},\"num_key_value_heads\":{},\"head_dim\":{},"
      "\"intermediate_size\":{},\"vocab_size\":{},\"max_context\":{},\"rope_scaling\":{},\"kv_format\":{},\"kv_bytes_per_token\":{},"
      "\"read_bytes_per_s\":{:.0f},\"memory\":[{}],",
      c.num_hidden_layers, c.hidden_size, c.num_attention_heads, c.num_key_value_heads, c.head_dim, c.intermediate_size, c.vocab_size, c.max_context,
      json_text(rope_scaling_name(c.rope.scaling)), json_text(kv_format_name(view.kv_format)), kv_cache_bytes(c, view.kv_format, kKvBlockTokens) / kKvBlockTokens,
      view.read_bytes_per_s, memory);
}

}  // namespace

std::string checkpoint_info_text(const CheckpointInfo& info, const InfoView& view) {
  std::string out = fmt::format("{}: {}\n", info.path, info.format);
  const auto line = [&](std::string_view label, const std::string& text) { out += fmt::format("  {:<14}{}\n", label, text); };
  if (!info.name.empty()) line("name", printable(info.name));
  line("architecture", (info.architecture.empty() ? std::string("unknown") : printable(info.architecture)) +
                           (info.config ? ": " + shape_text(*info.config) : ""));
  line("parameters", fmt::format("{} in {} tensors", count_text(info.num_parameters), info.num_tensors));
  line("weights", size_text(info.weight_bytes));
  for (const auto& share : info.types) {
    line("", fmt::format("{:<8}{:>10}  {} parameters in {} tensors", share.type, size_text(share.num_bytes),
                         count_text(share.num_parameters), share.num_tensors));
  }
  LabelledLines lines;
  if (info.config) lines = dense_lines(info, view);
  if (info.v41) lines = v41_info_lines(*info.v41, info.v41_parts, shown_contexts(view.contexts, info.v41->max_position_embeddings), view.read_bytes_per_s);
  for (const auto& [label, text] : lines) line(label, text);
  if (info.obstacles.empty()) line("unsupported", "nothing: this model can be served");
  for (const std::string& obstacle : info.obstacles) line("unsupported", obstacle);
  return out;
}

std::string checkpoint_info_json(const CheckpointInfo& info, const InfoView& view) {
  std::string types, obstacles;
  for (const auto& share : info.types) {
    types += fmt::format("{}{{\"type\":{},\"tensors\":{},\"parameters\":{},\"bytes\":{}}}", types.empty() ? "" : ",",
                         json_text(share.type), share.num_tensors, share.num_parameters, share.num_bytes);
  }
  for (const auto& obstacle : info.obstacles) obstacles += (obstacles.empty() ? "" : ",") + json_text(obstacle);
  std::string out = fmt::format(
      "{{\"path\":{},\"format\":{},\"name\":{},\"architecture\":{},\"tensors\":{},\"parameters\":{},\"weight_bytes\":{},"
      "\"types\":[{}],",
      json_text(info.path), json_text(info.format), json_text(info.name), json_text(info.architecture), info.num_tensors,
      info.num_parameters, info.weight_bytes, types);
  if (info.config) out += dense_json(info, view);
  if (info.v41) out += v41_info_json(*info.v41, info.v41_parts, shown_contexts(view.contexts, info.v41->max_position_embeddings), view.read_bytes_per_s);
  return out + fmt::format("\"unsupported\":[{}]}}", obstacles);
}

}  // namespace deepinfer::model
