// Repetition that prefix caches cannot reach: text that was seen before, but behind other text. Tokens behind a prompt's known prefix
// are cut where their content says so (a hash of a few neighbours), so that the same document gives the same chunks wherever it
// stands; chunks that were seen before count. Bounded by spatial sampling of chunks. Not thread-safe.
#pragma once

#include <cstdint>
#include <unordered_set>

#include "trace/prepared_request.h"

namespace deepinfer::trace {

class Repetition {
 public:
  explicit Repetition(size_t max_chunks) : max_chunks_(max_chunks) {}

  void add(const PreparedRequest& request, int64_t num_known_tokens);

  double repeated_tokens() const { return repeated_; }  // seen before at another place; an estimate once chunks are sampled
  void append(double repeated_tokens) { repeated_ += repeated_tokens; }

 private:
  void add_chunk(const TokenId* tokens, size_t count);

  size_t max_chunks_;
  uint64_t threshold_ = UINT64_MAX;
  std::unordered_set<uint64_t> seen_;
  double repeated_ = 0;
};

}  // namespace deepinfer::trace
