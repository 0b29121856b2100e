#include "grammar/grammar_cache.h"

#include <utility>

#include "base/check.h"

namespace deepinfer::grammar {

GrammarCache::GrammarCache(const tokenizer::Tokenizer& tokenizer, int32_t vocab_size, std::vector<TokenId> end_tokens, size_t capacity)
    : tokenizer_(tokenizer), vocab_size_(vocab_size), end_tokens_(std::move(end_tokens)), compiled_(capacity) {
  CHECK(capacity >= 1);
}

Result<std::shared_ptr<const Grammar>> GrammarCache::find_or_compile(std::string_view spec, const Digest256& scope) {
  const Digest256 key = blake2b_256(std::as_bytes(std::span(spec)), std::as_bytes(std::span(scope.bytes)));
  {
    const MutexLock lock(mu_);
    if (const auto found = compiled_.find(key)) return *found;
  }
  DI_TRY(const Vocabulary* vocabulary, this->vocabulary());
  DI_TRY(std::shared_ptr<const Grammar> compiled, Grammar::compile(*vocabulary, spec));
  const MutexLock lock(mu_);
  compiled_.insert(key, compiled, 1);
  return compiled;
}

size_t GrammarCache::size() const {
  const MutexLock lock(mu_);
  return compiled_.num_bytes();
}

Result<const Vocabulary*> GrammarCache::vocabulary() {
  const MutexLock lock(building_);
  if (vocabulary_ == nullptr) {
    DI_TRY(vocabulary_, Vocabulary::build(tokenizer_, vocab_size_, end_tokens_));
  }
  return vocabulary_.get();
}

}  // namespace deepinfer::grammar
