#include "kv/block_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <list>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "base/rng.h"

namespace deepinfer::kv {
namespace {

BlockKey key_of(uint8_t n) {
  BlockKey key;
  key.bytes.fill(n);
  return key;
}

TEST(BlockPool, HandsOutEveryBlockOnceLowestFirst) {
  BlockPool pool(4);
  for (BlockId expected = 0; expected < 4; ++expected) EXPECT_EQ(pool.allocate(), expected);
  EXPECT_EQ(pool.allocate(), kNoBlock);
  pool.release(2);
  EXPECT_EQ(pool.allocate(), 2);
  EXPECT_EQ(pool.num_in_use(), 4);
}

TEST(BlockPool, ABlockIsFoundOnlyAfterItIsPublished) {
  BlockPool pool(2);
  const BlockId block = pool.allocate();
  EXPECT_EQ(pool.acquire(key_of(1)), kNoBlock);
  EXPECT_EQ(pool.publish(block, key_of(1)), block);
  EXPECT_EQ(pool.acquire(key_of(1)), block);
  EXPECT_EQ(pool.num_references(block), 2);
}

TEST(BlockPool, TheSecondOfTwoEqualBlocksStaysPrivate) {
  BlockPool pool(2);
  const BlockId first = pool.allocate(), second = pool.allocate();
  EXPECT_EQ(pool.publish(first, key_of(1)), first);
  EXPECT_EQ(pool.publish(second, key_of(1)), first);
  EXPECT_FALSE(pool.is_published(second));
  pool.release(second);
  EXPECT_EQ(pool.num_cached(), 0);  // nothing remembers it
  pool.release(first);
  EXPECT_EQ(pool.num_cached(), 1);
}

TEST(BlockPool, EvictsTheLeastRecentlyReleasedAndForgetsItsKey) {
  BlockPool pool(2);
  const BlockId a = pool.allocate(), b = pool.allocate();
  pool.publish(a, key_of(1));
  pool.publish(b, key_of(2));
  pool.release(b);
  pool.release(a);
  EXPECT_EQ(pool.acquire(key_of(2)), b);  // a hit makes it recent
  pool.release(b);
  EXPECT_EQ(pool.allocate(), a);
  EXPECT_FALSE(pool.contains(key_of(1)));
  EXPECT_TRUE(pool.contains(key_of(2)));
}

TEST(BlockPool, AClassThatIsKeptTwiceAsLongMayBeIdleForTwiceAsLong) {
  const int64_t seconds[] = {100, 200};
  BlockPool pool(6, seconds);
  std::vector<BlockId> blocks;
  for (uint8_t i = 0; i < 6; ++i) {
    blocks.push_back(pool.allocate());
    pool.publish(blocks[i], key_of(i));
  }
  for (uint8_t i = 0; i < 6; ++i) pool.release(blocks[i], i == 2 || i == 5 ? 0 : 1);
  // Idle for 5, 4, 3, 2, 1, 0 of 200, 200, 100, 200, 200, 100.
  for (const BlockId expected : {2, 0, 1, 3, 4, 5}) EXPECT_EQ(pool.allocate(), expected);
}

TEST(BlockPool, ABlockBelongsToTheLongestClassThatUsedIt) {
  const int64_t seconds[] = {1000, 10};
  BlockPool pool(3, seconds);
  const BlockId shared = pool.allocate(), own = pool.allocate(), last = pool.allocate();
  pool.publish(shared, key_of(1));
  pool.publish(own, key_of(2));
  pool.publish(last, key_of(3));
  pool.release(shared, 0);
  EXPECT_EQ(pool.acquire(key_of(1)), shared);
  for (const BlockId block : {shared, own, last}) pool.release(block, 1);
  for (const BlockId expected : {own, shared, last}) EXPECT_EQ(pool.allocate(), expected);
}

// To be used again does not make a block younger.
TEST(BlockPool, PastItsClassesTimeABlockIsNotFound) {
  const int64_t seconds[] = {1000, 100};
  BlockPool pool(4, seconds);
  pool.set_time(5000);
  const BlockId agent = pool.allocate(), chat = pool.allocate();
  pool.publish(agent, key_of(1));
  pool.publish(chat, key_of(2));
  pool.release(agent, 1);
  pool.release(chat, 0);
  pool.set_time(5099);
  EXPECT_EQ(pool.acquire(key_of(1)), agent);
  pool.release(agent, 1);
  pool.set_time(5100);
  EXPECT_FALSE(pool.contains(key_of(1)));
  EXPECT_EQ(pool.acquire(key_of(1)), kNoBlock);
  EXPECT_TRUE(pool.contains(key_of(2)));
  pool.set_time(6000);
  EXPECT_FALSE(pool.contains(key_of(2)));
  // Computed again it is new.
  const BlockId again = pool.allocate();
  EXPECT_EQ(pool.publish(again, key_of(1)), again);
  EXPECT_EQ(pool.num_cached(), 1) << "the old one is free";
  pool.check_invariants();
  pool.release(again, 1);
  EXPECT_EQ(pool.acquire(key_of(1)), again);
}

TEST(BlockPool, WhoHoldsAnExpiredBlockKeepsItAlone) {
  const int64_t seconds[] = {100};
  BlockPool pool(3, seconds);
  const BlockId old = pool.allocate();
  pool.publish(old, key_of(1));
  pool.set_time(100);
  EXPECT_EQ(pool.acquire(key_of(1)), kNoBlock);
  EXPECT_EQ(pool.num_references(old), 1);
  const BlockId fresh = pool.allocate();
  EXPECT_EQ(pool.publish(fresh, key_of(1)), fresh);
  EXPECT_FALSE(pool.is_published(old));
  EXPECT_EQ(pool.acquire(key_of(1)), fresh);
  pool.release(old);
  EXPECT_EQ(pool.num_cached(), 0) << "nothing remembers it";
  pool.check_invariants();
}

TEST(BlockPool, ABlockFromElsewhereIsAsOldAsItIs) {
  const int64_t seconds[] = {1000, 100};
  BlockPool pool(3, seconds);
  pool.set_time(5000);
  const BlockId old = pool.allocate(), kept = pool.allocate(), young = pool.allocate();
  pool.publish(old, key_of(1), {.age_s = 90, .remaining_s = 15});
  pool.publish(kept, key_of(2), {.age_s = 90, .remaining_s = 500});
  pool.publish(young, key_of(3), {.age_s = 0, .remaining_s = 5});
  for (const BlockId block : {old, kept, young}) pool.release(block, 1);
  const auto found_at = [&](int64_t now_s) {
    pool.set_time(now_s);
    return std::vector<bool>{pool.contains(key_of(1)), pool.contains(key_of(2)), pool.contains(key_of(3))};
  };
  EXPECT_EQ(found_at(5014), (std::vector<bool>{true, true, true}));
  EXPECT_EQ(found_at(5015), (std::vector<bool>{false, true, true})) << "as long as where it comes from would have served it";
  EXPECT_EQ(found_at(5100), (std::vector<bool>{false, true, false})) << "but at least for its class's time";
  EXPECT_EQ(found_at(5500), (std::vector<bool>{false, false, false}));
}

TEST(BlockPool, WithoutClassesBlocksAreKeptForGood) {
  BlockPool pool(1);
  const BlockId block = pool.allocate();
  pool.publish(block, key_of(1));
  pool.release(block);
  pool.set_time(int64_t{1} << 40);
  EXPECT_TRUE(pool.contains(key_of(1)));
}

TEST(BlockPool, ARetractedBlockIsNeverFoundAgain) {
  BlockPool pool(2);
  const BlockId a = pool.allocate();
  pool.publish(a, key_of(1));
  pool.retract(a);
  EXPECT_FALSE(pool.contains(key_of(1)));
  pool.release(a);
  EXPECT_EQ(pool.num_cached(), 0);
  pool.check_invariants();
}

// The naive twin: the same contract with maps and lists, nothing clever.
class NaivePool {
 public:
  NaivePool(int num_blocks, std::vector<int64_t> seconds) : free_(num_blocks), seconds_(std::move(seconds)) {}
  bool can_allocate() const { return free_ > 0 || !cached_.empty(); }
  // Returns the key that must have been evicted, if any.
  std::optional<BlockKey> allocate() {
    if (free_ > 0) return free_ -= 1, std::nullopt;
    // By cross multiplication, and over all that is cached; of equals the one of the first class.
    const auto wanted_less = [&](const BlockKey& a, const BlockKey& b) {
      const size_t class_a = class_of(a), class_b = class_of(b);
      const int64_t cross_a = idle(a) * seconds_[class_b], cross_b = idle(b) * seconds_[class_a];
      return cross_a != cross_b ? cross_a > cross_b : class_a < class_b;
    };
    const auto least = std::min_element(cached_.begin(), cached_.end(), wanted_less);
    const BlockKey evicted = *least;
    cached_.erase(least);
    by_key_.erase(evicted);
    return evicted;
  }
  struct Entry {
    BlockId block;
    int references;
    int64_t filled_s;
    std::set<size_t> classes = {};  // that used it
    int64_t released = 0;
  };
  // Of all classes that used it, the longest; before the first use, the shortest that there is.
  bool is_expired(const Entry& entry) const {
    int64_t longest = *std::min_element(seconds_.begin(), seconds_.end());
    for (const size_t used : entry.classes) longest = std::max(longest, seconds_[used]);
    return time_s_ - entry.filled_s >= longest;
  }
  int64_t idle(const BlockKey& key) const { return now_ - by_key_.at(key).released; }
  size_t class_of(const BlockKey& key) const {
    const std::set<size_t>& used = by_key_.at(key).classes;
    return *std::max_element(used.begin(), used.end(), [&](size_t a, size_t b) { return seconds_[a] < seconds_[b]; });
  }
  int free_;
  std::vector<int64_t> seconds_;
  int64_t now_ = 0, time_s_ = 0;
  std::list<BlockKey> cached_;  // oldest first
  std::map<BlockKey, Entry> by_key_;
};

TEST(BlockPool, AgreesWithANaiveTwinUnderRandomOperations) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    Rng rng(seed);
    const int num_blocks = 1 + static_cast<int>(rng.below(12));
    const std::vector<std::vector<int64_t>> classes = {{1}, {72, 168}, {168, 24, 1}};
    const std::vector<int64_t>& seconds = classes[seed % classes.size()];
    BlockPool pool(num_blocks, seconds);
    NaivePool twin(num_blocks, seconds);
    struct Held {
      BlockId block;
      std::optional<BlockKey> key;
    };
    std::vector<Held> held;  // one entry a reference
    const auto num_holders = [&](BlockId block) {
      return static_cast<int>(std::count_if(held.begin(), held.end(), [&](const Held& h) { return h.block == block; }));
    };
    for (int step = 0; step < 3000; ++step) {
      const BlockKey key = key_of(static_cast<uint8_t>(rng.below(10)));
      if (rng.below(4) == 0) pool.set_time(twin.time_s_ += static_cast<int64_t>(rng.below(9)));
      switch (rng.below(5)) {
        case 0: {
          const BlockId block = pool.allocate();
          ASSERT_EQ(block != kNoBlock, twin.can_allocate());
          if (block == kNoBlock) break;
          const auto evicted = twin.allocate();
          ASSERT_FALSE(evicted && pool.contains(*evicted));
          ASSERT_EQ(num_holders(block), 0) << "handed out twice";
          held.push_back({block, std::nullopt});
          break;
        }
        case 1: {
          const BlockId block = pool.acquire(key);
          const auto it = twin.by_key_.find(key);
          ASSERT_EQ(block, it == twin.by_key_.end() || twin.is_expired(it->second) ? kNoBlock : it->second.block);
          if (block == kNoBlock) break;
          if (it->second.references++ == 0) twin.cached_.remove(key);
          held.push_back({block, key});
          break;
        }
        case 2: {  // publish a private block
          const auto it = std::find_if(held.begin(), held.end(), [](const Held& h) { return !h.key; });
          if (it == held.end()) break;
          auto known = twin.by_key_.find(key);
          if (known != twin.by_key_.end() && twin.is_expired(known->second)) {  // makes way
            if (known->second.references == 0) {
              twin.cached_.remove(key);
              twin.free_ += 1;
            }
            for (Held& h : held) {
              if (h.key == key) h.key.reset();
            }
            twin.by_key_.erase(known);
            known = twin.by_key_.end();
          }
          ASSERT_EQ(pool.publish(it->block, key), known == twin.by_key_.end() ? it->block : known->second.block);
          if (known == twin.by_key_.end()) {
            twin.by_key_[key] = {.block = it->block, .references = num_holders(it->block), .filled_s = twin.time_s_};
            for (Held& h : held) {
              if (h.block == it->block) h.key = key;
            }
          }
          break;
        }
        default: {
          if (held.empty()) break;
          const size_t i = rng.below(held.size());
          const Held h = held[i];
          held.erase(held.begin() + static_cast<ptrdiff_t>(i));
          const size_t used = rng.below(seconds.size());
          pool.release(h.block, static_cast<uint8_t>(used));
          if (!h.key) {
            twin.free_ += num_holders(h.block) == 0;
            break;
          }
          NaivePool::Entry& entry = twin.by_key_[*h.key];
          entry.classes.insert(used);
          if (--entry.references > 0) break;
          entry.released = ++twin.now_;
          twin.cached_.push_back(*h.key);
        }
      }
      pool.check_invariants();
      ASSERT_EQ(pool.num_cached(), static_cast<int32_t>(twin.cached_.size()));
      ASSERT_EQ(pool.num_available(), twin.free_ + static_cast<int32_t>(twin.cached_.size()));
    }
  }
}

}  // namespace
}  // namespace deepinfer::kv
