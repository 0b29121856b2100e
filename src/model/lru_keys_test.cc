#include "model/lru_keys.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <list>
#include <map>

#include "base/rng.h"

namespace deepinfer::model {
namespace {

// Against a list in which the newest stands first.
TEST(LruKeys, IsWhatAListWouldBe) {
  Rng rng(7);
  for (const int32_t capacity : {1, 2, 3, 7, 64}) {
    for (const int64_t spread : {int64_t{1}, int64_t{1} << 33}) {  // keys that collide in their low bits, or not
      LruKeys lru(capacity);
      std::list<int64_t> twin;
      std::map<int64_t, int32_t> slots;
      for (int step = 0; step < 20'000; ++step) {
        const int64_t key = static_cast<int64_t>(rng.below(static_cast<uint64_t>(2 * capacity + 3))) * spread;
        const auto found = std::find(twin.begin(), twin.end(), key);
        const bool there = found != twin.end();
        std::optional<int64_t> evicted;
        if (there) twin.erase(found);
        else if (twin.size() == static_cast<size_t>(capacity)) {
          evicted = twin.back();
          twin.pop_back();
        }
        twin.push_front(key);
        const LruKeys::Touched touched = lru.touch(key);
        ASSERT_EQ(touched.was_there, there);
        ASSERT_EQ(touched.evicted, evicted);
        if (there) {
          ASSERT_EQ(touched.slot, slots[key]);
        } else if (evicted) {
          ASSERT_EQ(touched.slot, slots[*evicted]);
          ASSERT_EQ(lru.slot_of(*evicted), -1);
          slots.erase(*evicted);
        }
        slots[key] = touched.slot;
        ASSERT_EQ(lru.slot_of(twin.back()), slots[twin.back()]);
        ASSERT_EQ(lru.size(), static_cast<int32_t>(twin.size()));
        if (evicted) {
          ASSERT_EQ(lru.slot_of(*evicted), -1);
        }
        ASSERT_GE(lru.slot_of(twin.back()), 0);
      }
    }
  }
}

}  // namespace
}  // namespace deepinfer::model
