#include "tokenizer/merges.h"

#include <gtest/gtest.h>

#include <map>
#include <utility>
#include <vector>

#include "base/rng.h"

namespace deepinfer::tokenizer {
namespace {

using Pairs = std::map<std::pair<TokenId, TokenId>, MergeTable::Merge>;

// The definition: the lowest rank, the leftmost of equals, one at a time.
std::vector<TokenId> merge_naively(const Pairs& pairs, std::vector<TokenId> symbols) {
  for (;;) {
    uint32_t best = MergeTable::kNoRank;
    size_t at = 0;
    for (size_t i = 0; i + 1 < symbols.size(); ++i) {
      const auto found = pairs.find({symbols[i], symbols[i + 1]});
      if (found != pairs.end() && found->second.rank < best) best = found->second.rank, at = i;
    }
    if (best == MergeTable::kNoRank) return symbols;
    symbols[at] = pairs.at({symbols[at], symbols[at + 1]}).merged;
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(at) + 1);
  }
}

// Random merges over a few symbols. shared_ranks: several pairs have one rank, as in SentencePiece vocabularies.
Pairs random_pairs(Rng& rng, bool shared_ranks) {
  Pairs pairs;
  TokenId next = 4;
  for (int rank = 0; rank < 60; ++rank) {
    const auto left = static_cast<TokenId>(rng.below(static_cast<uint64_t>(next))), right = static_cast<TokenId>(rng.below(static_cast<uint64_t>(next)));
    const uint32_t r = shared_ranks ? static_cast<uint32_t>(rng.below(12)) : static_cast<uint32_t>(rank);
    pairs[{left, right}] = {r, next++};
  }
  return pairs;
}

TEST(Merges, BothWaysAreTheDefinition) {
  Rng rng(3);
  for (int round = 0; round < 400; ++round) {
    const Pairs pairs = random_pairs(rng, round % 2 == 1);
    MergeTable table;
    table.reserve(pairs.size());
    for (const auto& [pair, merge] : pairs) table.insert(pair.first, pair.second, merge);
    MergeScratch scratch;
    // Lengths on both sides of the border between the two ways, and the smallest.
    for (const size_t n : {size_t{0}, size_t{1}, size_t{2}, size_t{3}, size_t{5}, 1 + rng.below(40), kMaxShortMerge - 1, kMaxShortMerge,
                           kMaxShortMerge + 1, kMaxShortMerge + 1 + rng.below(300)}) {
      std::vector<TokenId> symbols(n);
      for (TokenId& s : symbols) s = static_cast<TokenId>(rng.below(4));
      const std::vector<TokenId> expected = merge_naively(pairs, symbols);
      symbols.resize(merge_symbols(table, symbols.data(), n, scratch));
      ASSERT_EQ(symbols, expected) << "length " << n;
    }
  }
}

TEST(Merges, TheLaterOfTwoEqualPairsCounts) {
  MergeTable table;
  table.reserve(2);
  table.insert(1, 2, {0, 7});
  table.insert(1, 2, {5, 8});
  EXPECT_EQ(table.find(1, 2).merged, 8);
  EXPECT_EQ(table.find(2, 1).rank, MergeTable::kNoRank);
}

TEST(Merges, HeapWorkIsLinear) {
  // A chain a a -> b, b b -> c, …: everything merges, all the way up.
  MergeTable table;
  table.reserve(24);
  for (TokenId i = 0; i < 24; ++i) table.insert(i, i, {static_cast<uint32_t>(i), i + 1});
  for (const size_t n : {size_t{1} << 12, size_t{1} << 16, size_t{1} << 20}) {
    std::vector<TokenId> symbols(n, 0);
    MergeScratch scratch;
    EXPECT_EQ(merge_symbols(table, symbols.data(), n, scratch), 1u);
    EXPECT_LE(scratch.num_heap_pushes, 3 * n);
  }
}

}  // namespace
}  // namespace deepinfer::tokenizer
