// kv/prefix_index.h: from block key to block, for the blocks that the pool holds. Open addressing with linear probing in a table sized
// once for the pool (at most half full), so that neither insert nor erase allocates: both run inside a step. Eight bytes of a key
// choose where to look; whole keys are compared. Owned by the BlockPool, engine thread only.
// The alternative that lost: std::unordered_map, which allocates a node an entry.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kv/block_key.h"

namespace deepinfer::kv {

using BlockId = int32_t;  // index into the arena, as in model/model.h
constexpr BlockId kNoBlock = -1;

class PrefixIndex {
 public:
  // keys[b] is the key of block b while b is in the index; the caller owns the array and keeps it in place. max_blocks >= 1.
  explicit PrefixIndex(std::span<const BlockKey> keys);

  BlockId find(const BlockKey& key) const;  // kNoBlock if absent
  void insert(BlockId block);               // keys[block] must not be in the index
  void erase(BlockId block);                // must be in the index
  int32_t size() const { return size_; }

 private:
  uint32_t home(const BlockKey& key) const { return static_cast<uint32_t>(Digest256Hash()(key)) & mask_; }

  std::span<const BlockKey> keys_;
  std::vector<BlockId> slots_;  // a power of two; kNoBlock: empty
  uint32_t mask_ = 0;
  int32_t size_ = 0;
};

}  // namespace deepinfer::kv
