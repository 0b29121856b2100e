// Replays a trace through prefix caches: for every retention and every capacity at once, exactly.
//
// A cache holds blocks. A request finds the longest run of its blocks that are there, then uses all its blocks, the last one first:
// so a block is never older than one that needs it, and the least recently used block is always one that no other stands on.
// - Retention: a block is there for T after its last use. A run of length n hits under T exactly if its oldest block is younger than T.
// - Capacity: the cache holds the C most recently used blocks. LRU has the stack property (Mattson et al. 1970): a block is there
//   exactly if fewer than C distinct blocks were used since. So one replay gives the hits of all capacities; both bounds together
//   hold where each holds, since blocks that have expired lie below all that have not.
// Blocks last used by the same request lie in one run of a path, so a request costs a few steps of a Fenwick tree, not one a block.
//
// A sampled trace estimates: misses are counted in the sample and scaled, which varies less than hits do (a block that every request
// uses misses once). Errors are stated as half the width of a 95 % interval.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "trace/request_trace.h"

namespace deepinfer::trace {

constexpr int64_t kForever = INT64_MAX;
constexpr uint64_t kUnlimited = UINT64_MAX;

struct ReplayOptions {
  uint32_t multiple = 1;                // the cache's block is this many blocks of the trace
  std::vector<int64_t> retentions_us;   // rising; the last one may be kForever
  std::vector<uint64_t> capacities;     // in cache blocks, rising; the last one may be kUnlimited
};

// Buckets of a histogram: four for each doubling.
constexpr uint32_t kNumBuckets = 4 * 64;
uint32_t bucket_of(uint64_t value);
uint64_t bucket_floor(uint32_t bucket);  // smallest value in it

struct ReuseCounts {
  int64_t num_requests = 0;
  double rate = 1;            // of the sample
  double block_size_tokens = 0;
  double input_tokens = 0;    // all
  double block_tokens = 0;    // in blocks that a cache could hold
  // [retention][capacity], row-major: tokens that were not there.
  std::vector<double> missed;
  // [retention][capacity][group]: the same by group of sampled blocks; empty if the trace is not sampled.
  std::vector<double> missed_by_group;
  // [model][retention] with unlimited capacity; input_by_model likewise.
  std::vector<std::vector<double>> hit_by_model;
  std::vector<double> input_by_model;
  std::vector<double> distance_tokens;  // [kNumBuckets] hit tokens by the tokens of distinct blocks used since
  std::vector<double> age_tokens;       // [kNumBuckets] hit tokens by milliseconds since the last use
  double distinct_tokens = 0;           // of all blocks ever used: what an unlimited cache holds at the end

  // Tokens that were there, and half the width of their 95 % interval (0 without sampling).
  double hit(size_t retention, size_t capacity, const ReplayOptions& options) const;
  double error(size_t retention, size_t capacity, const ReplayOptions& options) const;
  void add(const ReuseCounts& other);
};

// Room that replays of one trace share; what a replay used, it cleans up.
struct ReplayScratch {
  std::vector<uint32_t> last_use;  // by node: position in `order`, + 1
};

// order: the requests that meet this cache, by time. hit_of: nullptr, or by position in `order`: tokens hit with the last retention and
// the last capacity.
ReuseCounts replay(const RequestTrace& trace, std::span<const uint32_t> order, const ReplayOptions& options, ReplayScratch& scratch,
                   std::vector<double>* hit_of = nullptr);

}  // namespace deepinfer::trace
