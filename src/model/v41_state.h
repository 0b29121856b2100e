// Where the state of a DeepSeek-V4.1 sequence lies, byte by byte (model.md 3.1, 3.2). Two parts:
//
//   block   128 tokens' compressed rows of all KV sources, shareable and persistent: per source first the main rows (e2m1 codes, then
//           an e4m3 scale per 16), then the index keys (e2m1 codes, then an e8m0 scale per 32). 113,920 bytes in the released model.
//   state   private to a sequence: per layer and draft stage a ring of window rows (e4m3 codes, then an e8m0 scale per 32), per source
//           of ratio 2 a ring of pending tokens (kv and gate, f32).
//
// A ring holds position p at slot p mod size and is only read at positions that the sequence has: so taking back up to `slack` rows
// needs no undo, they are written again. Pure arithmetic over a config; immutable.
#pragma once

#include <cstdint>
#include <vector>

#include "base/float8.h"
#include "kernels/linear.h"
#include "model/model.h"
#include "model/v41_config.h"

namespace deepinfer::model {

class V41Layout {
 public:
  static constexpr int32_t kBlockTokens = 128;

  // isa: the version of the kernels that writes rows.
  explicit V41Layout(const V41Config& config, Isa isa = default_isa());
  V41Layout(const V41Layout&) = delete;  // declaration() points to the groups
  V41Layout& operator=(const V41Layout&) = delete;

  int64_t block_bytes() const { return block_bytes_; }  // a multiple of 64
  int64_t state_bytes() const { return state_bytes_; }  // a multiple of 64
  const KvLayout& declaration() const { return declaration_; }
  int32_t ring_rows() const { return ring_rows_; }      // sliding window + slack
  int32_t slack() const { return slack_; }              // rows that may be taken back: the draft block

  struct PackedRow {
    uint8_t* codes;
    uint8_t* scales;
  };
  // Compressed row j of a source (its number among kv_source_layer_ids), in the block that holds it: block(j) of the block table.
  int32_t block_of(int32_t source, int32_t row) const { return row / rows_per_block_[static_cast<size_t>(source)]; }
  PackedRow main_row(std::byte* block, int32_t source, int32_t row) const;   // head_dim numbers
  PackedRow index_key(std::byte* block, int32_t source, int32_t row) const;  // index_head_dim numbers
  // Window row of a layer (draft stages count on from the layers) at a position.
  PackedRow window_row(std::byte* state, int32_t layer, int32_t position) const;  // head_dim numbers
  // kv then gate [2 * head_dim] of a token that waits for its partner, of a source of ratio 2.
  float* pending(std::byte* state, int32_t source, int32_t position) const;
  int32_t pending_slots() const { return pending_slots_; }

 private:
  int32_t head_dim_, index_head_dim_, ring_rows_, slack_, pending_slots_;
  std::vector<int32_t> rows_per_block_;
  std::vector<int64_t> main_offset_, index_offset_, pending_offset_;  // per source; pending: -1 for ratio 1
  int64_t block_bytes_ = 0, state_bytes_ = 0;
  std::vector<KvGroup> groups_;
  KvLayout declaration_;
};

}  // namespace deepinfer::model
