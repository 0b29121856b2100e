// Texts to tokens, each text once: agents send the same turns again and again, and a turn's tokens do not depend on what stands around
// it, because control tokens separate turns. Bounded: two generations, the older one forgotten when the younger is full. Thread-safe.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/thread_annotations.h"
#include "core/request.h"
#include "tokenizer/tokenizer.h"
#include "trace/prefix_tree.h"

namespace deepinfer::trace {

class TokenMemo {
 public:
  // chars_per_token above 0: no tokenizer, an estimate; a token is that many bytes.
  TokenMemo(const tokenizer::Tokenizer* tokenizer, double chars_per_token, size_t max_bytes);

  // Appends the tokens of `text`, control tokens in it being ordinary text.
  void encode(std::string_view text, std::vector<TokenId>& out);

  void clear();

  uint64_t bytes_asked() const { return bytes_asked_.load(std::memory_order_relaxed); }
  uint64_t bytes_encoded() const { return bytes_encoded_.load(std::memory_order_relaxed); }

 private:
  struct KeyHash {
    size_t operator()(const PrefixKey& key) const { return key.low; }
  };
  using Tokens = std::shared_ptr<const std::vector<TokenId>>;
  using Map = std::unordered_map<PrefixKey, Tokens, KeyHash>;
  struct Shard {
    Mutex mu;
    Map young GUARDED_BY(mu), old GUARDED_BY(mu);
    size_t young_bytes GUARDED_BY(mu) = 0;
  };

  void compute(std::string_view text, std::vector<TokenId>& out) const;

  static constexpr size_t kNumShards = 64;
  const tokenizer::Tokenizer* tokenizer_;
  double chars_per_token_;
  size_t max_young_bytes_;  // of a shard
  std::array<Shard, kNumShards> shards_;
  std::atomic<uint64_t> bytes_asked_ = 0, bytes_encoded_ = 0;
};

}  // namespace deepinfer::trace
