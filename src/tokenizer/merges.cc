#include "tokenizer/merges.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <functional>

#include "base/check.h"

namespace deepinfer::tokenizer {

void MergeTable::reserve(size_t count) {
  CHECK(size_ == 0);
  const size_t capacity = std::bit_ceil(count * 2 + 2);
  slots_.assign(capacity, Slot{});
  mask_ = capacity - 1;
}

void MergeTable::insert(TokenId left, TokenId right, Merge merge) {
  CHECK(left >= 0 && right >= 0);
  for (size_t at = slot_of(left, right);; at = (at + 1) & mask_) {
    Slot& slot = slots_[at];
    if (slot.left < 0) {
      size_ += 1;
      CHECK(size_ * 2 <= slots_.size());
      slot = {left, right, merge};
      return;
    }
    if (slot.left == left && slot.right == right) {
      slot.merge = merge;
      return;
    }
  }
}

namespace {

// Where the smallest rank is, the leftmost of equals; ranks[0..n), n >= 1, padded with kNoRank to a multiple of 4.
size_t argmin(const uint32_t* ranks, size_t n) {
  uint32_t least[4] = {ranks[0], ranks[1], ranks[2], ranks[3]};
  for (size_t i = 4; i < n; i += 4) {
    for (size_t k = 0; k < 4; ++k) least[k] = std::min(least[k], ranks[i + k]);
  }
  const uint32_t m = std::min(std::min(least[0], least[1]), std::min(least[2], least[3]));
  size_t at = 0;
  while (ranks[at] != m) ++at;
  return at;
}

// Arrays stay dense: removing a symbol moves the rest, which for these lengths costs less than following links.
size_t merge_short(const MergeTable& table, TokenId* symbols, size_t n) {
  uint32_t ranks[kMaxShortMerge + 4];
  TokenId merged[kMaxShortMerge];
  bool any = false;
  for (size_t i = 0; i + 1 < n; ++i) {
    const MergeTable::Merge m = table.find(symbols[i], symbols[i + 1]);
    ranks[i] = m.rank;
    merged[i] = m.merged;
    any |= m.rank != MergeTable::kNoRank;
  }
  if (!any) return n;
  for (size_t k = n - 1; k < n + 3; ++k) ranks[k] = MergeTable::kNoRank;
  const auto rank_pair = [&](size_t i) {
    const MergeTable::Merge m = table.find(symbols[i], symbols[i + 1]);
    ranks[i] = m.rank;
    merged[i] = m.merged;
  };
  while (n > 1) {
    const size_t at = argmin(ranks, n - 1);
    if (ranks[at] == MergeTable::kNoRank) break;
    symbols[at] = merged[at];
    const size_t moved = n - at - 2;  // symbols behind the pair
    std::memmove(symbols + at + 1, symbols + at + 2, moved * sizeof *symbols);
    if (moved > 0) {
      std::memmove(merged + at + 1, merged + at + 2, (moved - 1) * sizeof *merged);
      std::memmove(ranks + at + 1, ranks + at + 2, (moved - 1) * sizeof *ranks);
    }
    n -= 1;
    ranks[n - 1] = MergeTable::kNoRank;
    if (at + 1 < n) rank_pair(at);
    if (at > 0) rank_pair(at - 1);
  }
  return n;
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
    const MergeTable::Merge m = table.find(symbols[i], symbols[s.next[i]]);
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
  return n <= kMaxShortMerge ? merge_short(table, symbols, n) : merge_long(table, symbols, n, scratch);
}

}  // namespace deepinfer::tokenizer
