// engine/token_counts.h: which tokens a sequence has seen and how often it has sampled each, for the penalties. A flat hash table sized at
// submission for all tokens that the sequence can ever hold, so that counting inside a step allocates nothing.
// Submitting thread until the request is accepted, engine thread after. The alternative that lost: an array over the vocabulary,
// 600 kB a sequence at 150k tokens.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/request.h"

namespace deepinfer::engine {

class TokenCounts {
 public:
  struct Entry {
    TokenId token;
    int32_t num_sampled;  // 0: in the prompt only
  };

  TokenCounts() = default;  // holds nothing
  explicit TokenCounts(int32_t max_num_distinct);

  void add_prompt(std::span<const TokenId> tokens);
  void add_sampled(TokenId token) { find_or_add(token).num_sampled += 1; }
  std::span<const Entry> entries() const { return entries_; }  // in order of first appearance

 private:
  Entry& find_or_add(TokenId token);

  std::vector<Entry> entries_;
  std::vector<int32_t> slots_;  // index into entries_, or -1; a power of two, at most half full
};

}  // namespace deepinfer::engine
