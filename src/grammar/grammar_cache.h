// grammar/grammar_cache.h: compiled constraints of one model, by the digest of their description; the least recently used goes first.
// Any thread. Compiling happens on the caller's thread, outside of the lock, so a slow schema makes nobody else wait; two callers that
// come with the same new description at once both compile it. The vocabulary is built when the first constraint comes.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "base/hash.h"
#include "base/lru_cache.h"
#include "base/result.h"
#include "base/thread_annotations.h"
#include "grammar/grammar.h"
#include "grammar/vocabulary.h"

namespace deepinfer::grammar {

constexpr size_t kMaxCachedGrammars = 64;  // a few MiB each at most

class GrammarCache {
 public:
  // The tokenizer outlives the cache. vocab_size, end_tokens: of the model; see Vocabulary::build().
  GrammarCache(const tokenizer::Tokenizer& tokenizer, int32_t vocab_size, std::vector<TokenId> end_tokens, size_t capacity = kMaxCachedGrammars);

  // Errors: Grammar::compile()'s, Vocabulary::build()'s. scope: Constraint's.
  Result<std::shared_ptr<const Grammar>> find_or_compile(std::string_view spec, const Digest256& scope = {});

  size_t size() const;
  int32_t vocab_size() const { return vocab_size_; }

 private:
  Result<const Vocabulary*> vocabulary();

  const tokenizer::Tokenizer& tokenizer_;
  const int32_t vocab_size_;
  const std::vector<TokenId> end_tokens_;

  Mutex building_;  // held while the vocabulary is built: all who come meanwhile need it
  std::unique_ptr<const Vocabulary> vocabulary_ GUARDED_BY(building_);

  mutable Mutex mu_;
  LruCache<Digest256, std::shared_ptr<const Grammar>, Digest256Hash> compiled_ GUARDED_BY(mu_);  // counted, one each
};

}  // namespace deepinfer::grammar
