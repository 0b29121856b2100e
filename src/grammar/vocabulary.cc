#include "grammar/vocabulary.h"

#include <string>
#include <string_view>
#include <vector>

#include "grammar/rust_error.h"

namespace deepinfer::grammar {
namespace {

constexpr std::string_view kWhiteSpace = " \t\r\n\v\f";

bool is_white_space(std::string_view text) { return text.find_first_not_of(kWhiteSpace) == std::string_view::npos; }

}  // namespace

Result<std::unique_ptr<const Vocabulary>> Vocabulary::build(const tokenizer::Tokenizer& tokenizer, int32_t size, std::span<const TokenId> end_tokens) {
  if (size < tokenizer.vocab_size()) return Error{Code::kInvalidArgument, "the tokenizer has more tokens than the model"};
  if (end_tokens.empty()) return Error{Code::kInvalidArgument, "the model has no token that ends an answer"};
  std::vector<uint32_t> ends_of_answer;
  for (const TokenId token : end_tokens) {
    if (token < 0 || token >= size) return Error{Code::kInvalidArgument, "an end token is not in the vocabulary"};
    ends_of_answer.push_back(static_cast<uint32_t>(token));
  }
  std::vector<uint8_t> special(static_cast<size_t>(size));
  for (const auto& token : tokenizer.added_tokens()) special[static_cast<size_t>(token.id)] = token.special || !is_white_space(token.spelling);
  std::string bytes;
  std::vector<uint64_t> ends;
  ends.reserve(special.size());
  for (TokenId id = 0; id < size; ++id) {
    bytes += tokenizer.token_bytes(id);
    ends.push_back(bytes.size());
  }
  DiVocabulary* raw = nullptr;
  RustBuffer error;
  const int32_t status = di_vocabulary_new(reinterpret_cast<const uint8_t*>(bytes.data()), ends.data(), special.data(), static_cast<uint32_t>(size),
                                           ends_of_answer.data(), static_cast<uint32_t>(ends_of_answer.size()), &raw, &error.raw);
  DI_TRY(to_result(status, error));
  return std::unique_ptr<const Vocabulary>(new Vocabulary(raw, size));
}

Vocabulary::~Vocabulary() { di_vocabulary_free(raw_); }

}  // namespace deepinfer::grammar
