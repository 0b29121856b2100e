#include "tokenizer/merges.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <functional>

#include "base/check.h"

namespace deepinfer::tokenizer {

void MergeTable::reserve(size_t count) {
  CHECK(entries_.empty());
  CHECK(count <= kMaxRank);
  const size_t capacity = std::bit_ceil(count + count / 2 + 2);
  slots_.assign(capacity, 0);
  mask_ = capacity - 1;
  index_bits_ = std::bit_width(count);
  entries_.reserve(count);
}

void MergeTable::insert(TokenId left, TokenId right, Merge merge) {
  CHECK(left >= 0 && right >= 0);
  CHECK(merge.rank <= kMaxRank);
  const uint64_t hash = hash_of(left, right);
  for (size_t at = hash & mask_;; at = (at + 1) & mask_) {
    if (slots_[at] == 0) {
      entries_.push_back({left, right, merge});
      CHECK(entries_.size() < slots_.size());
      CHECK(entries_.size() >> index_bits_ == 0);
      slots_[at] = tag_of(hash) << index_bits_ | static_cast<uint32_t>(entries_.size());
      return;
    }
    Entry& entry = entries_[(slots_[at] & ((1u << index_bits_) - 1)) - 1];
    if (entry.left == left && entry.right == right) {
      entry.merge = merge;
      return;
    }
  }
}

namespace {

constexpr uint32_t kDead = 0xffffffff;
constexpr int kPositionBits = 7;
static_assert(kMaxShortMerge == 1 << kPositionBits && (MergeTable::kMaxRank << kPositionBits | 127) < kDead);

// The least of keys[0..n), n a multiple of 4 and at least 4.
uint32_t least_of(const uint32_t* keys, size_t n) {
  using Four = uint32_t __attribute__((vector_size(16)));  // the compiler's own vectors: SSE4.1 has the minimum, NEON too
  Four least;
  std::memcpy(&least, keys, sizeof least);
  for (size_t i = 4; i < n; i += 4) {
    Four next;
    std::memcpy(&next, keys + i, sizeof next);
    least = next < least ? next : least;
  }
  return std::min(std::min(least[0], least[1]), std::min(least[2], least[3]));
}

// Every pair has a key of rank and position, so that the least key is the next merge. Symbols stay where they are and are linked.
size_t merge_short(const MergeTable& table, TokenId* symbols, size_t n, PairCache& pairs) {
  uint32_t keys[kMaxShortMerge];
  TokenId merged[kMaxShortMerge];
  uint8_t next[kMaxShortMerge], previous[kMaxShortMerge];
  const auto rank_pair = [&](size_t i, size_t right) {
    const MergeTable::Merge m = pairs.find(table, symbols[i], symbols[right]);
    keys[i] = m.rank == MergeTable::kNoRank ? kDead : m.rank << kPositionBits | static_cast<uint32_t>(i);
    merged[i] = m.merged;
  };
  uint32_t any = kDead;
  for (size_t i = 0; i + 1 < n; ++i) {
    rank_pair(i, i + 1);
    any &= keys[i];
    next[i] = static_cast<uint8_t>(i + 1);
    previous[i + 1] = static_cast<uint8_t>(i);
  }
  if (any == kDead) return n;
  next[n - 1] = static_cast<uint8_t>(n);
  const size_t padded = (n + 3) & ~size_t{3};
  for (size_t i = n - 1; i < padded; ++i) keys[i] = kDead;
  for (;;) {
    const uint32_t least = least_of(keys, padded);
    if (least == kDead) break;
    const size_t at = least & (kMaxShortMerge - 1);
    const size_t gone = next[at], after = next[gone];
    symbols[at] = merged[at];
    keys[gone] = keys[at] = kDead;
    next[at] = static_cast<uint8_t>(after);
    if (after < n) {
      previous[after] = static_cast<uint8_t>(at);
      rank_pair(at, after);
    }
    if (at > 0) rank_pair(previous[at], at);
  }
  size_t left = 0;
  for (size_t i = 0; i < n; i = next[i]) symbols[left++] = symbols[i];
  return left;
}

size_t merge_long(const MergeTable& table, TokenId* symbols, size_t n, MergeScratch& s) {
  CHECK(n < 0xffffffff);
  const uint32_t end = static_cast<uint32_t>(n);
  s.ranks.assign(n, MergeTable::kNoRank);  // of the pair that starts here; kNoRank at symbols that are gone, too
  s.merged.resize(n);
  s.previous.resize(n);
  s.next.resize(n);
  s.heap.clear();
  const std::greater<uint64_t> later;
  const auto rank_pair = [&](uint32_t i) -> bool {
    s.ranks[i] = MergeTable::kNoRank;
    if (s.next[i] == end) return false;
    const MergeTable::Merge m = s.pairs.find(table, symbols[i], symbols[s.next[i]]);
    s.ranks[i] = m.rank;
    s.merged[i] = m.merged;
    if (m.rank == MergeTable::kNoRank) return false;
    s.heap.push_back(uint64_t{m.rank} << 32 | i);
    s.num_heap_pushes += 1;
    return true;
  };
  for (uint32_t i = 0; i < end; ++i) {
    s.previous[i] = i - 1;  // wraps at 0: no one asks
    s.next[i] = i + 1;
  }
  for (uint32_t i = 0; i < end; ++i) rank_pair(i);
  std::make_heap(s.heap.begin(), s.heap.end(), later);
  while (!s.heap.empty()) {
    std::pop_heap(s.heap.begin(), s.heap.end(), later);
    const uint64_t top = s.heap.back();
    s.heap.pop_back();
    const uint32_t at = static_cast<uint32_t>(top);
    if (s.ranks[at] != static_cast<uint32_t>(top >> 32)) continue;  // the pair that this spoke of is gone
    const uint32_t gone = s.next[at];
    symbols[at] = s.merged[at];
    s.ranks[gone] = MergeTable::kNoRank;
    s.next[at] = s.next[gone];
    if (s.next[at] != end) s.previous[s.next[at]] = at;
    if (rank_pair(at)) std::push_heap(s.heap.begin(), s.heap.end(), later);
    if (at != 0 && rank_pair(s.previous[at])) std::push_heap(s.heap.begin(), s.heap.end(), later);
  }
  size_t left = 0;
  for (uint32_t i = 0; i != end; i = s.next[i]) symbols[left++] = symbols[i];
  return left;
}

}  // namespace

size_t merge_symbols(const MergeTable& table, TokenId* symbols, size_t n, MergeScratch& scratch) {
  if (n < 2) return n;
  return n <= kMaxShortMerge ? merge_short(table, symbols, n, scratch.pairs) : merge_long(table, symbols, n, scratch);
}

}  // namespace deepinfer::tokenizer
