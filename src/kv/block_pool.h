// kv/block_pool.h: who owns which block of the arena. Counts references, finds blocks by key, evicts the least recently used of each retention
// class in turn. It never touches the bytes: those are the model's. Engine thread only; after construction nothing allocates.
//
// A block is in one of three states:
//   free    no reference, no key: its bytes mean nothing.
//   in use  one or more references. With a key it is published: full, immutable, and others may take references to it.
//   cached  no reference but a key: may be hit (and is in use again) or evicted (and is free).
// Evicted is the cached block that has gone unused for the largest part of its class's retention: of one class the least recently released; of a
// class that is kept twice as long, one that has been idle for twice as long. So a class with much traffic cannot push out one that is to be
// kept, and no class keeps blocks that nobody uses for good. Idle time is counted in blocks released since: it stands still with the server. A
// block belongs to the longest-kept class of those that have used it, and past that class's time nobody finds it: to be used does not make it
// younger, here as on disk. Who has a reference then keeps it, as a part of what it is computing.
// Invariants: free + in use + cached = all; a key is in the index exactly while its block carries it, so there are no hits on bytes
// that are gone; a block gets its key only after the step that filled it (publish), so there are no hits on bytes not yet written.
// Callers release a sequence's blocks from the last to the first, all under one class: then a child is evicted before its parent, without which
// the child could not be found. The alternative that lost: a radix tree over tokens, which says the same with more state (SGLang).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "kv/block_key.h"
#include "kv/prefix_index.h"

namespace deepinfer::kv {

// Of a block that comes from elsewhere and is not new: it is age_s old, and where it comes from would have served it for another remaining_s.
struct BlockPast {
  int64_t age_s = 0, remaining_s = 0;
};

class BlockPool {
 public:
  // num_blocks >= 1; class_seconds: how long each retention class is kept, all positive; none: there is one class, and it keeps for good.
  explicit BlockPool(int32_t num_blocks, std::span<const int64_t> class_seconds = {});
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;

  // What time it is for retention: seconds on any clock that never goes back. Until it is set again it stands still, so that within a step
  // what was found stays found.
  void set_time(int64_t now_s) { now_s_ = now_s; }

  // A block with one reference and no key: a free one, the lowest ids first while untouched (so a small load touches little memory),
  // else an evicted one. kNoBlock if all are in use.
  BlockId allocate();
  // The block with this key, with one more reference; kNoBlock if there is none.
  BlockId acquire(const BlockKey& key);
  void release(BlockId block, uint8_t retention = 0);  // drops one reference, of somebody whose blocks are kept under this class

  // Names a full block whose bytes are written. Returns the block that now answers to the key: `block` itself, or, if two sequences
  // computed the same at the same time, the one that was first (`block` then stays private and unnamed).
  BlockId publish(BlockId block, const BlockKey& key, const BlockPast& past = {});
  // Takes the name of a block in use away: nobody will find it again. For bytes that came under suspicion. No-op without a key.
  void retract(BlockId block);

  bool contains(const BlockKey& key) const { return find(key) != kNoBlock; }
  std::optional<int64_t> age_s(const BlockKey& key) const;  // since it was computed, here or elsewhere
  int32_t num_references(BlockId block) const { return blocks_[static_cast<size_t>(block)].references; }
  bool is_published(BlockId block) const { return blocks_[static_cast<size_t>(block)].has_key; }

  int32_t num_blocks() const { return static_cast<int32_t>(blocks_.size()); }
  int32_t num_cached() const { return num_cached_; }
  int32_t num_available() const { return static_cast<int32_t>(free_.size()) + num_cached_; }  // what allocate() could hand out
  int32_t num_in_use() const { return num_blocks() - num_available(); }

  // Walks everything and CHECKs the invariants; for tests. O(blocks).
  void check_invariants() const;

 private:
  struct Block {
    int32_t references = 0;
    bool has_key = false;
    uint8_t retention = 0;   // class; this and the next two are meaningful with a key
    int64_t filled_s = 0;    // when it was computed, here or elsewhere
    int64_t expires_s = 0;   // from then on it is not found
    uint64_t released = 0;   // num_released_ when it was cached
    BlockId newer = kNoBlock, older = kNoBlock;  // the list of its class's cached blocks
  };
  struct Class {
    int64_t seconds;
    BlockId newest = kNoBlock, oldest = kNoBlock;
  };

  Block& at(BlockId block) { return blocks_[static_cast<size_t>(block)]; }
  BlockId find(const BlockKey& key) const;  // that may be found now
  void use_under(BlockId block, uint8_t retention);
  void take_name(BlockId block);  // also of one that is cached: it is free then
  void forget_key(BlockId block);
  void link_newest(BlockId block);
  void unlink(BlockId block);
  BlockId least_wanted() const;  // the next to be evicted; kNoBlock: none is cached

  std::vector<Block> blocks_;
  std::vector<BlockKey> keys_;  // keys_[b] is valid while blocks_[b].has_key
  PrefixIndex index_;
  std::vector<BlockId> free_;  // a stack: the most recently freed is warm in the CPU's caches
  std::vector<Class> classes_;
  uint8_t shortest_ = 0;        // the class that is kept for the shortest time
  int64_t now_s_ = 0;
  uint64_t num_released_ = 0;   // blocks that were ever cached
  int32_t num_cached_ = 0;
};

}  // namespace deepinfer::kv
