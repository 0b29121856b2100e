#include "model/gguf_vocabulary.h"

#include <fmt/format.h>

#include "model/gguf.h"

namespace deepinfer::model {
namespace {

Error wrong(const GgufFile& file, std::string_view key, const std::string& what) {
  return Error{Code::kCorruption, fmt::format("{}: metadata key {} {}", file.path(), key, what)};
}

// An array must be absent or have one element a token.
Result<> check_length(const GgufFile& file, std::string_view key, size_t length, size_t num_tokens) {
  if (length == num_tokens || (length == 0 && !file.has(key))) return {};
  return wrong(file, key, fmt::format("has {} entries for {} tokens", length, num_tokens));
}

Result<std::optional<int64_t>> token_id(const GgufFile& file, std::string_view key, size_t num_tokens) {
  DI_TRY(const auto id, file.find_integer(key));
  if (id && (*id < 0 || *id >= static_cast<int64_t>(num_tokens))) {
    return wrong(file, key, fmt::format("is {} in a vocabulary of {}", *id, num_tokens));
  }
  return id;
}

Result<> check_embedding(const GgufFile& file, size_t num_tokens) {
  const TensorView* embedding = file.find("token_embd.weight");
  if (embedding == nullptr || embedding->shape.front() == static_cast<int64_t>(num_tokens)) return {};
  return Error{Code::kCorruption, fmt::format("{}: tensor token_embd.weight has {} rows for {} tokens", file.path(),
                                              embedding->shape.front(), num_tokens)};
}

}  // namespace

Result<GgufVocabularyData> gguf_vocabulary(const GgufFile& file) {
  GgufVocabularyData v;
  DI_TRY(v.model, file.text("tokenizer.ggml.model"));
  DI_TRY(const auto pre, file.find_text("tokenizer.ggml.pre"));
  v.pre = pre.value_or("");
  DI_TRY(v.tokens, file.texts("tokenizer.ggml.tokens"));
  if (v.tokens.empty()) return wrong(file, "tokenizer.ggml.tokens", "is absent or empty");
  DI_TRY(v.scores, file.floats("tokenizer.ggml.scores"));
  DI_TRY(v.token_types, file.int32s("tokenizer.ggml.token_type"));
  DI_TRY(v.merges, file.texts("tokenizer.ggml.merges"));
  const size_t num_tokens = v.tokens.size();
  DI_TRY(check_length(file, "tokenizer.ggml.scores", v.scores.size(), num_tokens));
  DI_TRY(check_length(file, "tokenizer.ggml.token_type", v.token_types.size(), num_tokens));
  DI_TRY(check_embedding(file, num_tokens));
  DI_TRY(v.bos_id, token_id(file, "tokenizer.ggml.bos_token_id", num_tokens));
  DI_TRY(v.eos_id, token_id(file, "tokenizer.ggml.eos_token_id", num_tokens));
  DI_TRY(v.eot_id, token_id(file, "tokenizer.ggml.eot_token_id", num_tokens));
  DI_TRY(v.unknown_id, token_id(file, "tokenizer.ggml.unknown_token_id", num_tokens));
  DI_TRY(v.padding_id, token_id(file, "tokenizer.ggml.padding_token_id", num_tokens));
  DI_TRY(v.add_bos, file.find_bool("tokenizer.ggml.add_bos_token"));
  DI_TRY(v.add_space_prefix, file.find_bool("tokenizer.ggml.add_space_prefix"));
  DI_TRY(v.chat_template, file.find_text("tokenizer.chat_template"));
  return v;
}

}  // namespace deepinfer::model
