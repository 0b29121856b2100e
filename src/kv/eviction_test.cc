#include "kv/eviction.h"

#include <gtest/gtest.h>

#include <vector>

#include "kv/store_world.h"

namespace deepinfer::kv {
namespace {

constexpr int64_t kEvictionTime = 1'000'000;

EvictionCandidate idle_segment(uint64_t bytes, int64_t idle_s) { return {.bytes = bytes, .last_use_s = kEvictionTime - idle_s, .mean_use_s = kEvictionTime - idle_s}; }

size_t victim_of(std::vector<EvictionCandidate> candidates, EvictionPolicy policy = EvictionPolicy::kValue) { return choose_victim(candidates, kEvictionTime, policy); }

TEST(Eviction, WhatTakesMuchAndIsIdleForLongGoesFirst) {
  EXPECT_EQ(victim_of({idle_segment(100, kHour), idle_segment(100, 2 * kHour), idle_segment(100, 0)}), 1u);
  EXPECT_EQ(victim_of({idle_segment(100, kHour), idle_segment(300, kHour), idle_segment(200, kHour)}), 1u);
  EXPECT_EQ(victim_of({idle_segment(100, 4 * kHour), idle_segment(300, kHour)}), 0u);
  EXPECT_EQ(victim_of({idle_segment(100, 0), idle_segment(200, 0)}), 1u) << "what was used this second differs by its bytes";
  EXPECT_EQ(victim_of({idle_segment(100, kHour), idle_segment(100, kHour)}), 0u);
  EXPECT_EQ(victim_of({idle_segment(100, -kHour), idle_segment(100, 0)}), 0u) << "a use in the future is one now";
}

// What was popular once goes when nobody uses it any more, however often it was hit.
TEST(Eviction, NobodyIsKeptForOldHits) {
  EvictionCandidate popular = idle_segment(100, 10 * kHour), fresh = idle_segment(100, kHour);
  EXPECT_EQ(victim_of({fresh, popular}), 1u);
}

// A file counts by all its blocks: a single hit of a moment ago does not keep the rest, and a prefix that stays in use is not large by its age.
TEST(Eviction, AFileIsAsIdleAsItsBlocksAre) {
  const EvictionCandidate one_hit{.bytes = 100, .last_use_s = kEvictionTime, .mean_use_s = kEvictionTime - 9 * kHour}, all_used = idle_segment(100, kHour);
  EXPECT_EQ(victim_of({all_used, one_hit}), 1u);
  EXPECT_EQ(victim_of({all_used, one_hit}, EvictionPolicy::kLru), 0u);
}

TEST(Eviction, HotIsLaterThanTheMeanOfAllBytes) {
  const std::vector<EvictionCandidate> candidates = {idle_segment(300, 0), idle_segment(100, 4 * kHour)};
  EXPECT_EQ(hot_since(candidates), kEvictionTime - kHour);
}

}  // namespace
}  // namespace deepinfer::kv
