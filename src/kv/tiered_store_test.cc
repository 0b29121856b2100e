// Two stores behind one interface: what each is asked, what is kept where, and that whatever happens to one costs its own blocks and no byte.
#include "kv/tiered_store.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "kv/store_world.h"

namespace deepinfer::kv {
namespace {

using Op = io::MemoryDisk::Op;
using Access = io::MemoryDisk::Access;

constexpr uint64_t kMiB = uint64_t{1} << 20;

Result<> off(const Access&) { return Error{Code::kIo, "gone"}; }

bool is_read(const Access& access) { return access.op == Op::kRead && StoreWorld::is_segment_path(access.path); }

// A machine's disk and a shared one, and the process that uses both. Others use the shared one too.
struct TieredWorld {
  StoreWorld near, far;
  std::unique_ptr<TieredStore> store;
  SegmentStore *local = nullptr, *shared = nullptr;

  explicit TieredWorld(uint64_t near_budget = 64 * kMiB) : near(near_budget) {
    far.time = near.time;
    far.disk->set_time([t = near.time] { return t->wall_s(); });
    near.options.tier = Tier::kDisk;
    far.options.tier = Tier::kShared;
    far.options.may_be_away = true;
  }
  // Another machine with the same shared store.
  void share(const TieredWorld& other) {
    near.time = far.time = other.far.time;
    near.disk->set_time([t = near.time] { return t->wall_s(); });
    far.disk = other.far.disk;
  }
  void open() {
    store.reset();
    const Result<StoreFolders> folders = open_store_folders(*near.disk, near.options.dir, *far.disk, far.options.dir);
    ASSERT_TRUE(folders) << folders.error().message;
    near.options.folder = folders->local;
    far.options.folder = folders->shared;
    std::vector<std::unique_ptr<SegmentStore>> opened;
    for (StoreWorld* world : {&near, &far}) {
      Result<std::unique_ptr<SegmentStore>> one = SegmentStore::open(world->disk, world->time, world->options);
      ASSERT_TRUE(one) << one.error().message;
      opened.push_back(std::move(*one));
    }
    local = opened[0].get();
    shared = opened[1].get();
    store = std::make_unique<TieredStore>(std::move(opened[0]), std::move(opened[1]));
  }
  void maintain() {
    local->maintain();
    shared->maintain();
  }

  StoreTag tag(uint8_t retention = 0) const { return near.tag("", retention); }
  size_t put(std::span<const BlockKey> chain, uint8_t retention = 0) { return put_into(*store, chain, retention); }
  size_t put_into(BlockStore& to, std::span<const BlockKey> chain, uint8_t retention = 0) {
    for (const BlockKey& key : chain) {
      const std::string rows = rows_of(key);
      to.publish(tag(retention), key, std::as_bytes(std::span(rows)));
    }
    to.flush();
    return known(to, chain);
  }
  static size_t known(BlockStore& in, std::span<const BlockKey> chain) { return static_cast<size_t>(in.find(chain).num_blocks); }
  // What comes, and from where: "DDS".
  std::string get(std::span<const BlockKey> chain, uint8_t retention = 0) {
    std::vector<Tier> tiers;
    fetch_all(*store, tag(retention), chain, &tiers);
    store->flush();
    std::string out;
    for (const Tier tier : tiers) out += tier == Tier::kDisk ? 'D' : 'S';
    return out;
  }
  static void flip_in_each_segment(StoreWorld& world, uint64_t byte) {
    for (const std::string& path : world.segments()) world.disk->flip_bit(path, 8 * byte);
  }
  static void wipe(StoreWorld& world) {
    for (const std::string& path : world.segments()) EXPECT_TRUE(world.disk->remove(path));
  }
  static uint64_t missed(const CacheStats& stats, CacheMiss cause) { return stats.missed_blocks[static_cast<size_t>(cause)]; }
};

// In the rows of the `index`th record of a segment.
uint64_t byte_in_record(uint64_t index) { return kPage * (1 + kRecordPages * index) + 500; }

TEST(TieredStore, WhatIsComputedGoesIntoBothAndIsReadNearby) {
  TieredWorld two;
  two.open();
  const auto chain = chain_of(1, 6);
  EXPECT_EQ(two.put(chain), 6u);
  EXPECT_EQ(TieredWorld::known(*two.local, chain), 6u);
  EXPECT_EQ(TieredWorld::known(*two.shared, chain), 6u);
  EXPECT_EQ(two.get(chain), "DDDDDD");
  EXPECT_EQ(two.store->stats().hit_blocks_disk, 6u);
  EXPECT_EQ(two.store->shared_stats().num_fetches, 0u);
  EXPECT_EQ(two.get(chain_of(2, 3)), "");
}

TEST(TieredStore, WhatComesFromSharedIsKeptNearby) {
  TieredWorld one, other;
  other.share(one);
  one.open();
  other.open();
  const auto chain = chain_of(1, 6);
  one.put(chain);
  other.maintain();
  EXPECT_EQ(other.get(chain), "SSSSSS");
  EXPECT_EQ(other.get(chain), "DDDDDD");
  EXPECT_EQ(other.store->stats().hit_blocks_disk, 6u);
  EXPECT_EQ(other.store->shared_stats().hit_blocks_shared, 6u);
  other.open();
  EXPECT_EQ(other.get(chain), "DDDDDD") << "over a restart too";
  // And where the machine's own blocks end, the shared ones go on.
  const auto longer = chain_of(1, 10);
  one.put(longer);
  other.maintain();
  EXPECT_EQ(other.get(longer), "DDDDDDSSSS");
}

// A copy is as old as what it was copied from, and ends with it.
TEST(TieredStore, ACopyIsNoYounger) {
  TieredWorld one, other;
  other.share(one);
  one.open();
  other.open();
  const auto chain = chain_of(1, 3), agents = chain_of(2, 3);
  one.put(chain);
  one.put(agents, 1);
  one.near.time->advance(60 * kHour);
  other.maintain();
  EXPECT_EQ(other.get(chain), "SSS");
  EXPECT_EQ(other.get(agents, 1), "SSS");
  EXPECT_EQ(other.local->find(chain).age_s, 60 * kHour);
  one.near.time->advance(13 * kHour);  // past 72 h, but for the rest of the time bucket
  other.maintain();
  EXPECT_EQ(TieredWorld::known(*other.local, agents), TieredWorld::known(*other.shared, agents));
  one.near.time->advance(3 * kHour);
  other.maintain();
  EXPECT_EQ(TieredWorld::known(*other.local, agents), 0u);
  EXPECT_EQ(other.get(agents, 1), "");
  EXPECT_EQ(other.get(chain), "DDD");
  // What is past the time of the class of who asks is not kept for it.
  TieredWorld third;
  third.share(one);
  third.open();
  EXPECT_EQ(third.get(chain, 1), "SSS");
  EXPECT_EQ(third.get(chain, 1), "SSS");
  EXPECT_EQ(TieredWorld::known(*third.local, chain), 0u);
}

// Copies of older blocks come in ones and twos, for hours: they do not make a file each.
TEST(TieredStore, CopiesOfOldBlocksShareFiles) {
  TieredWorld one, other;
  other.share(one);
  one.open();
  other.open();
  std::vector<std::vector<BlockKey>> chains;
  for (int32_t i = 0; i < 60; ++i) one.put(chains.emplace_back(chain_of(i, 1)));
  one.near.time->advance(30 * kHour);
  other.maintain();
  for (const auto& chain : chains) {
    EXPECT_EQ(other.get(chain), "S");
    one.near.time->advance(2);
    other.maintain();
  }
  EXPECT_LE(other.near.segments().size(), 10u) << "at most eight blocks a segment";
  one.near.time->advance(100);
  other.maintain();
  other.open();
  for (const auto& chain : chains) EXPECT_EQ(other.get(chain), "D");
}

TEST(TieredStore, WhatOneStoreFailsToGiveComesFromTheOther) {
  for (const bool near_fails : {true, false}) {
    TieredWorld two;
    two.open();
    const auto chain = chain_of(1, 7);
    two.put(chain);
    two.open();
    StoreWorld &bad = near_fails ? two.near : two.far, &good = near_fails ? two.far : two.near;
    TieredWorld::flip_in_each_segment(bad, byte_in_record(2));
    if (!near_fails) TieredWorld::wipe(good), two.maintain(), two.put_into(*two.local, std::span(chain).first(5));
    EXPECT_EQ(two.get(chain), near_fails ? "DDSSSSS" : "DDDDDSS");
    EXPECT_EQ(TieredWorld::missed(two.store->stats(), CacheMiss::kCorrupt), near_fails ? 1u : 0u);
    EXPECT_EQ(TieredWorld::missed(two.store->shared_stats(), CacheMiss::kCorrupt), 0u) << "the bad one was not needed";
    EXPECT_EQ(two.get(chain), "DDDDDDD") << "it is whole again";
  }
}

TEST(TieredStore, WhatBothFailToGiveEndsTheFetchAndCountsWithBoth) {
  TieredWorld two;
  two.open();
  const auto chain = chain_of(1, 7);
  two.put(chain);
  two.open();
  for (StoreWorld* world : {&two.near, &two.far}) TieredWorld::flip_in_each_segment(*world, byte_in_record(2));
  const auto fetch = two.store->fetch(two.tag(), chain, nullptr);
  for (int i = 0; i < 2; ++i, fetch->pop()) ASSERT_EQ(fetch->state(), BlockFetch::State::kReady);
  EXPECT_EQ(fetch->state(), BlockFetch::State::kEnded);
  EXPECT_EQ(fetch->miss(), CacheMiss::kCorrupt);
  fetch->give_up();
  EXPECT_EQ(TieredWorld::missed(two.store->stats(), CacheMiss::kCorrupt), 1u);
  EXPECT_EQ(TieredWorld::missed(two.store->shared_stats(), CacheMiss::kCorrupt), 5u) << "the rest counts where it was looked for last";
  EXPECT_EQ(two.put(chain), 7u) << "it can be stored anew";
  EXPECT_EQ(two.get(chain), "DDDDDDD");
}

// A local disk that reads nothing any more: its blocks are not tried one by one.
TEST(TieredStore, ADeadLocalDiskIsLeftAlone) {
  TieredWorld two;
  two.open();
  const auto chain = chain_of(1, 40);
  two.put(chain);
  two.open();
  int num_reads = 0;
  two.near.disk->set_fault([&](const Access& access) -> Result<> { return is_read(access) ? (++num_reads, off(access)) : Result<>(); });
  EXPECT_EQ(two.get(chain), std::string(40, 'S'));
  EXPECT_EQ(num_reads, 1);
  EXPECT_EQ(TieredWorld::missed(two.store->stats(), CacheMiss::kIo), 1u);
}

TEST(TieredStore, WithTheSharedStoreGoneTheLocalOneGoesOn) {
  TieredWorld two;
  two.open();
  const auto before = chain_of(1, 5), during = chain_of(2, 5), after = chain_of(3, 5);
  two.put(before);
  two.far.disk->set_fault(off);
  EXPECT_EQ(two.get(before), "DDDDD");
  for (int32_t i = 0; i < 4; ++i) two.put(chain_of(10 + i, 1));
  EXPECT_TRUE(two.store->shared_stats().read_only);
  EXPECT_FALSE(two.store->stats().read_only);
  EXPECT_EQ(two.put(during), 5u);
  EXPECT_EQ(two.get(during), "DDDDD");
  EXPECT_EQ(two.store->stats().write_errors, 0u);
  // A restart does not need it, and it is used again once it is back.
  two.open();
  EXPECT_EQ(two.get(before) + two.get(during), "DDDDDDDDDD");
  two.far.disk->set_fault(nullptr);
  two.near.time->advance(60);
  two.maintain();
  EXPECT_EQ(TieredWorld::known(*two.shared, before), 5u);
  two.put(after);
  EXPECT_EQ(TieredWorld::known(*two.shared, after), 5u);
  TieredWorld::wipe(two.near);
  two.maintain();
  EXPECT_EQ(two.get(before) + two.get(after), "SSSSSSSSSS");
}

TEST(TieredStore, WithTheLocalStoreGoneTheSharedOneGoesOn) {
  TieredWorld two;
  two.open();
  const auto before = chain_of(1, 5), during = chain_of(2, 5);
  two.put(before);
  two.near.disk->set_fault(off);
  EXPECT_EQ(two.get(before), "SSSSS");
  two.put(during);
  EXPECT_EQ(TieredWorld::known(*two.shared, during), 5u);
  EXPECT_EQ(two.get(during), "SSSSS");
  EXPECT_EQ(two.store->shared_stats().write_errors, 0u);
}

TEST(TieredStore, ASmallLocalStoreIsRefilledFromALargeSharedOne) {
  TieredWorld two(kMiB);
  two.open();
  std::vector<std::vector<BlockKey>> chains;
  for (int32_t i = 0; i < 30; ++i) {
    ASSERT_EQ(two.put(chains.emplace_back(chain_of(i, 20))), 20u);
    two.near.time->advance(60);
    ASSERT_LE(two.near.disk->allocated_bytes(), kMiB);
  }
  EXPECT_EQ(two.store->shared_stats().num_blocks, 600u);
  EXPECT_LT(two.store->stats().num_blocks, 130u);
  for (const auto& chain : chains) {
    EXPECT_EQ(two.get(chain).size(), 20u);
    EXPECT_EQ(two.get(chain), std::string(20, 'D')) << "kept, in place of others";
    ASSERT_LE(two.near.disk->allocated_bytes(), kMiB);
    two.near.time->advance(60);
  }
}

// What a machine serves from its own disk is in use where machines share it too.
TEST(TieredStore, AHitNearbyCountsAsAUseOfBoth) {
  TieredWorld two;
  two.open();
  const auto chain = chain_of(1, 3);
  two.put(chain);
  two.open();
  two.near.time->advance(10 * kHour);
  two.store->find(chain);
  two.maintain();
  for (const StoreWorld* world : {&two.near, &two.far}) {
    const io::FileStatus status = world->disk->status(world->segments().at(0)).value();
    EXPECT_EQ(status.changed_unix_s, two.near.time->wall_s());
  }
}

TEST(TieredStore, ARetractedBlockIsGoneFromBoth) {
  TieredWorld two;
  two.open();
  const auto chain = chain_of(1, 3);
  two.put(chain);
  two.store->retract(std::span(chain).first(1));
  two.maintain();
  EXPECT_EQ(two.get(chain), "");
  two.open();
  EXPECT_EQ(two.get(chain), "");
}

TEST(TieredStore, FoldersComeUnderOneSecret) {
  TieredWorld two, machine;
  two.open();
  EXPECT_EQ(two.near.options.folder.secret, two.far.options.folder.secret);
  const auto folders = [](TieredWorld& near, TieredWorld& far) { return open_store_folders(*near.near.disk, "/cache", *far.far.disk, "/cache"); };
  EXPECT_EQ(folders(machine, two)->local.secret, two.far.options.folder.secret) << "a new machine takes the shared one's";
  // A local store that was alone until now gives its own to a new shared one, and keeps what it holds.
  TieredWorld alone;
  const Digest256 own = open_store_folder(*alone.near.disk, "/cache")->secret;
  EXPECT_EQ(folders(alone, alone)->shared.secret, own);
  // Both are old and were never together.
  const Result<StoreFolders> strangers = folders(alone, two);
  ASSERT_FALSE(strangers);
  EXPECT_EQ(strangers.error().code, Code::kUnsupported);
  // Out of reach: no matter for a machine that knows the secret, an error for a new one.
  two.far.disk->set_fault(off);
  const Result<StoreFolders> away = folders(two, two);
  ASSERT_TRUE(away);
  EXPECT_TRUE(away->away.has_value());
  EXPECT_EQ(away->shared.secret, away->local.secret);
  TieredWorld fresh;
  EXPECT_EQ(folders(fresh, two).error().code, Code::kIo);
}

// Random use, restarts, crashes, rot, purges, disks that err or are gone, a clock that moves: what comes is what went in, each store keeps to
// its budget, and once all is well again everything can be had.
TEST(TieredStore, RandomFaultsOfEitherStore) {
  constexpr size_t kChains = 6, kBlocks = 12;
  constexpr uint64_t kSlack = kMiB / 8;  // what a disk that errs keeps of files that should have become shorter, or gone
  uint64_t num_disk = 0, num_shared = 0;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Rng rng(seed), dice(seed + 100);
    TieredWorld two(kMiB / 2);
    two.open();
    std::vector<std::vector<BlockKey>> chains;
    for (size_t i = 0; i < kChains; ++i) chains.push_back(chain_of(static_cast<int32_t>(i), kBlocks));
    std::vector<size_t> num_published(kChains, 0);
    const auto sometimes = [&](const Access& access) -> Result<> {
      if (dice.below(6) != 0) return {};
      if (access.torn != nullptr) *access.torn = dice.below(access.length + 1);
      return off(access);
    };
    const auto reopen = [&] {
      two.near.disk->set_fault(nullptr);  // a machine whose own disk does not work does not start
      two.open();
    };
    for (int step = 0; step < 300; ++step) {
      const size_t which = rng.below(kChains), length = 1 + rng.below(kBlocks);
      StoreWorld& world = rng.below(2) == 0 ? two.near : two.far;
      switch (rng.below(16)) {
        case 0: world.disk->set_fault(sometimes); break;
        case 1: world.disk->set_fault(off); break;
        case 2: case 3:
          world.disk->set_fault(nullptr);
          two.maintain();
          ASSERT_LE(two.near.disk->allocated_bytes(), two.near.options.budget_bytes + (&world == &two.near ? 0 : kSlack)) << step;
          break;
        case 4: two.near.time->advance(static_cast<int64_t>(rng.below(2 * kHour))); break;
        case 5: two.maintain(); break;
        case 6: {
          const std::vector<std::string> paths = world.segments();
          if (paths.empty()) break;
          const std::string& path = paths[rng.below(paths.size())];
          if (const size_t size = world.disk->content(path).size(); size > 0) world.disk->flip_bit(path, rng.below(8 * size));
          break;
        }
        case 7: reopen(); break;
        case 8:
          if (rng.below(4) == 0) world.disk->set_fault(nullptr), TieredWorld::wipe(world);
          break;
        case 9:
          if (rng.below(4) != 0) break;
          two.near.disk->set_fault(off);  // the machine loses power; the shared store's does not
          two.far.disk->set_fault(off);
          two.store.reset();
          two.near.disk->crash(rng.below(9000));
          two.far.disk->set_fault(nullptr);
          reopen();
          break;
        case 10: case 11: case 12: {
          num_published[which] = std::max(num_published[which], length);
          two.put(std::span(chains[which]).first(length), static_cast<uint8_t>(rng.below(2)));
          break;
        }
        default: {
          const std::string from = two.get(chains[which], static_cast<uint8_t>(rng.below(2)));
          ASSERT_LE(from.size(), num_published[which]) << "nobody wrote that";
          num_disk += static_cast<uint64_t>(std::count(from.begin(), from.end(), 'D'));
          num_shared += static_cast<uint64_t>(std::count(from.begin(), from.end(), 'S'));
        }
      }
      ASSERT_LE(two.near.disk->allocated_bytes(), two.near.options.budget_bytes + kSlack) << step;
    }
    two.far.disk->set_fault(nullptr);
    reopen();
    two.near.time->advance(60);
    two.maintain();
    for (const auto& chain : chains) {
      // Damage is found by reading it, once a block.
      for (size_t round = 0; round < 2 * kBlocks && two.get(chain).size() < kBlocks; ++round) two.put(chain);
      EXPECT_EQ(two.get(chain).size(), kBlocks);
    }
  }
  EXPECT_GT(num_disk, 1000u);
  EXPECT_GT(num_shared, 1000u);
}

// A rate that was measured once is not believed for ever: what was slow is tried again.
TEST(SegmentStore, AMeasuredRateIsForgotten) {
  StoreWorld world;
  world.open();
  const auto chain = chain_of(1, 3);
  world.put(chain);
  EXPECT_EQ(world.store->find(chain).bytes_per_s, 0);
  world.get(chain);
  EXPECT_GT(world.store->find(chain).bytes_per_s, 0);
  world.time->advance(59);
  EXPECT_GT(world.store->find(chain).bytes_per_s, 0);
  world.time->advance(1);
  EXPECT_EQ(world.store->find(chain).bytes_per_s, 0);
}

}  // namespace
}  // namespace deepinfer::kv
