// Byte-pair merging on ids: the table from a pair of neighbours to the rank and id of what they merge into, and the two ways to
// apply it. Lowest rank first, leftmost first among equals, until nothing merges: the definition, whatever the way.
//
// Ids, not strings: a lookup is one hash of 8 bytes. Short runs are scanned linearly on arrays that stay in cache; long ones use a
// heap over a linked list with lazy deletion, O(n log n), so that a megabyte without a space is no attack.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/request.h"

namespace deepinfer::tokenizer {

class MergeTable {
 public:
  static constexpr uint32_t kNoRank = 0xffffffff;
  static constexpr uint32_t kMaxRank = (1u << 25) - 2;  // leaves room for a position beside it in 32 bits
  struct Merge {
    uint32_t rank;  // kNoRank: the two do not merge
    TokenId merged;
  };

  // Room for `count` merges.
  void reserve(size_t count);
  // A pair inserted twice keeps the later one. At most reserve()d many different pairs; rank <= kMaxRank.
  void insert(TokenId left, TokenId right, Merge merge);

  Merge find(TokenId left, TokenId right) const {
    const uint64_t hash = hash_of(left, right);
    const uint32_t tag = tag_of(hash);
    for (size_t at = hash & mask_;; at = (at + 1) & mask_) {
      const uint32_t slot = slots_[at];
      if (slot == 0) return {kNoRank, -1};
      if (slot >> index_bits_ != tag) continue;
      const Entry& entry = entries_[(slot & ((1u << index_bits_) - 1)) - 1];
      if (entry.left == left && entry.right == right) return entry.merge;
    }
  }

  struct Entry {
    TokenId left, right;
    Merge merge;
  };
  std::span<const Entry> entries() const { return entries_; }

 private:
  // A slot is 4 bytes, 0 when empty: the index of an entry plus 1, and above it as much of the hash as there is room for. Most
  // questions are about pairs that do not merge: they end here, in a table that fits the L2 cache, and never see an entry.
  static uint64_t hash_of(TokenId left, TokenId right) {
    uint64_t x = uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
    x *= 0x9e3779b97f4a7c15;
    x ^= x >> 32;
    x *= 0xd6e8feb86659fd93;
    return x ^ x >> 29;
  }

  uint32_t tag_of(uint64_t hash) const { return static_cast<uint32_t>(hash >> 32) >> index_bits_; }

  std::vector<uint32_t> slots_ = std::vector<uint32_t>(2);
  size_t mask_ = 1;
  int index_bits_ = 1;
  std::vector<Entry> entries_;
};

// Pairs asked for a moment ago, those that do not merge among them: the table is megabytes, a text uses few of its pairs.
class PairCache {
 public:
  MergeTable::Merge find(const MergeTable& table, TokenId left, TokenId right) {
    const uint64_t pair = uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
    Entry& entry = entries_[pair * 0x9e3779b97f4a7c15 >> (64 - kBits)];
    if (entry.pair != pair) entry = {pair, table.find(left, right)};
    return entry.merge;
  }

 private:
  static constexpr int kBits = 13;
  struct Entry {
    uint64_t pair = ~uint64_t{0};  // no pair of ids
    MergeTable::Merge merge{MergeTable::kNoRank, -1};
  };
  std::vector<Entry> entries_ = std::vector<Entry>(size_t{1} << kBits);
};

// Buffers of merge_symbols, kept between calls by whoever calls often. For one table only: it remembers pairs.
struct MergeScratch {
  PairCache pairs;
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
