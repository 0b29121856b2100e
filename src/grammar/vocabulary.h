// grammar/vocabulary.h: a model's tokens as a trie of their bytes, over which grammars find what may come next. Immutable after it is
// built; building takes some tenths of a second for 129,280 tokens. Any thread.
//
// Added tokens (control tokens, and whatever else is no text) can never stand for text: a grammar names them by number or not at all.
// Added runs of white space are text.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "base/result.h"
#include "core/request.h"
#include "tokenizer/tokenizer.h"

struct DiVocabulary;

namespace deepinfer::grammar {

class Vocabulary {
 public:
  // size: tokens of the model, at least the tokenizer's; those that the tokenizer does not know are never allowed. end_tokens: what may
  // follow where a constraint may end; not empty. Errors: kInvalidArgument (size, end tokens), kInternal.
  static Result<std::unique_ptr<const Vocabulary>> build(const tokenizer::Tokenizer& tokenizer, int32_t size, std::span<const TokenId> end_tokens);
  ~Vocabulary();
  Vocabulary(const Vocabulary&) = delete;
  Vocabulary& operator=(const Vocabulary&) = delete;

  int32_t size() const { return size_; }
  size_t mask_words() const { return (static_cast<size_t>(size_) + 31) / 32; }

 private:
  friend class Grammar;
  Vocabulary(DiVocabulary* raw, int32_t size) : raw_(raw), size_(size) {}

  DiVocabulary* const raw_;
  const int32_t size_;
};

}  // namespace deepinfer::grammar
