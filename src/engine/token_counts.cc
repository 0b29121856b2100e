#include "engine/token_counts.h"

#include <bit>

#include "base/check.h"

namespace deepinfer::engine {

TokenCounts::TokenCounts(int32_t max_num_distinct) {
  entries_.reserve(static_cast<size_t>(max_num_distinct));
  slots_.assign(std::bit_ceil(static_cast<size_t>(max_num_distinct) * 2), -1);
}

void TokenCounts::add_prompt(std::span<const TokenId> tokens) {
  for (const TokenId token : tokens) find_or_add(token);
}

TokenCounts::Entry& TokenCounts::find_or_add(TokenId token) {
  const size_t mask = slots_.size() - 1;
  // Fibonacci hashing: ids of one text lie close together, their products do not.
  for (size_t i = static_cast<uint32_t>(token) * 0x9E3779B97F4A7C15ull >> 32 & mask;; i = (i + 1) & mask) {
    if (slots_[i] >= 0) {
      Entry& entry = entries_[static_cast<size_t>(slots_[i])];
      if (entry.token == token) return entry;
      continue;
    }
    DCHECK(entries_.size() < entries_.capacity());
    slots_[i] = static_cast<int32_t>(entries_.size());
    entries_.push_back({token, 0});
    return entries_.back();
  }
}

}  // namespace deepinfer::engine
