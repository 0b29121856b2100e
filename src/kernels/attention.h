// Causal attention of new rows over paged keys and values (kv_format.h), for grouped-query heads: the query heads of a KV head
// share one pass over its keys.
//
// The keys of a row are cut into partitions of kAttentionPartition tokens by position. In each partition a row gets its maximum,
// its sum and its weighted values; partitions are then merged in ascending order. This one order serves prefill, decode and any
// chunking, and a partition is the unit that threads may share, so a row's bits depend on its own position and tokens only.
// AttentionPlan decides who computes what; it is built once a step, before the threads start, and used by every layer.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "kernels/kv_format.h"
#include "kernels/kv_store.h"
#include "kernels/linear.h"
#include "kernels/team.h"

namespace deepinfer {

constexpr int32_t kAttentionPartition = 512;  // tokens; scores of a tile in one partition stay in L1 and L2
constexpr int32_t kPartitionBlocks = kAttentionPartition / kKvBlockTokens;

// Consecutive rows of one sequence that ask: rows [first_row, first_row + num_rows) of the step at positions start, start + 1, …
struct AttentionSpan {
  int32_t first_row, num_rows, start;
  int32_t first_out_row;       // where the first row's result goes; not first_row if only some rows of a step ask
  const int32_t* block_table;  // of the sequence, covering start + num_rows tokens
};

struct AttentionShape {
  KvShape kv;
  int32_t num_heads = 0;  // a multiple of kv.num_kv_heads
  int32_t group() const { return num_heads / kv.num_kv_heads; }
};

// The form in which a version wants its queries.
QueryFormat attention_query_format(KvFormat format, Isa isa);

class AttentionPlan {
 public:
  struct Limits {
    int32_t max_rows, max_spans, max_context, num_threads;
  };
  AttentionPlan(const AttentionShape& shape, Isa isa, const Limits& limits);

  // Not on the team: called by one thread before the step (or by none, with no spans). Allocates nothing.
  void build(std::span<const AttentionSpan> spans);

 private:
  friend void attention(const struct AttentionParams& p, AttentionPlan& plan, Team& team);
  friend class AttentionWorker;
  // A tile: up to tile_rows query rows of one span and KV head. An item: a tile and a range of its partitions.
  struct Item {
    int32_t span, kv_head, first_query, num_queries;
    int32_t first_partition, end_partition;
    int32_t split = -1;   // index into splits_, if other items have the tile's other partitions
    int64_t cost = 0;     // keys times rows, to start with the longest
  };
  struct Split {
    int32_t first_slot = 0, num_partitions = 0, num_items = 0;
    std::atomic<int32_t> remaining{0};
  };
  void add_tile(Item tile, int64_t num_keys, int64_t max_keys_an_item);
  int64_t slot_floats() const;

  AttentionShape shape_;
  Isa isa_;
  Limits limits_;
  int32_t tile_rows_;
  std::vector<AttentionSpan> spans_;
  std::vector<Item> items_;
  size_t num_items_ = 0;
  std::unique_ptr<Split[]> splits_;
  int32_t num_splits_ = 0, max_splits_ = 0;
  std::vector<float> slots_;       // partial results: [slot][tile_rows * padded_dim values, maxima, sums]
  int32_t num_slots_ = 0, max_slots_ = 0;
  std::vector<float> scratch_;     // [thread][scratch_floats_]
  int64_t scratch_floats_ = 0;
  // Items are handed out by a counter that never goes back within a step: each use takes num_items_ + threads numbers (every thread
  // draws one that is too high), so the next use knows where it begins and no barrier is needed to reset it.
  alignas(64) std::atomic<int64_t> next_item_{0};
  std::vector<int64_t> uses_;      // [thread * 8]: how often attention() ran on this plan, as this thread counts
};

struct AttentionParams {
  const std::byte* queries;  // [num_kv_heads][num_rows][group][padded_dim] in attention_query_format, rotated
  int64_t num_rows;          // rows of the step
  const std::byte* arena;    // blocks
  int64_t block_bytes;
  int64_t layer_offset;      // of this layer's head blocks in a block
  float scale;               // of q · k
  int32_t window;            // a row sees its last `window` tokens, itself included; 0: all
  float* out;                // [·, num_heads * head_dim], row stride ld_out; rows as the spans' first_out_row says
  int64_t ld_out;
};
// All threads together; the keys and values of the spans' tokens were written before (a barrier). Ends without a barrier.
void attention(const AttentionParams& p, AttentionPlan& plan, Team& team);

namespace ref {
struct AttentionRowParams {
  const float* query;    // [head_dim]
  const float* keys;     // [num_keys, head_dim]
  const float* values;   // [num_keys, head_dim]
  int64_t first_key, num_keys, head_dim;  // keys before first_key are not seen
  double scale;
  float* out;            // [head_dim]
};
void attention_row(const AttentionRowParams& p);  // one row of one head, in f64
}  // namespace ref

}  // namespace deepinfer
