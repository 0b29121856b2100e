// Ids of texts that were encoded before. A conversation comes again with every turn, one message longer: what stands between two control
// tokens is a key, so that only the new end is encoded. Keys are compared whole; a hash alone decides nothing, since one client must not
// be able to give another's text its own ids. What one scope has sent is unknown in others: a quick answer says nothing of what strangers send.
// Bounded by bytes, least recently used first out. Thread-safe.
// Lost: a cache per conversation, which needs a name for it that stateless protocols do not have.
#pragma once

#include <cstdint>
#include <list>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/hash.h"
#include "base/thread_annotations.h"
#include "recipe/prompt.h"
#include "tokenizer/tokenizer.h"

namespace deepinfer::recipe {

class TokenCache {
 public:
  static constexpr size_t kDefaultBytes = size_t{256} << 20;  // about 30 M tokens of text and ids

  // tokenizer outlives the cache. max_bytes: 0 keeps nothing.
  TokenCache(const tokenizer::Tokenizer& tokenizer, size_t max_bytes = kDefaultBytes) : tokenizer_(tokenizer), max_bytes_(max_bytes) {}
  TokenCache(const TokenCache&) = delete;
  TokenCache& operator=(const TokenCache&) = delete;

  // The same ids as prompt_tokens(). scope: of whoever may know of this prompt.
  std::vector<TokenId> tokens(const Prompt& prompt, const Digest256& scope);

  size_t num_bytes() const;  // of what is kept

 private:
  struct Entry {
    Digest256 scope;
    std::string text;
    std::vector<TokenId> ids;
    size_t num_bytes() const { return text.capacity() + ids.capacity() * sizeof(TokenId) + kOverhead; }
    static constexpr size_t kOverhead = 192;  // list and map nodes
  };
  using Entries = std::list<Entry>;

  void append(std::string_view text, const Digest256& scope, std::vector<TokenId>& out);
  bool find(std::string_view text, const Digest256& scope, std::vector<TokenId>& out);
  void insert(Entry entry);
  void erase(Entries::iterator entry) REQUIRES(mu_);

  const tokenizer::Tokenizer& tokenizer_;
  const size_t max_bytes_;
  mutable Mutex mu_;
  Entries entries_ GUARDED_BY(mu_);  // most recently used first
  std::unordered_multimap<uint64_t, Entries::iterator> by_hash_ GUARDED_BY(mu_);
  size_t num_bytes_ GUARDED_BY(mu_) = 0;
};

}  // namespace deepinfer::recipe
