#include "model/dense_synth.h"

#include <fmt/format.h>
#include <array>
#include <vector>

#include "io/output_file.h"
#include "kernels/quantize.h"
#include "model/dense_weights.h"
#include "model/gguf_writer.h"
#include "model/synth_parts.h"

namespace deepinfer::model {
namespace {

constexpr float kDeviation = 0.02f;  // of the weights
constexpr int32_t kEndOfText = 256, kTurnStart = 257, kTurnEnd = 258, kMinVocab = 260;  // "he" is 259
constexpr std::string_view kTemplate =
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}{% "
    "endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

struct NamedShape {
  std::string_view name;
  DenseArchitecture architecture;
  int32_t layers, hidden, heads, kv_heads, head_dim, intermediate, vocab, context;
  double theta;
  bool tied;
};
using enum DenseArchitecture;
constexpr NamedShape kShapes[] = {
    {"tiny", kQwen3, 2, 64, 4, 2, 32, 128, 512, 4096, 1e6, true},
    {"smollm2-135m", kLlama, 30, 576, 9, 3, 64, 1536, 49152, 8192, 1e5, true},
    {"qwen2.5-0.5b", kQwen2, 24, 896, 14, 2, 64, 4864, 151936, 32768, 1e6, true},
    {"qwen3-0.6b", kQwen3, 28, 1024, 16, 8, 128, 3072, 151936, 40960, 1e6, true},
    {"llama3.2-1b", kLlama, 16, 2048, 32, 8, 64, 8192, 128256, 131072, 5e5, true},
    {"qwen3-1.7b", kQwen3, 28, 2048, 16, 8, 128, 6144, 151936, 40960, 1e6, true},
};

struct SynthTensor {
  std::string name;
  DType dtype;
  std::vector<int64_t> shape;
  bool ones;  // a norm
};

// In the order of the file.
std::vector<SynthTensor> tensors_of(const DenseConfig& c, DType dtype) {
  std::vector<SynthTensor> out;
  const auto add = [&](std::string_view role, int layer, std::vector<int64_t> shape) {
    const bool vector = shape.size() == 1;
    const bool norm = role.ends_with("norm");
    out.push_back({dense_tensor_name(TensorNaming::kGguf, role, layer), vector ? DType::kF32 : dtype, std::move(shape), norm});
  };
  const int64_t hidden = c.hidden_size, intermediate = c.intermediate_size;
  add("embedding", -1, {c.vocab_size, hidden});
  add("output_norm", -1, {hidden});
  if (!c.tied_head) add("head", -1, {c.vocab_size, hidden});
  for (int i = 0; i < c.num_hidden_layers; ++i) {
    add("attention_norm", i, {hidden});
    add("q", i, {c.q_size(), hidden});
    add("k", i, {c.kv_size(), hidden});
    add("v", i, {c.kv_size(), hidden});
    add("output", i, {hidden, c.q_size()});
    if (c.qkv_bias) {
      add("q_bias", i, {c.q_size()});
      add("k_bias", i, {c.kv_size()});
      add("v_bias", i, {c.kv_size()});
    }
    if (c.qk_norm) {
      add("q_norm", i, {c.head_dim});
      add("k_norm", i, {c.head_dim});
    }
    add("ffn_norm", i, {hidden});
    add("gate", i, {intermediate, hidden});
    add("up", i, {intermediate, hidden});
    add("down", i, {hidden, intermediate});
  }
  return out;
}

void add_vocabulary(GgufWriter& gguf, const DenseConfig& c) {
  std::vector<std::string> tokens = byte_spellings();
  for (const char* token : {"<|endoftext|>", "<|im_start|>", "<|im_end|>", "he"}) tokens.emplace_back(token);
  std::vector<int32_t> types(static_cast<size_t>(c.vocab_size), 1);
  for (const int32_t control : {kEndOfText, kTurnStart, kTurnEnd}) types[static_cast<size_t>(control)] = 3;
  for (int32_t i = kMinVocab; i < c.vocab_size; ++i) tokens.push_back(fmt::format("filler{}", i));
  gguf.add_text("tokenizer.ggml.model", "gpt2");
  gguf.add_text("tokenizer.ggml.pre", c.architecture == kLlama ? "llama-bpe" : "qwen2");
  gguf.add_texts("tokenizer.ggml.tokens", tokens);
  gguf.add_int32s("tokenizer.ggml.token_type", types);
  // llama.cpp refuses a vocabulary of this kind without merges.
  gguf.add_texts("tokenizer.ggml.merges", std::vector<std::string>{tokens['h'] + " " + tokens['e']});
  gguf.add_u32("tokenizer.ggml.bos_token_id", kEndOfText);
  gguf.add_u32("tokenizer.ggml.eos_token_id", kTurnEnd);
  gguf.add_u32("tokenizer.ggml.padding_token_id", kEndOfText);
  gguf.add_bool("tokenizer.ggml.add_bos_token", false);
  gguf.add_text("tokenizer.chat_template", kTemplate);
}

// llama.cpp's number for "mostly this type"; shown by tools, read by nobody.
uint32_t file_type(DType dtype) {
  switch (dtype) {
    case DType::kF16: return 1;
    case DType::kQ4_0: return 2;
    case DType::kQ8_0: return 7;
    case DType::kBF16: return 32;
    default: return 0;
  }
}

GgufWriter describe(const DenseConfig& c, DType dtype, const std::vector<SynthTensor>& tensors) {
  GgufWriter gguf;
  const std::string_view architecture = dense_architecture_name(c.architecture);
  const auto key = [&](std::string_view suffix) { return fmt::format("{}.{}", architecture, suffix); };
  const auto count = [&](std::string_view suffix, int32_t value) { gguf.add_u32(key(suffix), static_cast<uint32_t>(value)); };
  gguf.add_text("general.architecture", architecture);
  gguf.add_text("general.name", fmt::format("random {}", architecture));
  gguf.add_u32("general.file_type", file_type(dtype));
  gguf.add_u32("general.quantization_version", 2);
  count("context_length", c.max_context);
  count("embedding_length", c.hidden_size);
  count("block_count", c.num_hidden_layers);
  count("feed_forward_length", c.intermediate_size);
  count("attention.head_count", c.num_attention_heads);
  count("attention.head_count_kv", c.num_key_value_heads);
  count("attention.key_length", c.head_dim);
  count("attention.value_length", c.head_dim);
  count("rope.dimension_count", c.head_dim);
  count("vocab_size", c.vocab_size);
  gguf.add_f32(key("attention.layer_norm_rms_epsilon"), c.rms_norm_eps);
  gguf.add_f32(key("rope.freq_base"), static_cast<float>(c.rope.theta));
  add_vocabulary(gguf, c);
  for (const SynthTensor& t : tensors) gguf.add_tensor(t.name, t.dtype, t.shape);
  return gguf;
}

void write_tensor(io::OutputFile& file, const SynthTensor& tensor, uint64_t seed, uint64_t index) {
  const int64_t cols = tensor.shape.back(), rows = tensor.shape.size() == 2 ? tensor.shape.front() : 1;
  std::vector<float> row(static_cast<size_t>(cols), 1.0f);
  std::vector<std::byte> bytes(static_cast<size_t>(row_bytes(tensor.dtype, cols)));
  for (int64_t r = 0; r < rows && file.ok(); ++r) {
    if (!tensor.ones) random_row(seed, index, static_cast<uint64_t>(r), kDeviation, row);
    quantize(tensor.dtype, row.data(), bytes.data(), cols);
    file.write(bytes.data(), bytes.size());
  }
  const std::string zeros(GgufWriter::padding(static_cast<uint64_t>(rows) * bytes.size()), '\0');
  file.write(zeros.data(), zeros.size());
}

}  // namespace

std::span<const std::string_view> dense_synth_names() {
  static constexpr auto kNames = [] {
    std::array<std::string_view, std::size(kShapes)> names;
    for (size_t i = 0; i < names.size(); ++i) names[i] = kShapes[i].name;
    return names;
  }();
  return kNames;
}

std::optional<DenseConfig> dense_synth_shape(std::string_view name) {
  for (const NamedShape& s : kShapes) {
    if (s.name != name) continue;
    DenseConfig c;
    c.architecture = s.architecture;
    c.num_hidden_layers = s.layers;
    c.hidden_size = s.hidden;
    c.num_attention_heads = s.heads;
    c.num_key_value_heads = s.kv_heads;
    c.head_dim = s.head_dim;
    c.intermediate_size = s.intermediate;
    c.vocab_size = s.vocab;
    c.max_context = s.context;
    c.rms_norm_eps = s.architecture == kLlama ? 1e-5f : 1e-6f;
    c.rope.theta = s.theta;
    c.rope.original_context = s.context;
    c.rope.interleaved = s.architecture == kLlama;
    c.qkv_bias = s.architecture == kQwen2;
    c.qk_norm = s.architecture == kQwen3;
    c.tied_head = s.tied;
    c.layer_window.assign(static_cast<size_t>(s.layers), 0);
    c.bos_id = kEndOfText;
    c.eos_ids = {kTurnEnd};
    return c;
  }
  return std::nullopt;
}

Result<> write_dense_synth(const std::string& path, const DenseConfig& shape, DType dtype, uint64_t seed) {
  if (!can_quantize(dtype)) {
    return Error{Code::kInvalidArgument,
                 fmt::format("{} cannot be written (F32, F16, BF16, Q8_0 and Q4_0 can)", dtype_info(dtype).name)};
  }
  if (shape.vocab_size < kMinVocab) return Error{Code::kInvalidArgument, fmt::format("a vocabulary below {} tokens", kMinVocab)};
  const auto tensors = tensors_of(shape, dtype);
  for (const SynthTensor& t : tensors) {
    if (t.shape.back() % dtype_info(t.dtype).block_size != 0) {
      return Error{Code::kInvalidArgument, fmt::format("tensor {}: rows of {} are no whole number of {} blocks", t.name,
                                                       t.shape.back(), dtype_info(t.dtype).name)};
    }
  }
  io::OutputFile file(path);
  const std::string header = describe(shape, dtype, tensors).header();
  file.write(header.data(), header.size());
  for (size_t i = 0; i < tensors.size() && file.ok(); ++i) write_tensor(file, tensors[i], seed, i);
  return file.finish();
}

}  // namespace deepinfer::model
