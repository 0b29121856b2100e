#include "trace/token_memo.h"

#include <xxhash.h>

#include <algorithm>
#include <cmath>

namespace deepinfer::trace {
namespace {

constexpr size_t kEntryBytes = 128;  // map node, control block and vector of an entry, about

}  // namespace

TokenMemo::TokenMemo(const tokenizer::Tokenizer* tokenizer, double chars_per_token, size_t max_bytes)
    : tokenizer_(tokenizer), chars_per_token_(chars_per_token), max_young_bytes_(max_bytes / 2 / kNumShards) {}

void TokenMemo::compute(std::string_view text, std::vector<TokenId>& out) const {
  if (chars_per_token_ <= 0) return tokenizer_->encode(text, tokenizer::Recognize::kNothing, out);
  // Piece i ends at round((i + 1) * chars_per_token): the count is right on average, and equal texts have equal tokens.
  size_t begin = 0;
  for (size_t i = 1; begin < text.size(); ++i) {
    const size_t end = std::min(text.size(), std::max(begin + 1, static_cast<size_t>(std::llround(static_cast<double>(i) * chars_per_token_))));
    out.push_back(static_cast<TokenId>(XXH3_64bits(text.data() + begin, end - begin) >> 33));
    begin = end;
  }
}

void TokenMemo::encode(std::string_view text, std::vector<TokenId>& out) {
  if (text.empty()) return;
  bytes_asked_.fetch_add(text.size(), std::memory_order_relaxed);
  const XXH128_hash_t hash = XXH3_128bits(text.data(), text.size());
  const PrefixKey key{hash.low64, hash.high64};
  Shard& shard = shards_[key.high % kNumShards];
  Tokens tokens;
  {
    const MutexLock lock(shard.mu);
    if (const auto young = shard.young.find(key); young != shard.young.end()) {
      tokens = young->second;
    } else if (const auto old = shard.old.find(key); old != shard.old.end()) {
      tokens = old->second;
      shard.young_bytes += tokens->size() * sizeof(TokenId) + kEntryBytes;
      shard.young.emplace(key, tokens);
      shard.old.erase(old);
    }
  }
  if (tokens != nullptr) {
    out.insert(out.end(), tokens->begin(), tokens->end());
    return;
  }
  bytes_encoded_.fetch_add(text.size(), std::memory_order_relaxed);
  auto fresh = std::make_shared<std::vector<TokenId>>();
  compute(text, *fresh);
  fresh->shrink_to_fit();
  out.insert(out.end(), fresh->begin(), fresh->end());
  const MutexLock lock(shard.mu);
  const size_t bytes = fresh->size() * sizeof(TokenId) + kEntryBytes;
  if (bytes > max_young_bytes_) return;
  if (shard.young_bytes + bytes > max_young_bytes_) {
    shard.old = std::exchange(shard.young, {});
    shard.young_bytes = 0;
  }
  if (shard.young.emplace(key, std::move(fresh)).second) shard.young_bytes += bytes;
}

void TokenMemo::clear() {
  for (Shard& shard : shards_) {
    const MutexLock lock(shard.mu);
    shard.young = {};
    shard.old = {};
    shard.young_bytes = 0;
  }
}

}  // namespace deepinfer::trace
