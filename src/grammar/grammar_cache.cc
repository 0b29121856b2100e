#include "grammar/grammar_cache.h"

#include <utility>

#include "base/check.h"

namespace deepinfer::grammar {

GrammarCache::GrammarCache(const tokenizer::Tokenizer& tokenizer, int32_t vocab_size, std::vector<TokenId> end_tokens, size_t capacity)
    : tokenizer_(tokenizer), vocab_size_(vocab_size), end_tokens_(std::move(end_tokens)), capacity_(capacity) {
  CHECK(capacity_ >= 1);
}

Result<std::shared_ptr<const Grammar>> GrammarCache::find_or_compile(std::string_view spec) {
  const Digest256 key = blake2b_256(std::as_bytes(std::span(spec)));
  if (std::shared_ptr<const Grammar> found = find(key)) return found;
  DI_TRY(const Vocabulary* vocabulary, this->vocabulary());
  DI_TRY(std::shared_ptr<const Grammar> compiled, Grammar::compile(*vocabulary, spec));
  insert(key, compiled);
  return compiled;
}

size_t GrammarCache::size() const {
  const MutexLock lock(mu_);
  return entries_.size();
}

Result<const Vocabulary*> GrammarCache::vocabulary() {
  const MutexLock lock(building_);
  if (vocabulary_ == nullptr) {
    DI_TRY(vocabulary_, Vocabulary::build(tokenizer_, vocab_size_, end_tokens_));
  }
  return vocabulary_.get();
}

std::shared_ptr<const Grammar> GrammarCache::find(const Digest256& key) {
  const MutexLock lock(mu_);
  const auto it = by_key_.find(key);
  if (it == by_key_.end()) return nullptr;
  entries_.splice(entries_.begin(), entries_, it->second);
  return it->second->grammar;
}

void GrammarCache::insert(const Digest256& key, std::shared_ptr<const Grammar> grammar) {
  std::list<Entry> dropped;  // destroyed without the lock
  const MutexLock lock(mu_);
  if (by_key_.contains(key)) return;
  entries_.push_front({key, std::move(grammar)});
  by_key_.emplace(key, entries_.begin());
  if (entries_.size() <= capacity_) return;
  by_key_.erase(entries_.back().key);
  dropped.splice(dropped.begin(), entries_, std::prev(entries_.end()));
}

}  // namespace deepinfer::grammar
