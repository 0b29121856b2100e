// Which blocks were seen, beside a tree that keeps only a sample of them: how much of a prompt was there before must be known to the block
// for each request, or what the sample does not keep would count as lost or as repeated elsewhere. One slot a key, the later one
// stays: of the blocks seen last nearly all are known, and none that was not seen. Not thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "trace/prefix_tree.h"

namespace deepinfer::trace {

class SeenBlocks {
 public:
  // Memory is taken with the first request. max_bytes: 8 a slot, rounded down to a power of two.
  explicit SeenBlocks(uint64_t max_bytes) : max_bytes_(max_bytes) {}

  // keys: of a prompt, in order. Gives how many of them were seen, and has seen them all now.
  uint32_t add(std::span<const PrefixKey> keys) {
    if (slots_.empty()) {
      size_t num_slots = 1;
      while (num_slots * 2 * sizeof(uint64_t) <= max_bytes_) num_slots *= 2;
      slots_.assign(num_slots, 0);
    }
    // Who saw a block saw all before it, so the last one that is there tells of those whose slots others took.
    size_t known = keys.size();
    while (known > 0 && slot(keys[known - 1]) != keys[known - 1].high) --known;
    for (const PrefixKey& key : keys) slot(key) = key.high;
    return static_cast<uint32_t>(known);
  }

 private:
  uint64_t& slot(const PrefixKey& key) { return slots_[key.low & (slots_.size() - 1)]; }

  uint64_t max_bytes_;
  std::vector<uint64_t> slots_;  // PrefixKey::high at low modulo their number
};

}  // namespace deepinfer::trace
