// A request trace through the real index and policies of the block store, without a model: its segments lie in memory and its clock is the
// trace's. Traces name their blocks of 512 tokens (prefix-chained ids), as the Mooncake traces do.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "kv/eviction.h"

namespace deepinfer::bench {

struct TraceRequest {
  int64_t time_ms;
  int64_t input_tokens;
  std::vector<int64_t> blocks;
};
// Errors: kIo, kCorruption (a line that is no request).
Result<std::vector<TraceRequest>> read_trace(const std::string& path);

struct ReplayResult {
  int64_t hit_tokens = 0, tokens = 0, hit_blocks = 0, blocks = 0;
  uint64_t copied_blocks = 0, evicted_blocks = 0;
};
// capacity_blocks: what the store's budget holds; 0: everything. A request hits its longest known prefix, and then all its blocks are stored.
Result<ReplayResult> replay(const std::vector<TraceRequest>& trace, int64_t capacity_blocks, kv::EvictionPolicy policy);

// Blocks that occur in a trace, each counted once.
int64_t num_distinct_blocks(const std::vector<TraceRequest>& trace);

}  // namespace deepinfer::bench
