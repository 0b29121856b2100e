#include "kv/block_key.h"

#include <gtest/gtest.h>

#include <numeric>
#include <set>
#include <string>
#include <vector>

namespace deepinfer::kv {
namespace {

const KeyRoot kRoot{.weights = "w", .architecture = "llama-v1", .format = "dense-bf16-v1", .block_tokens = 32, .tenant = tenant_secret({}, "t")};

// The vector of docs/formats/block_key.md, computed there with Python's hashlib: a change of these bytes orphans every stored block.
TEST(BlockKey, VectorOfTheFormatDocument) {
  Digest256 master;
  std::iota(master.bytes.begin(), master.bytes.end(), uint8_t{0});
  const Digest256 secret = tenant_secret(master, "t");
  EXPECT_EQ(secret.hex(), "d61fc2de51e0ba96d6dc6a31c9a7efbc74b1874b89c5aaf34719418b25ed8a45");
  KeyRoot start = kRoot;
  start.tenant = secret;
  const BlockKey root = root_key(start);
  EXPECT_EQ(root.hex(), "fcf2b53ac316634fa185c3a5bd360cedb8014fae89785951a966fc3cbfa8a90e");
  std::vector<TokenId> tokens(32);
  std::iota(tokens.begin(), tokens.end(), 1000);
  EXPECT_EQ(block_key(root, tokens).hex(), "4e380e6040354f50e8cb2e758c406c483b06b479aeaec6d677a3b70b3b4b07f5");
  EXPECT_EQ(replay_key(block_key(root, tokens)).hex(), "050b89e21abdb5c324035140306d2b57a5c4b6d3445a7bce0454f9aca9d8fe51");
  EXPECT_TRUE(check_key_vector());
}

TEST(BlockKey, EveryFieldOfTheRootMatters) {
  std::set<std::string> seen;
  const auto add = [&](const KeyRoot& root) { return seen.insert(root_key(root).hex()).second; };
  EXPECT_TRUE(add(kRoot));
  EXPECT_FALSE(add(kRoot));
  KeyRoot other = kRoot;
  other.weights = "v";
  EXPECT_TRUE(add(other));
  other = kRoot, other.architecture = "qwen2-v1";
  EXPECT_TRUE(add(other));
  other = kRoot, other.adapter = "a";
  EXPECT_TRUE(add(other));
  other = kRoot, other.format = "dense-q8-v1";
  EXPECT_TRUE(add(other));
  other = kRoot, other.block_tokens = 64;
  EXPECT_TRUE(add(other));
  other = kRoot, other.tenant = tenant_secret({}, "u");
  EXPECT_TRUE(add(other));
  other = kRoot, other.salt = "1";
  EXPECT_TRUE(add(other));
  // Fields do not run into each other.
  other = kRoot, other.weights = "wl", other.architecture = "lama-v1";
  EXPECT_TRUE(add(other));
  other = kRoot, other.adapter = "1", other.salt = "";
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
  const BlockMedia image{.offset = 3, .digest = tenant_secret({}, "an image")};
  std::set<std::string> seen{key.hex()};
  EXPECT_TRUE(seen.insert(block_key(root, tokens, {&image, 1}).hex()).second);
  for (const BlockMedia& other : {BlockMedia{4, image.digest}, BlockMedia{-4, image.digest}, BlockMedia{3, {}}}) {
    EXPECT_TRUE(seen.insert(block_key(root, tokens, {&other, 1}).hex()).second);
  }
  EXPECT_NE(block_key(key, tokens), key);
  EXPECT_NE(block_key(root, std::span(tokens).first(31)), key);
}

TEST(TenantSecret, DependsOnBoth) {
  const Digest256 a = tenant_secret({}, "a");
  EXPECT_NE(a, tenant_secret({}, "b"));
  EXPECT_NE(a, tenant_secret(a, "a"));
  EXPECT_NE(tenant_secret({}, ""), tenant_secret(a, ""));
}

}  // namespace
}  // namespace deepinfer::kv
