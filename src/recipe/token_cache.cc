#include "recipe/token_cache.h"

#include <iterator>
#include <span>

namespace deepinfer::recipe {
namespace {

// Shorter texts are encoded faster than they are found.
constexpr size_t kMinText = 64;

uint64_t hash_of(std::string_view text, const Digest256& scope) { return xxh3_64(std::as_bytes(std::span(text.data(), text.size()))) ^ Digest256Hash()(scope); }

}  // namespace

std::vector<TokenId> TokenCache::tokens(const Prompt& prompt, const Digest256& scope) {
  std::vector<TokenId> out;
  for_each_run(prompt, [&](std::string_view text) { append(text, scope, out); }, [&](TokenId id) { out.push_back(id); });
  return out;
}

size_t TokenCache::num_bytes() const {
  const MutexLock lock(mu_);
  return num_bytes_;
}

void TokenCache::append(std::string_view text, const Digest256& scope, std::vector<TokenId>& out) {
  if (text.size() < kMinText) return tokenizer_.encode(text, tokenizer::Recognize::kNothing, out);
  if (find(text, scope, out)) return;
  std::vector<TokenId> ids;
  tokenizer_.encode(text, tokenizer::Recognize::kNothing, ids);
  out.insert(out.end(), ids.begin(), ids.end());
  ids.shrink_to_fit();
  insert({.scope = scope, .text = std::string(text), .ids = std::move(ids)});
}

bool TokenCache::find(std::string_view text, const Digest256& scope, std::vector<TokenId>& out) {
  const uint64_t hash = hash_of(text, scope);
  const MutexLock lock(mu_);
  const auto [begin, end] = by_hash_.equal_range(hash);
  for (auto at = begin; at != end; ++at) {
    const Entries::iterator entry = at->second;
    if (entry->scope != scope || entry->text != text) continue;
    entries_.splice(entries_.begin(), entries_, entry);
    out.insert(out.end(), entry->ids.begin(), entry->ids.end());
    return true;
  }
  return false;
}

void TokenCache::insert(Entry entry) {
  const size_t size = entry.num_bytes();
  if (size > max_bytes_) return;
  const uint64_t hash = hash_of(entry.text, entry.scope);
  const MutexLock lock(mu_);
  while (num_bytes_ + size > max_bytes_) erase(std::prev(entries_.end()));
  entries_.push_front(std::move(entry));
  by_hash_.emplace(hash, entries_.begin());
  num_bytes_ += size;
}

void TokenCache::erase(Entries::iterator entry) {
  const auto [begin, end] = by_hash_.equal_range(hash_of(entry->text, entry->scope));
  for (auto at = begin; at != end; ++at) {
    if (at->second != entry) continue;
    by_hash_.erase(at);
    break;
  }
  num_bytes_ -= entry->num_bytes();
  entries_.erase(entry);
}

}  // namespace deepinfer::recipe
