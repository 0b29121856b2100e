#include "kv/segment_store.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <map>
#include <mutex>
#include <thread>

#include "eventually.h"
#include "kv/store_world.h"

namespace deepinfer::kv {
namespace {

TEST(SegmentStore, WhatWasPublishedIsFoundAgainAlsoAfterARestart) {
  StoreWorld world;
  world.open();
  const auto chain = chain_of(1, 40);
  EXPECT_EQ(world.put(chain), 40u);
  EXPECT_EQ(world.get(chain), 40u);
  world.open();
  EXPECT_EQ(world.known(chain), 40u);
  Tier tier = Tier::kRam;
  EXPECT_EQ(world.get(chain, &tier), 40u);
  EXPECT_EQ(tier, Tier::kDisk) << "a dead process's files are ours";
  EXPECT_EQ(world.known(chain_of(2, 3)), 0u);
}

TEST(SegmentStore, ABlockIsFoundOnlyOnceItIsDurable) {
  StoreWorld world;
  world.open();
  const auto chain = chain_of(1, 2);
  world.disk->set_fault([&](const io::MemoryDisk::Access& access) -> Result<> {
    if (access.op == io::MemoryDisk::Op::kSync || access.op == io::MemoryDisk::Op::kWrite) {
      EXPECT_EQ(world.known(chain), 0u);
    }
    return {};
  });
  for (const BlockKey& key : chain) EXPECT_TRUE(world.publish(key));
  EXPECT_EQ(world.known(chain), 0u);
  EXPECT_FALSE(world.publish(chain[0])) << "once is enough";
  world.store->flush();
  world.disk->set_fault(nullptr);
  EXPECT_EQ(world.known(chain), 2u);
  EXPECT_FALSE(world.publish(chain[0]));
  EXPECT_EQ(world.store->stats().written_blocks, 2u);
}

TEST(SegmentStore, AFullBacklogDropsAndCounts) {
  StoreWorld world;
  world.options.backlog_bytes = 4 * kRecordPages * kPage;
  world.open();
  const auto chain = chain_of(1, 10);
  int taken = 0;
  for (const BlockKey& key : chain) taken += world.publish(key);
  EXPECT_EQ(taken, 4);
  EXPECT_EQ(world.store->stats().dropped_blocks, 6u);
  world.store->flush();
  EXPECT_EQ(world.known(chain), 4u);
  EXPECT_EQ(world.put(std::span(chain).subspan(4, 4)), 4u) << "the buffers are free again";
}

// How long ago the last block of a match was written: to the second, whoever wrote it and however its file was read.
TEST(SegmentStore, AMatchIsAsOldAsItsLastBlock) {
  StoreWorld a, b;
  b.share(a);
  a.open();
  b.open();
  const auto chain = chain_of(1, 6);
  const auto age = [&](StoreWorld& world, size_t count) { return world.store->find(std::span(chain).first(count)).age_s; };
  a.put(std::span(chain).first(3));
  a.time->advance(1234);
  a.put(std::span(chain).subspan(3));
  a.time->advance(100);
  EXPECT_EQ(age(a, 3), 1334);
  EXPECT_EQ(age(a, 6), 100);
  b.store->maintain();
  EXPECT_EQ(age(b, 3), 1334) << "of records that were walked";
  EXPECT_EQ(age(b, 6), 100);
  a.open();
  EXPECT_EQ(age(a, 3), 1334) << "from a footer";
  EXPECT_EQ(age(a, 6), 100);
  EXPECT_EQ(a.get(chain), 6u);
  EXPECT_EQ(age(a, 6), 100) << "to be read makes it no younger";
}

TEST(SegmentStore, FilesAreSealedAndSplitBySize) {
  StoreWorld world;
  world.open();
  for (int i = 0; i < 20; ++i) world.put(chain_of(i, 4));
  EXPECT_GT(world.segments().size(), 5u);
  for (const std::string& path : world.segments()) EXPECT_LE(world.disk->content(path).size(), (64u << 10) + 8 * kPage + 64);
}

// Records of a sealed file come from its footer, those of an open one by walking it: both must say the same.
TEST(SegmentStore, ACrashedWritersFileIsReadWithoutItsFooter) {
  StoreWorld world;
  world.open();
  const auto chain = chain_of(1, 5);
  world.put(chain);
  world.crash();
  world.open();
  EXPECT_EQ(world.get(chain), 5u);
}

TEST(SegmentStore, ExpiryDeletesWholeSegmentsAndServesNothingOld) {
  StoreWorld world;
  world.open();
  const auto chat = chain_of(1, 3), agent = chain_of(2, 3);
  world.put(chat, 0);
  world.put(agent, 1);
  world.time->advance(71 * kHour);
  world.store->maintain();
  EXPECT_EQ(world.known(agent), 3u) << "kept as long as promised";
  EXPECT_EQ(world.known(chat), 3u);
  world.time->advance(5 * kHour);  // 72 h and a bucket
  EXPECT_EQ(world.known(agent), 0u) << "before anything was deleted";
  EXPECT_EQ(world.get(agent), 0u);
  world.store->maintain();
  EXPECT_EQ(world.store->stats().expired_segments, 1u);
  EXPECT_EQ(world.segments().size(), 1u);
  EXPECT_EQ(world.get(chat), 3u);
  world.put(agent, 1);
  EXPECT_EQ(world.get(agent), 3u) << "computed again, kept again";
}

// What lies there is adopted or removed, and its bytes are told (LMCache/LMCache#2273).
TEST(SegmentStore, AStartTellsWhatItFound) {
  StoreWorld world;
  world.open();
  EXPECT_TRUE(world.log.empty()) << "a new directory is not worth a line";
  world.put(chain_of(1, 5), 0);
  world.put(chain_of(2, 3), 1);
  world.open();
  EXPECT_EQ(world.log, std::vector<std::string>{"cache /cache: 8 blocks found, 88.0 KiB"});
  world.options.model = namespace_of("other weights", "a-v1", "f", 4);
  world.open();
  EXPECT_EQ(world.log.back(), "cache /cache: 0 blocks found, 0 B; 88.0 KiB of no use here (other models, settings or keys, damaged, or too old)");
  world.options.model = namespace_of("w", "a-v1", "f", 4);
  for (int hour = 0; hour < 80; hour += 20) {
    world.open();  // keeps the mark, or so long a pause would be in doubt
    world.store->maintain();
    world.store.reset();
    world.time->advance(20 * kHour);
  }
  world.open();
  EXPECT_EQ(world.log.back(), "cache /cache: 5 blocks found, 52.0 KiB; 1 files removed that were past their time");
  world.store.reset();
  world.options.budget_bytes = 8 * kRecordPages * kPage;
  world.open();
  EXPECT_NE(world.log.back().find("1 removed to keep to the budget"), std::string::npos) << world.log.back();
}

TEST(SegmentStore, TheBudgetHoldsAndAccountingIsTheDisks) {
  StoreWorld world(uint64_t{1} << 20);
  world.open();
  Rng rng(5);
  std::vector<std::vector<BlockKey>> chains;
  for (int i = 0; i < 300; ++i) chains.push_back(chain_of(i, 1 + rng.below(6)));
  for (int i = 0; i < 1000; ++i) {
    const auto& chain = chains[rng.below(chains.size())];
    switch (rng.below(5)) {
      case 0: world.get(chain); break;
      case 1: world.time->advance(static_cast<int64_t>(rng.below(3000))); break;
      case 2: world.store->maintain(); break;
      default: world.put(chain, static_cast<uint8_t>(rng.below(2)));
    }
    ASSERT_LE(world.disk->allocated_bytes(), world.options.budget_bytes);
    if (rng.below(50) == 0) world.open();
    if (rng.below(20) == 0 && !world.segments().empty()) {  // somebody removes a file
      const auto segments = world.segments();
      ASSERT_TRUE(world.disk->remove(segments[rng.below(segments.size())]));
    }
  }
  world.store->maintain();
  const uint64_t used = world.store->stats().used_bytes, real = world.disk->allocated_bytes();
  EXPECT_LE(std::max(used, real) - std::min(used, real), kRecordPages * kPage);
  EXPECT_GT(world.store->stats().evicted_segments, 0u);
}

TEST(SegmentStore, HotBlocksOfADoomedSegmentAreCopiedForward) {
  StoreWorld world(uint64_t{1} << 20);
  world.open();
  const auto prefix = chain_of(1000, 2);
  world.put(prefix);
  for (int i = 0; i < 200; ++i) {
    world.time->advance(30);
    world.put(chain_of(i, 3));
    ASSERT_EQ(world.get(prefix), 2u) << "a prefix that everybody uses stays, round " << i;
    ASSERT_EQ(world.store->find(prefix).age_s, 30 * (i + 1)) << "and is as old as it is";
  }
  EXPECT_GT(world.store->stats().evicted_blocks, 100u);
  EXPECT_GT(world.store->stats().copied_blocks, 0u);
  EXPECT_EQ(world.known(chain_of(0, 1)), 0u);
  // To be used does not make it younger.
  world.time->advance(174 * kHour);
  EXPECT_EQ(world.known(prefix), 0u);
}

TEST(SegmentStore, TwoProcessesShareADirectory) {
  StoreWorld a, b;
  b.share(a);
  a.open();
  b.open();
  EXPECT_EQ(a.options.folder.secret, b.options.folder.secret);
  const auto chain = chain_of(1, 6);
  a.put(std::span(chain).first(4));
  EXPECT_EQ(b.known(chain), 0u);
  b.store->maintain();
  Tier tier = Tier::kRam;
  EXPECT_EQ(b.get(chain, &tier), 4u);
  EXPECT_EQ(tier, Tier::kShared);
  a.put(std::span(chain).subspan(4));
  b.store->maintain();
  EXPECT_EQ(b.get(chain), 6u) << "a file that grew";
  a.store.reset();
  b.store->maintain();
  EXPECT_EQ(b.get(chain), 6u);
  const auto other = chain_of(2, 2);
  b.put(other);
  EXPECT_FALSE(b.publish(chain[0])) << "stored once, whoever did";
  a.open();
  EXPECT_EQ(a.get(other), 2u);
}

TEST(SegmentStore, TheSameWriterNumberTwiceIsNobodysLoss) {
  StoreWorld a, b;
  b.share(a);
  a.options.writer = b.options.writer = 42;
  a.open();
  b.open();
  const auto one = chain_of(1, 3), two = chain_of(2, 3);
  a.put(one);
  b.put(two);
  a.put(chain_of(3, 3));
  EXPECT_EQ(a.get(one), 3u);
  EXPECT_EQ(b.get(two), 3u);
  a.store->maintain();
  b.store->maintain();
  EXPECT_EQ(a.get(two), 3u);
  EXPECT_EQ(b.get(one), 3u);
}

TEST(SegmentStore, AModelOrTenantFindsOnlyItsOwn) {
  StoreWorld world;
  world.open();
  const auto chain = chain_of(1, 3);
  world.put(chain);
  StoreWorld other;
  other.share(world);
  other.options.model = namespace_of("other weights", "a-v1", "f", 4);
  other.open();
  EXPECT_EQ(other.known(chain), 0u);
  EXPECT_GE(other.store->stats().used_bytes, 4 * kPage) << "but the budget is the directory's";
}

// A process whose blocks lack a group of rows, or hold more tokens, under the same name of a model (kvcache-ai/Mooncake#2236,
// vllm-project/vllm#42895): neither promises the other's blocks, and both work.
TEST(SegmentStore, BlocksOfAnotherLayoutAreNobodysHit) {
  for (const bool fewer_bytes : {true, false}) {
    StoreWorld ours, theirs;
    theirs.share(ours);
    if (fewer_bytes) theirs.options.block_bytes -= 1000;
    if (!fewer_bytes) theirs.options.block_tokens *= 2;
    ours.open();
    theirs.open();
    const auto chain = chain_of(1, 4), later = chain_of(2, 4);
    EXPECT_EQ(theirs.put(chain), 4u);
    ours.store->maintain();
    EXPECT_EQ(ours.known(chain), 0u);
    EXPECT_EQ(theirs.put(later), 4u);
    ours.store->maintain();
    EXPECT_EQ(ours.known(later), 0u) << "of a file that grew";
    theirs.store.reset();
    ours.open();
    EXPECT_EQ(ours.known(chain), 0u) << "of a footer";
    EXPECT_EQ(ours.put(chain), 4u);
    EXPECT_EQ(ours.get(chain), 4u);
    theirs.open();
    EXPECT_EQ(theirs.get(chain), 4u);
    EXPECT_EQ(theirs.get(later), 4u);
  }
}

TEST(SegmentStore, EncryptedRowsOpenWithTheirKeyAlone) {
  StoreWorld world;
  world.options.cipher.emplace(tenant_secret({}, "key one"));
  world.open();
  const auto chain = chain_of(1, 3);
  world.put(chain);
  EXPECT_EQ(world.get(chain), 3u);
  const std::string rows = rows_of(chain[0]);
  for (const std::string& path : world.segments()) EXPECT_EQ(world.disk->content(path).find(rows.substr(100, 16)), std::string::npos);
  world.open();
  EXPECT_EQ(world.get(chain), 3u);
  world.options.cipher.emplace(tenant_secret({}, "key two"));
  world.open();
  EXPECT_EQ(world.get(chain), 0u);
  EXPECT_EQ(world.put(chain), 3u) << "a wrong key is a miss, and the block is stored again";
  world.options.cipher.reset();
  world.open();
  EXPECT_EQ(world.get(chain), 0u);
}

// As for object storage: a file is written once, with its footer, and made durable once.
TEST(SegmentStore, WholeSegmentsAreWrittenAtOnce) {
  StoreWorld a, b;
  b.share(a);
  a.options.whole_segments = b.options.whole_segments = true;
  a.options.tier = b.options.tier = Tier::kShared;
  a.open();
  b.open();
  std::map<std::string, int> num_syncs;
  a.disk->set_fault([&](const io::MemoryDisk::Access& access) -> Result<> {
    if (!StoreWorld::is_segment_path(access.path)) return {};
    if (access.op == io::MemoryDisk::Op::kSync) num_syncs[access.path] += 1;
    if (access.op == io::MemoryDisk::Op::kWrite) {
      EXPECT_EQ(num_syncs.count(access.path), 0u) << "nothing is appended to an object";
    }
    return {};
  });
  const auto chain = chain_of(1, 20), other = chain_of(2, 3);
  EXPECT_EQ(a.put(chain), 20u);
  EXPECT_EQ(a.put(other, 1), 3u);
  a.disk->set_fault(nullptr);
  EXPECT_EQ(num_syncs.size(), a.segments().size());
  EXPECT_EQ(a.segments().size(), 4u) << "three of at most eight blocks, one of another class";
  for (const auto& [path, count] : num_syncs) EXPECT_EQ(count, 1) << path;
  b.store->maintain();
  Tier tier = Tier::kRam;
  EXPECT_EQ(b.get(chain, &tier), 20u);
  EXPECT_EQ(tier, Tier::kShared);
  a.open();
  EXPECT_EQ(a.get(chain, &tier), 20u);
  EXPECT_EQ(tier, Tier::kShared) << "after a restart nobody knows whose it was";
  EXPECT_EQ(a.get(other), 3u);
  // One that did not get there leaves nothing behind.
  a.disk->set_fault([](const io::MemoryDisk::Access& access) -> Result<> {
    if (access.op == io::MemoryDisk::Op::kSync) return Error{Code::kIo, "timed out"};
    return {};
  });
  EXPECT_EQ(a.put(chain_of(3, 2)), 0u);
  a.disk->set_fault(nullptr);
  EXPECT_EQ(a.segments().size(), 4u);
  EXPECT_EQ(a.put(chain_of(3, 2)), 2u);
}

TEST(SegmentStore, AFetchThatIsGivenUpCountsAsLate) {
  StoreWorld world;
  world.open();
  const auto chain = chain_of(1, 5);
  world.put(chain);
  const auto fetch = world.store->fetch({}, chain, nullptr);
  ASSERT_EQ(fetch->state(), BlockFetch::State::kReady);
  fetch->pop();
  fetch->give_up();
  EXPECT_EQ(fetch->state(), BlockFetch::State::kEnded);
  fetch->give_up();
  EXPECT_EQ(world.missed(CacheMiss::kLate), 4u);
}

TEST(SegmentStore, WhatIsRetractedStaysAway) {
  StoreWorld world;
  world.open();
  const auto bad = chain_of(1, 3), good = chain_of(2, 3), late = chain_of(3, 1);
  world.put(bad, 0);
  world.put(good, 1);
  world.publish(late[0], 1);
  world.store->retract(bad);
  world.store->retract(late);
  EXPECT_EQ(world.known(bad), 0u);
  world.store->flush();
  EXPECT_EQ(world.known(late), 0u) << "it was only queued";
  world.store->maintain();
  world.open();
  EXPECT_EQ(world.known(bad), 0u);
  EXPECT_EQ(world.get(good), 3u);
  EXPECT_EQ(world.put(bad), 3u);
}

TEST(SegmentStore, OptionsAreChecked) {
  StoreWorld world;
  const auto refused = [&](auto change) {
    StoreWorld other;
    change(other.options);
    const Result<> opened = other.try_open();
    return !opened && opened.error().code == Code::kInvalidArgument;
  };
  EXPECT_TRUE(refused([](StoreOptions& o) { o.budget_bytes = 0; })) << "no tier without a cap";
  EXPECT_TRUE(refused([](StoreOptions& o) { o.budget_bytes = 5000; }));
  EXPECT_TRUE(refused([](StoreOptions& o) { o.classes.clear(); }));
  EXPECT_TRUE(refused([](StoreOptions& o) { o.classes[0].name = "../x"; }));
  EXPECT_TRUE(refused([](StoreOptions& o) { o.classes[0].seconds = 1; }));
  EXPECT_TRUE(refused([](StoreOptions& o) { o.block_bytes = int64_t{1} << 40; }));
}

// Machines that begin an empty bucket at the same moment, with nothing to keep each other out: they end with one secret, or they would never share.
TEST(StoreFolder, WithoutLocksAllHaveOneSecret) {
  io::MemoryDisk disk;
  std::atomic<int> num_looks = 0;
  std::atomic<bool> first_is_done = false;
  std::mutex one_at_a_time;
  disk.set_fault([&](const io::MemoryDisk::Access& access) -> Result<> {
    if (access.op == io::MemoryDisk::Op::kLock) return Error{Code::kUnsupported, "no locks"};
    if (access.op == io::MemoryDisk::Op::kCreate && access.path.starts_with("/cache/secret")) {
      num_looks += 1;
      EXPECT_TRUE(eventually([&] { return num_looks == 2; })) << "both have seen that there is none";
    }
    if (access.op == io::MemoryDisk::Op::kRename && access.path.starts_with("/cache/secret")) {
      const std::unique_lock lock(one_at_a_time);
      if (first_is_done.exchange(true)) std::this_thread::sleep_for(std::chrono::milliseconds(200));  // the second is written after the first
    }
    return {};
  });
  std::array<Result<StoreFolder>, 2> opened = {Error{Code::kInternal, ""}, Error{Code::kInternal, ""}};
  std::thread other([&] { opened[1] = open_store_folder(disk, "/cache"); });
  opened[0] = open_store_folder(disk, "/cache");
  other.join();
  disk.set_fault(nullptr);
  ASSERT_TRUE(opened[0] && opened[1]);
  EXPECT_EQ(num_looks, 2);
  EXPECT_EQ(opened[0]->secret, opened[1]->secret);
  EXPECT_EQ(read_store_folder(disk, "/cache")->secret, opened[0]->secret);
}

TEST(StoreFolder, IsMadeOnceAndBelongsToOneFormat) {
  io::MemoryDisk disk;
  const auto first = open_store_folder(disk, "/a/cache");
  ASSERT_TRUE(first) << first.error().message;
  const auto again = open_store_folder(disk, "/a/cache");
  ASSERT_TRUE(again);
  EXPECT_EQ(first->secret, again->secret);
  EXPECT_FALSE(read_store_folder(disk, "/a"));
  ASSERT_TRUE(write_mark(disk, "/a/cache", 12345));
  EXPECT_EQ(open_store_folder(disk, "/a/cache")->mark_s, 12345);
  ASSERT_TRUE(disk.put("/a/cache/deepinfer-cache", "deepinfer cache 1\nkeys 00\n"));
  EXPECT_EQ(open_store_folder(disk, "/a/cache").error().code, Code::kUnsupported);
  ASSERT_TRUE(disk.put("/mine/letters", "x"));
  EXPECT_EQ(open_store_folder(disk, "/mine").error().code, Code::kUnsupported) << "somebody's own files";
}

}  // namespace
}  // namespace deepinfer::kv
