#include "kv/prefix_index.h"

#include <gtest/gtest.h>

#include <map>
#include <vector>

#include "base/rng.h"

namespace deepinfer::kv {
namespace {

// A key whose hash is `home`: collisions at will, at the table's end too.
BlockKey key_at(uint64_t home, uint8_t tail) {
  BlockKey key;
  for (int i = 0; i < 8; ++i) key.bytes[static_cast<size_t>(i)] = static_cast<uint8_t>(home >> (8 * i));
  key.bytes[31] = tail;
  return key;
}

TEST(PrefixIndex, AgreesWithAMapUnderRandomOperations) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    Rng rng(seed);
    const int num_blocks = 1 + static_cast<int>(rng.below(24));
    const uint64_t num_homes = 1 + rng.below(40);  // few homes: long probe chains
    std::vector<BlockKey> keys(static_cast<size_t>(num_blocks));
    PrefixIndex index(keys);
    std::map<BlockKey, BlockId> twin;
    std::vector<char> inside(keys.size(), 0);
    for (int step = 0; step < 2000; ++step) {
      const auto block = static_cast<size_t>(rng.below(keys.size()));
      if (inside[block]) {
        index.erase(static_cast<BlockId>(block));
        twin.erase(keys[block]);
        inside[block] = 0;
      } else {
        const BlockKey key = key_at(~uint64_t{0} - rng.below(num_homes), static_cast<uint8_t>(rng.below(8)));
        ASSERT_EQ(index.find(key), twin.count(key) ? twin[key] : kNoBlock);
        if (twin.count(key)) continue;
        keys[block] = key;
        index.insert(static_cast<BlockId>(block));
        twin[key] = static_cast<BlockId>(block);
        inside[block] = 1;
      }
      ASSERT_EQ(index.size(), static_cast<int32_t>(twin.size()));
      for (const auto& [key, id] : twin) ASSERT_EQ(index.find(key), id);
    }
  }
}

// Two keys that share the eight bytes that choose the slot are still two keys.
TEST(PrefixIndex, WholeKeysAreCompared) {
  std::vector<BlockKey> keys{key_at(5, 1), key_at(5, 2)};
  PrefixIndex index(keys);
  index.insert(0);
  EXPECT_EQ(index.find(key_at(5, 2)), kNoBlock);
  index.insert(1);
  EXPECT_EQ(index.find(key_at(5, 1)), 0);
  EXPECT_EQ(index.find(key_at(5, 2)), 1);
}

}  // namespace
}  // namespace deepinfer::kv
