// What an audit keeps of a log: the distinct prefixes, and for each request its time and where its path ends. No text. All figures
// about reuse are replayed from this, so that policies can be compared on the same requests, and traces of several machines joined.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "trace/prefix_tree.h"

namespace deepinfer::trace {

// Strings as small numbers, in the order of first use. 0 is always "".
class NameTable {
 public:
  NameTable() { id(""); }
  uint32_t id(std::string_view name);
  const std::string& name(uint32_t id) const { return names_[id]; }
  uint32_t size() const { return static_cast<uint32_t>(names_.size()); }
  uint64_t bytes() const { return bytes_; }  // of memory, about

 private:
  static constexpr uint64_t kBytesOfEach = 160;  // two strings, a node and its share of the table

  std::vector<std::string> names_;
  std::unordered_map<std::string, uint32_t> ids_;
  uint64_t bytes_ = 0;
};

// Kept for every request of a log, so it is small: 64 bytes.
struct TracedRequest {
  int64_t time_us = 0;
  uint64_t session = 0;          // hash of its name; 0: none was logged
  uint32_t leaf = PrefixTree::kRoot;
  uint32_t num_blocks = 0;       // of the whole prompt, sampled or not
  uint32_t head_blocks = 0;      // full blocks of what stands before the first turn: tools and system (0: not known)
  uint32_t tenant = 0, model = 0;  // in the trace's name tables
  int32_t input_tokens = 0;      // as tokenised here, or as the trace says
  // As logged; -1: not in the log. logged_input counts cached and written tokens too.
  int32_t logged_input = -1, logged_cached = -1, logged_written = -1, logged_written_1h = -1, output_tokens = -1;
};

struct RequestTrace {
  explicit RequestTrace(int32_t block_tokens, uint64_t max_blocks, double rate = 1, uint64_t seed = 0)
      : block_tokens(block_tokens), tree(max_blocks, rate, seed) {}

  int32_t block_tokens;  // of a node
  // Prompts of hash traces end in a block that is not full and counts what is left; those that were tokenised here have full blocks only.
  bool partial_blocks = false;
  PrefixTree tree;
  std::deque<TracedRequest> requests;  // in the order of the log; a deque, since a vector that grows needs three times its size
  NameTable tenants, models;

  uint64_t request_bytes() const { return requests.size() * sizeof(TracedRequest) + tenants.bytes() + models.bytes(); }

  // Adds the request with its path; shrinks the tree if it grew too large. Gives PrefixTree::Inserted::num_known.
  uint32_t add(TracedRequest request, std::span<const PrefixKey> keys);

  // Request numbers by time; equal times in the order of the log.
  std::vector<uint32_t> by_time() const;

  // Appends the other trace's requests after this one's. Errors: kInvalidArgument (other block size, other sample).
  Result<> append(const RequestTrace& other);

  // Gives tenants other names; those that share one from then on are one tenant.
  void rename_tenants(const std::function<std::string(const std::string&)>& name_of);

  // The trace as bytes (docs/formats/request_trace.md), and back. Errors: kCorruption.
  std::string encode() const;
  static Result<RequestTrace> decode(std::string_view bytes, uint64_t max_blocks);
};

}  // namespace deepinfer::trace
