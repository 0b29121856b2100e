// The most recently used of many keys, at most `capacity` of them. All memory is taken when it is made; every operation is O(1).
// A hash table with linear probing over slots that hang in a list by age.
#pragma once

#include <bit>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/check.h"

namespace deepinfer::model {

class LruKeys {
 public:
  explicit LruKeys(int32_t capacity) : slots_(static_cast<size_t>(capacity)), table_(std::bit_ceil(2 * static_cast<size_t>(capacity)), kNone) {
    CHECK(capacity > 0);
  }

  struct Touched {
    bool was_there;
    std::optional<int64_t> evicted;  // the key that made room
    int32_t slot;                    // 0..capacity-1: the key's for as long as it is there, the evicted one's before
  };
  // Makes `key` (>= 0) the most recent.
  Touched touch(int64_t key) {
    const size_t at = find(key);
    if (table_[at] != kNone) {
      const int32_t slot = table_[at];
      unlink(slot);
      link_newest(slot);
      return {true, {}, slot};
    }
    Touched result{false, {}, size_};
    if (size_ == static_cast<int32_t>(slots_.size())) {
      result.slot = oldest_;
      result.evicted = slots_[static_cast<size_t>(oldest_)].key;
      erase_from_table(find(*result.evicted));
      unlink(result.slot);
    } else {
      ++size_;
    }
    slots_[static_cast<size_t>(result.slot)].key = key;
    table_[find(key)] = result.slot;
    link_newest(result.slot);
    return result;
  }

  int32_t slot_of(int64_t key) const { return table_[find(key)]; }  // -1: it is not there
  int32_t size() const { return size_; }
  int32_t capacity() const { return static_cast<int32_t>(slots_.size()); }

 private:
  static constexpr int32_t kNone = -1;
  struct Slot {
    int64_t key = 0;
    int32_t older = kNone, newer = kNone;
  };

  size_t home(int64_t key) const { return static_cast<size_t>(static_cast<uint64_t>(key) * 0x9E3779B97F4A7C15u >> 20) & (table_.size() - 1); }
  // The key's place in the table, or the empty one where it would go.
  size_t find(int64_t key) const {
    size_t at = home(key);
    while (table_[at] != kNone && slots_[static_cast<size_t>(table_[at])].key != key) at = (at + 1) & (table_.size() - 1);
    return at;
  }
  // Moves back what probing had pushed past the hole.
  void erase_from_table(size_t hole) {
    const size_t mask = table_.size() - 1;
    for (size_t at = (hole + 1) & mask; table_[at] != kNone; at = (at + 1) & mask) {
      const size_t wanted = home(slots_[static_cast<size_t>(table_[at])].key);
      if (((at - wanted) & mask) < ((at - hole) & mask)) continue;
      table_[hole] = table_[at];
      hole = at;
    }
    table_[hole] = kNone;
  }
  void unlink(int32_t slot) {
    const Slot& s = slots_[static_cast<size_t>(slot)];
    (s.newer == kNone ? newest_ : slots_[static_cast<size_t>(s.newer)].older) = s.older;
    (s.older == kNone ? oldest_ : slots_[static_cast<size_t>(s.older)].newer) = s.newer;
  }
  void link_newest(int32_t slot) {
    slots_[static_cast<size_t>(slot)].older = newest_;
    slots_[static_cast<size_t>(slot)].newer = kNone;
    (newest_ == kNone ? oldest_ : slots_[static_cast<size_t>(newest_)].newer) = slot;
    newest_ = slot;
  }

  std::vector<Slot> slots_;
  std::vector<int32_t> table_;  // slot or kNone
  int32_t size_ = 0, newest_ = kNone, oldest_ = kNone;
};

}  // namespace deepinfer::model
