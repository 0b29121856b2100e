#include "kv/block_key.h"

#include <gtest/gtest.h>

#include <numeric>
#include <set>
#include <string>
#include <vector>

namespace deepinfer::kv {
namespace {

const KeyRoot kRoot{.weights = "w", .format = "dense-bf16-v1", .block_tokens = 32, .tenant = "t"};

// The vector of docs/formats/block_key.md, computed there with Python's hashlib: a change of these bytes orphans every stored block.
TEST(BlockKey, VectorOfTheFormatDocument) {
  std::vector<TokenId> tokens(32);
  std::iota(tokens.begin(), tokens.end(), 1000);
  const BlockKey root = root_key(kRoot);
  EXPECT_EQ(root.hex(), "35c1783e22f3b8893ea6bfc1094393438125601fb31b0875e87cba0a4037e5a8");
  const BlockKey first = block_key(root, tokens);
  EXPECT_EQ(first.hex(), "b397ebfb57e53aefabf99fd0fa788fb53c035f976a1266f5a9d1a31a39d5c677");
  EXPECT_EQ(block_key(first, tokens).hex(), "b2b40619863aac63a55518fbd9fa423f4f4ca588be361f0262a46396785d3bd1");
}

TEST(BlockKey, EveryFieldOfTheRootMatters) {
  std::set<std::string> seen;
  const auto add = [&](const KeyRoot& root) { return seen.insert(root_key(root).hex()).second; };
  EXPECT_TRUE(add(kRoot));
  EXPECT_FALSE(add(kRoot));
  KeyRoot other = kRoot;
  other.weights = "v";
  EXPECT_TRUE(add(other));
  other = kRoot, other.format = "dense-q8-v1";
  EXPECT_TRUE(add(other));
  other = kRoot, other.block_tokens = 64;
  EXPECT_TRUE(add(other));
  other = kRoot, other.tenant = "u";
  EXPECT_TRUE(add(other));
  other = kRoot, other.salt = "1";
  EXPECT_TRUE(add(other));
  // Fields do not run into each other.
  other = kRoot, other.weights = "wd", other.format = "ense-bf16-v1";
  EXPECT_TRUE(add(other));
  other = kRoot, other.tenant = "", other.salt = "t";
  EXPECT_TRUE(add(other));
}

TEST(BlockKey, EveryTokenAndTheParentMatter) {
  const BlockKey root = root_key(kRoot);
  std::vector<TokenId> tokens(32, 7);
  const BlockKey key = block_key(root, tokens);
  for (size_t i = 0; i < tokens.size(); ++i) {
    std::vector<TokenId> changed = tokens;
    changed[i] ^= 1 << 20;
    EXPECT_NE(block_key(root, changed), key) << i;
  }
  EXPECT_NE(block_key(key, tokens), key);
  EXPECT_NE(block_key(root, std::span(tokens).first(31)), key);
}

}  // namespace
}  // namespace deepinfer::kv
