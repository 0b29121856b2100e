// kv/store_index.h: from block key to place on disk, for millions of blocks of one length: at most 64 bytes of memory each. Entries lie in chunks that
// never move; a table of 32-bit slots finds them (open addressing, linear probing, whole keys compared). A segment's entries form a
// list, so that dropping a file takes time in its own blocks alone. Not thread-safe; its owner locks.
// The alternative that lost: std::unordered_map, about 110 bytes a block.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "kv/block_key.h"

namespace deepinfer::kv {

class StoreIndex {
 public:
  static constexpr uint32_t kNone = UINT32_MAX;

  struct Entry {
    BlockKey key;
    uint32_t segment = kNone;  // the owner's number of the file
    uint32_t page = 0;         // where the record begins
    uint32_t written_after_s : 31 = 0;  // FooterEntry's
    uint32_t was_hit : 1 = 0;  // since it was written, as far as this process knows
    uint32_t next = kNone;     // in the segment's list
    uint32_t last_use = 0;     // written or hit: seconds on the owner's scale
  };
  static_assert(sizeof(Entry) == 52);

  StoreIndex();
  void reserve(size_t num_entries);

  // The entry that answers to the key, or kNone. Valid until it is removed.
  uint32_t find(const BlockKey& key) const;
  // Has the memory that find() and insert() will look at come into the CPU's caches, for those who know their next keys: first one, then, a
  // while later, the other.
  void prefetch_slot(const BlockKey& key) const { __builtin_prefetch(&slots_[home(key)]); }
  void prefetch_entry(const BlockKey& key) const {
    if (const uint32_t entry = slots_[home(key)]; entry != kNone) __builtin_prefetch(&at(entry));
  }
  Entry& at(uint32_t entry) { return chunks_[entry >> kChunkBits][entry & kChunkMask]; }
  const Entry& at(uint32_t entry) const { return chunks_[entry >> kChunkBits][entry & kChunkMask]; }

  struct Block {
    BlockKey key;
    uint32_t segment, page, written_after_s, last_use;
  };
  // Adds an entry to the list that begins at `head` (kNone: empty) and returns it: the new head. From now on it answers to its key; one
  // that did before stays in its own list without a name.
  uint32_t insert(const Block& block, uint32_t head);
  // The entry no longer answers to its key; it stays in its list.
  void forget(uint32_t entry);
  // Removes all entries of a list; returns how many of them answered to their keys.
  size_t remove_list(uint32_t head);

  size_t size() const { return num_named_; }  // entries that answer to their keys
  uint64_t memory_bytes() const;

 private:
  static constexpr uint32_t kChunkBits = 14, kChunkMask = (1u << kChunkBits) - 1;

  size_t home(const BlockKey& key) const { return Digest256Hash()(key) & mask_; }
  void grow(size_t num_slots);
  void place(uint32_t entry);

  std::vector<std::unique_ptr<Entry[]>> chunks_;
  std::vector<uint32_t> slots_;  // a power of two, at most 7/8 full
  size_t mask_ = 0, num_named_ = 0, num_made_ = 0;
  uint32_t free_ = kNone;  // removed entries, linked by next
};

}  // namespace deepinfer::kv
