// Byte-pair merging on ids: the table from a pair of neighbours to the rank and id of what they merge into, and the two ways to
// apply it. Lowest rank first, leftmost first among equals, until nothing merges: the definition, whatever the way.
//
// Ids, not strings: a lookup is one hash of 8 bytes. Short runs are scanned linearly on arrays that stay in cache; long ones use a
// heap over a linked list with lazy deletion, O(n log n), so that a megabyte without a space is no attack.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/request.h"

namespace deepinfer::tokenizer {

class MergeTable {
 public:
  static constexpr uint32_t kNoRank = 0xffffffff;
  struct Merge {
    uint32_t rank;  // kNoRank: the two do not merge
    TokenId merged;
  };

  // Room for `count` merges.
  void reserve(size_t count);
  // A pair inserted twice keeps the later one. At most reserve()d many different pairs.
  void insert(TokenId left, TokenId right, Merge merge);

  Merge find(TokenId left, TokenId right) const {
    for (size_t at = slot_of(left, right);; at = (at + 1) & mask_) {
      const Slot& slot = slots_[at];
      if (slot.left == left && slot.right == right) return slot.merge;
      if (slot.left < 0) return {kNoRank, -1};
    }
  }

 private:
  struct Slot {
    TokenId left = -1, right = -1;
    Merge merge{kNoRank, -1};
  };
  size_t slot_of(TokenId left, TokenId right) const {
    uint64_t x = uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
    x *= 0x9e3779b97f4a7c15;
    x ^= x >> 32;
    x *= 0xd6e8feb86659fd93;
    return static_cast<size_t>(x >> 32) & mask_;
  }

  std::vector<Slot> slots_ = std::vector<Slot>(2);
  size_t mask_ = 1;
  size_t size_ = 0;
};

// Buffers of merge_symbols, kept between calls by whoever calls often.
struct MergeScratch {
  std::vector<uint32_t> ranks, previous, next;
  std::vector<TokenId> merged;
  std::vector<uint64_t> heap;   // rank << 32 | position
  uint64_t num_heap_pushes = 0;  // in all; tests count
};

// Merges symbols[0..n) in place and returns how many are left. n < 2^32.
size_t merge_symbols(const MergeTable& table, TokenId* symbols, size_t n, MergeScratch& scratch);

// Up to here the linear scan is the faster one (measured on CJK text, whose pieces are whole clauses).
inline constexpr size_t kMaxShortMerge = 128;

}  // namespace deepinfer::tokenizer
