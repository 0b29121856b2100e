#include "model/dense_synth.h"

#include <fmt/format.h>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "kernels/quantize.h"
#include "model/dense_weights.h"
#include "model/gguf_writer.h"

namespace deepinfer::model {
namespace {

constexpr int32_t kNumByteTokens = 256, kEndOfText = 256, kTurnStart = 257, kTurnEnd = 258, kMinVocab = 260;  // "he" is 259
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

// The character that byte-level BPE spells a byte with (GPT-2's table): itself if it is printable Latin-1, else the next free one
// from U+0100 on. As UTF-8.
std::vector<std::string> byte_spellings() {
  std::vector<std::string> out;
  int next = 256;
  for (int byte = 0; byte < kNumByteTokens; ++byte) {
    const bool printable = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
    const int code = printable ? byte : next++;
    if (code < 128) {
      out.emplace_back(1, static_cast<char>(code));
    } else {
      out.push_back({static_cast<char>(0xc0 | code >> 6), static_cast<char>(0x80 | (code & 63))});
    }
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

// One row of random weights: the sum of a word's four bytes, centred and scaled to a standard deviation of 0.02. A byte has
// variance (256^2 - 1) / 12, four of them 21845: near enough to a bell for this purpose, and a tenth of the cost of a true one.
void random_row(uint64_t seed, uint64_t tensor, uint64_t row, std::span<float> out) {
  const float scale = 0.02f / std::sqrt(21845.0f);
  const uint64_t per_row = (out.size() + 3) / 4;
  for (size_t i = 0; i < out.size(); i += 4) {
    const auto words = philox(seed, row * per_row + i / 4, tensor);
    for (size_t j = 0; j < 4 && i + j < out.size(); ++j) {
      const uint32_t pairs = (words[j] & 0x00ff00ff) + (words[j] >> 8 & 0x00ff00ff);
      out[i + j] = static_cast<float>(static_cast<int>((pairs & 0xffff) + (pairs >> 16)) - 510) * scale;
    }
  }
}

class OutputFile {
 public:
  explicit OutputFile(const std::string& path)
      : path_(path), temporary_(path + ".part"), file_(std::fopen(temporary_.c_str(), "wb")) {}
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;
  ~OutputFile() {
    if (file_ == nullptr) return;
    std::fclose(file_);
    std::remove(temporary_.c_str());
  }
  void write(const void* data, size_t size) {
    if (file_ != nullptr && size > 0 && std::fwrite(data, 1, size, file_) != size && error_ == 0) error_ = errno;
  }
  Result<> finish() {
    if (file_ == nullptr) return failed(errno);
    if (std::fflush(file_) != 0 && error_ == 0) error_ = errno;
    if (error_ != 0) return failed(error_);
    if (std::rename(temporary_.c_str(), path_.c_str()) != 0) return failed(errno);
    std::fclose(std::exchange(file_, nullptr));
    return {};
  }
  bool ok() const { return file_ != nullptr && error_ == 0; }

 private:
  Error failed(int number) const { return Error{Code::kIo, fmt::format("{}: {}", temporary_, std::strerror(number))}; }
  std::string path_, temporary_;
  std::FILE* file_;
  int error_ = 0;
};

void write_tensor(OutputFile& file, const SynthTensor& tensor, uint64_t seed, uint64_t index) {
  const int64_t cols = tensor.shape.back(), rows = tensor.shape.size() == 2 ? tensor.shape.front() : 1;
  std::vector<float> row(static_cast<size_t>(cols), 1.0f);
  std::vector<std::byte> bytes(static_cast<size_t>(row_bytes(tensor.dtype, cols)));
  for (int64_t r = 0; r < rows && file.ok(); ++r) {
    if (!tensor.ones) random_row(seed, index, static_cast<uint64_t>(r), row);
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
  OutputFile file(path);
  const std::string header = describe(shape, dtype, tensors).header();
  file.write(header.data(), header.size());
  for (size_t i = 0; i < tensors.size() && file.ok(); ++i) write_tensor(file, tensors[i], seed, i);
  return file.finish();
}

}  // namespace deepinfer::model
