#include "model/v41_state.h"

#include <algorithm>

#include "base/check.h"
#include "kernels/block_linear.h"

namespace deepinfer::model {
namespace {

int64_t round_up(int64_t bytes) { return (bytes + 63) / 64 * 64; }
uint8_t* at(std::byte* base, int64_t offset) { return reinterpret_cast<uint8_t*>(base) + offset; }

}  // namespace

V41Layout::V41Layout(const V41Config& config, Isa isa)
    : head_dim_(config.head_dim),
      index_head_dim_(config.index_head_dim),
      ring_rows_(config.sliding_window + config.dspark_block_size),
      slack_(config.dspark_block_size),
      pending_slots_(config.dspark_block_size + 2) {
  for (const int32_t layer : config.kv_source_layer_ids) {
    const int32_t rows = kBlockTokens / config.compress_ratio(layer);
    rows_per_block_.push_back(rows);
    main_offset_.push_back(block_bytes_);
    block_bytes_ += int64_t{rows} * (head_dim_ / 2 + head_dim_ / 16);
    index_offset_.push_back(block_bytes_);
    block_bytes_ += int64_t{rows} * (index_head_dim_ / 2 + index_head_dim_ / 32);
  }
  block_bytes_ = round_up(block_bytes_);
  const int32_t rings = config.num_hidden_layers + config.num_draft_stages;
  state_bytes_ = round_up(int64_t{rings} * ring_rows_ * (head_dim_ + head_dim_ / 32));
  const int64_t window_bytes = state_bytes_;
  for (const int32_t layer : config.kv_source_layer_ids) {
    pending_offset_.push_back(config.compress_ratio(layer) == 2 ? state_bytes_ : -1);
    if (config.compress_ratio(layer) == 2) state_bytes_ += round_up(int64_t{pending_slots_} * 2 * head_dim_ * 4);
  }
  const int32_t before = config.sliding_window - 1;
  groups_ = {{.kind = KvGroup::Kind::kGlobal, .name = "compressed rows", .bytes_per_block = block_bytes_},
             {.kind = KvGroup::Kind::kWindow, .name = "windows", .bytes_per_sequence = window_bytes, .tokens = before},
             {.kind = KvGroup::Kind::kTail, .name = "pending tokens", .bytes_per_sequence = state_bytes_ - window_bytes, .tokens = 1},
             {.kind = KvGroup::Kind::kHistory, .name = "n-grams", .tokens = std::max(0, config.engram_max_ngram_size - 1)}};
  declaration_ = {.block_tokens = kBlockTokens,
                  .block_bytes = block_bytes_,
                  .state_bytes = state_bytes_,
                  // What computes the rows decides their last bits.
                  .format = "v41-fp4-v2-" + block_linear_version(isa),
                  .groups = groups_,
                  .rollback_rows = slack_,
                  .replay_tokens = config.sliding_window,
                  // Each layer's window reaches back from those rows that the next one reads.
                  .exact_replay_tokens = config.num_hidden_layers * before};
}

V41Layout::PackedRow V41Layout::main_row(std::byte* block, int32_t source, int32_t row) const {
  const int64_t rows = rows_per_block_[static_cast<size_t>(source)], in_block = row % rows, base = main_offset_[static_cast<size_t>(source)];
  return {at(block, base + in_block * head_dim_ / 2), at(block, base + rows * head_dim_ / 2 + in_block * head_dim_ / 16)};
}

V41Layout::PackedRow V41Layout::index_key(std::byte* block, int32_t source, int32_t row) const {
  const int64_t rows = rows_per_block_[static_cast<size_t>(source)], in_block = row % rows, base = index_offset_[static_cast<size_t>(source)];
  return {at(block, base + in_block * index_head_dim_ / 2), at(block, base + rows * index_head_dim_ / 2 + in_block * index_head_dim_ / 32)};
}

V41Layout::PackedRow V41Layout::window_row(std::byte* state, int32_t layer, int32_t position) const {
  const int64_t row_bytes = head_dim_ + head_dim_ / 32;
  uint8_t* row = at(state, (int64_t{layer} * ring_rows_ + position % ring_rows_) * row_bytes);
  return {row, row + head_dim_};
}

float* V41Layout::pending(std::byte* state, int32_t source, int32_t position) const {
  const int64_t base = pending_offset_[static_cast<size_t>(source)];
  DCHECK(base >= 0);
  return reinterpret_cast<float*>(at(state, base + int64_t{position % pending_slots_} * 2 * head_dim_ * 4));
}

}  // namespace deepinfer::model
