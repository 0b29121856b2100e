#include "base/lru_cache.h"

#include <functional>
#include <gtest/gtest.h>

namespace deepinfer {
namespace {

using Cache = LruCache<int, int, std::hash<int>>;

TEST(LruCache, ForgetsTheLeastRecentlyUsedFirst) {
  Cache cache(10);
  cache.insert(1, 10, 4);
  cache.insert(2, 20, 4);
  EXPECT_EQ(cache.find(1), 10);  // now the more recent
  cache.insert(3, 30, 4);
  EXPECT_EQ(cache.find(2), std::nullopt);
  EXPECT_EQ(cache.find(1), 10);
  EXPECT_EQ(cache.find(3), 30);
  EXPECT_EQ(cache.num_bytes(), 8u);
  cache.insert(4, 40, 10);  // room for nothing else
  EXPECT_EQ(cache.find(4), 40);
  EXPECT_EQ(cache.find(1), std::nullopt);
  EXPECT_EQ(cache.num_bytes(), 10u);
}

TEST(LruCache, KeepsNothingThatIsTooLarge) {
  Cache cache(10);
  cache.insert(1, 10, 3);
  cache.insert(2, 20, 11);
  EXPECT_EQ(cache.find(2), std::nullopt);
  EXPECT_EQ(cache.find(1), 10);
  cache.insert(1, 11, 5);
  EXPECT_EQ(cache.find(1), 10) << "what is there stays";
  EXPECT_EQ(cache.num_bytes(), 3u);
}

}  // namespace
}  // namespace deepinfer
