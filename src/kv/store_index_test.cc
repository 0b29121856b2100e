#include "kv/store_index.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "base/rng.h"
#include "kv/store_world.h"

namespace deepinfer::kv {
namespace {

// Random insertions, re-insertions, forgotten blocks and dropped segments against a map.
TEST(StoreIndex, AgreesWithAMap) {
  const std::vector<BlockKey> keys = chain_of(1, 3000);
  for (uint64_t seed = 0; seed < 20; ++seed) {
    Rng rng(seed);
    StoreIndex index;
    std::map<size_t, std::pair<uint32_t, uint32_t>> twin;  // key number -> segment, page
    std::vector<uint32_t> heads(20, StoreIndex::kNone);
    for (int i = 0; i < 8000; ++i) {
      const size_t key = rng.below(keys.size());
      const auto segment = static_cast<uint32_t>(rng.below(heads.size()));
      const uint64_t dice = rng.below(100);
      if (dice < 80) {
        heads[segment] = index.insert({.key = keys[key], .segment = segment, .page = static_cast<uint32_t>(i), .written_after_s = 7, .last_use = 0}, heads[segment]);
        twin[key] = {segment, static_cast<uint32_t>(i)};
      } else if (dice < 98) {
        const uint32_t entry = index.find(keys[key]);
        if (entry != StoreIndex::kNone) index.forget(entry);
        twin.erase(key);
      } else {
        size_t expected = 0;
        std::erase_if(twin, [&](const auto& item) { return item.second.first == segment && ++expected > 0; });
        ASSERT_EQ(index.remove_list(heads[segment]), expected);
        heads[segment] = StoreIndex::kNone;
      }
      ASSERT_EQ(index.size(), twin.size());
    }
    for (size_t key = 0; key < keys.size(); ++key) {
      const uint32_t entry = index.find(keys[key]);
      const auto it = twin.find(key);
      ASSERT_EQ(entry == StoreIndex::kNone, it == twin.end());
      if (entry != StoreIndex::kNone) {
        ASSERT_EQ(index.at(entry).segment, it->second.first);
        ASSERT_EQ(index.at(entry).page, it->second.second);
      }
    }
  }
}

// Two keys that share the eight bytes that choose the slot are still two keys (kvcache-ai/Mooncake#4153).
TEST(StoreIndex, WholeKeysAreCompared) {
  BlockKey one, other;
  one.bytes[31] = 1;
  other.bytes[31] = 2;
  StoreIndex index;
  const uint32_t head = index.insert({.key = one, .segment = 1, .page = 1, .written_after_s = 0, .last_use = 0}, StoreIndex::kNone);
  EXPECT_EQ(index.find(other), StoreIndex::kNone);
  const uint32_t second = index.insert({.key = other, .segment = 1, .page = 3, .written_after_s = 0, .last_use = 0}, head);
  EXPECT_EQ(index.find(one), head);
  EXPECT_EQ(index.find(other), second);
}

TEST(StoreIndex, TakesAtMost64BytesABlock) {
  StoreIndex index;
  uint32_t head = StoreIndex::kNone;
  for (uint64_t i = 0; i < 300'000; ++i) {
    BlockKey key;
    const uint64_t word = i * 0x9E3779B97F4A7C15;
    std::memcpy(key.bytes.data(), &word, 8);
    head = index.insert({.key = key, .segment = 1, .page = static_cast<uint32_t>(i), .written_after_s = 1, .last_use = 0}, head);
    if (i <= 100'000) continue;
    ASSERT_LE(index.memory_bytes(), 64 * (i + 1) + (size_t{52} << 14));  // one chunk that is begun
  }
  EXPECT_EQ(index.remove_list(head), 300'000u);
  EXPECT_EQ(index.size(), 0u);
}

}  // namespace
}  // namespace deepinfer::kv
