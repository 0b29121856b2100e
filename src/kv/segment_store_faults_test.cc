// What can go wrong under a segment store. Every test ends with the same claim: whatever was acknowledged and is not on the damaged place comes
// out as it went in, nothing else ever comes out, and the store goes on.
#include <gtest/gtest.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>

#include "eventually.h"
#include "gate.h"
#include "kv/segment_format.h"
#include "kv/store_world.h"
#include "sanitized.h"

namespace deepinfer::kv {
namespace {

using Op = io::MemoryDisk::Op;
using Access = io::MemoryDisk::Access;

constexpr size_t kStep = kSanitized ? 7 : 1;  // of the tests of every byte and bit

bool is_segment(const Access& access) { return StoreWorld::is_segment_path(access.path); }

TEST(StoreFaults, NoSpaceCostsWritesNothingElse) {
  StoreWorld world;
  world.open();
  const auto before = chain_of(1, 8);
  world.put(before);
  world.disk->set_capacity(world.disk->allocated_bytes() + 3 * kPage);  // far below the budget: others filled the disk
  for (int i = 10; i < 30; ++i) world.put(chain_of(i, 4));
  world.store->maintain();
  EXPECT_GT(world.store->stats().dropped_blocks + world.store->stats().evicted_blocks, 0u);
  for (int i = 10; i < 30; ++i) world.get(chain_of(i, 4));
  world.disk->set_capacity(UINT64_MAX);
  world.time->advance(60);
  world.store->maintain();
  const auto after = chain_of(2, 4);
  EXPECT_EQ(world.put(after), 4u) << "writes again";
  EXPECT_EQ(world.get(after), 4u);
  world.open();
  EXPECT_EQ(world.get(after), 4u);
}

TEST(StoreFaults, AFailingDiskMakesItReadOnlyAndItComesBack) {
  StoreWorld world;
  world.open();
  const auto chain = chain_of(1, 6);
  world.put(chain);
  world.disk->set_fault([](const Access& access) -> Result<> {
    if (access.op == Op::kWrite || access.op == Op::kCreate) return Error{Code::kIo, access.path + ": Input/output error"};
    return {};
  });
  for (int i = 10; i < 16; ++i) EXPECT_EQ(world.put(chain_of(i, 2)), 0u);
  EXPECT_TRUE(world.store->stats().read_only);
  ASSERT_EQ(world.log.size(), 1u) << "told once";
  EXPECT_NE(world.log[0].find("read-only"), std::string::npos);
  EXPECT_EQ(world.get(chain), 6u);
  world.disk->set_fault(nullptr);
  EXPECT_FALSE(world.publish(chain_of(20, 1)[0])) << "not before it has tried again";
  world.time->advance(31);
  world.store->maintain();
  EXPECT_EQ(world.put(chain_of(20, 3)), 3u);
  EXPECT_FALSE(world.store->stats().read_only);
}

TEST(StoreFaults, AReadOnlyRemountServesWhatIsThere) {
  StoreWorld world;
  world.open();
  const auto chain = chain_of(1, 6);
  world.put(chain);
  const auto refuse = [](const Access& access) -> Result<> {
    const bool changes = access.op == Op::kWrite || access.op == Op::kCreate || access.op == Op::kRename || access.op == Op::kRemove ||
                         access.op == Op::kMakeFolder || access.op == Op::kTouch || access.op == Op::kLock;
    if (changes) return Error{Code::kUnavailable, access.path + ": Read-only file system"};
    return {};
  };
  world.disk->set_fault(refuse);
  EXPECT_EQ(world.put(chain_of(2, 2)), 0u);
  EXPECT_TRUE(world.store->stats().read_only);
  world.store->maintain();
  EXPECT_EQ(world.get(chain), 6u);
  ASSERT_EQ(world.log.size(), 1u);
  EXPECT_NE(world.log[0].find("read-only for"), std::string::npos);
  world.disk->set_fault(nullptr);
  world.time->advance(31);
  world.store->maintain();
  EXPECT_EQ(world.put(chain_of(3, 2)), 2u);
  ASSERT_EQ(world.log.size(), 2u) << "who was told of the one is told of the other";
  EXPECT_NE(world.log[1].find("writes again"), std::string::npos);
}

TEST(StoreFaults, AnUnreadableBlockIsAMissOnce) {
  StoreWorld world;
  world.open();
  const auto chain = chain_of(1, 6);
  world.put(chain);
  world.disk->set_fault([](const Access& access) -> Result<> {
    if (access.op == Op::kRead && is_segment(access)) return Error{Code::kIo, access.path + ": Input/output error"};
    return {};
  });
  EXPECT_EQ(world.get(chain), 0u);
  EXPECT_EQ(world.missed(CacheMiss::kIo), 6u);
  world.disk->set_fault(nullptr);
  EXPECT_EQ(world.known(chain), 0u) << "what failed is not promised again";
  EXPECT_EQ(world.put(chain), 6u);
  EXPECT_EQ(world.get(chain), 6u);
}

// A write that stops at any byte: the blocks of the batch are lost, those before it are not, and the next ones are written.
TEST(StoreFaults, AWriteTornAtEveryByteOfARecord) {
  constexpr int64_t kSmall = 600;  // rows that fill a part of a page
  for (size_t torn = 0; torn <= kPage; torn += kStep) {
    StoreWorld world;
    world.options.block_bytes = kSmall;
    world.open();
    const auto chain = chain_of(1, 3);
    world.put(std::span(chain).first(1));
    world.disk->set_fault([torn](const Access& access) -> Result<> {
      if (access.op != Op::kWrite || !is_segment(access) || access.length == 0) return {};
      *access.torn = torn;
      return Error{Code::kIo, "Input/output error"};
    });
    ASSERT_EQ(world.put(std::span(chain).subspan(1, 1)), 0u) << torn;
    world.disk->set_fault(nullptr);
    ASSERT_EQ(world.put(std::span(chain).subspan(2)), 1u) << torn;
    ASSERT_TRUE(world.gets(chain[0]) && world.gets(chain[2])) << torn;
    world.crash();
    world.open();
    ASSERT_TRUE(world.gets(chain[0]) && world.gets(chain[2])) << torn;
    ASSERT_FALSE(world.gets(chain[1])) << torn;
  }
}

// The machine stops in the middle of a write: whatever part of it reached the disk, only whole records come back.
TEST(StoreFaults, ACrashThatKeepsAnyPartOfTheLastWrite) {
  const size_t record = kRecordPages * kPage;
  for (size_t kept = 0; kept <= 2 * record; kept += 97) {
    StoreWorld world;
    world.open();
    const auto chain = chain_of(1, 3);
    world.put(std::span(chain).first(1));
    world.disk->set_fault([](const Access& access) -> Result<> {
      if (access.op == Op::kSync && is_segment(access)) return Error{Code::kIo, "gone"};
      if (access.op == Op::kWrite && access.length == 0) return Error{Code::kIo, "gone"};  // the truncation after it
      return {};
    });
    world.publish(chain[1]);
    world.publish(chain[2]);
    world.store->flush();
    ASSERT_FALSE(world.knows(chain[1]));
    world.crash(kept);
    world.open();
    ASSERT_TRUE(world.gets(chain[0])) << kept;
    const bool first = world.gets(chain[1]), second = world.gets(chain[2]);  // compares the bytes of what comes
    ASSERT_EQ(first, kept >= kRecordHeaderBytes + kBlockBytes) << kept;
    ASSERT_EQ(second, kept >= record + kRecordHeaderBytes + kBlockBytes) << kept;
  }
}

// Bit rot in every part of a sealed file, before the start and while it runs.
TEST(StoreFaults, ABitFlippedAnywhere) {
  StoreWorld world;
  world.open();
  const auto chain = chain_of(1, 4);
  world.put(chain);
  world.open();  // sealed
  ASSERT_EQ(world.segments().size(), 1u);
  const std::string path = world.segments()[0], content = world.disk->content(path);
  Rng rng(1);
  std::vector<uint64_t> bits;
  for (uint64_t bit = 0; bit < 8 * kSegmentHeaderBytes; bit += 5) bits.push_back(bit);
  for (uint64_t bit = 8 * kPage; bit < 8 * (kPage + kRecordHeaderBytes); ++bit) bits.push_back(bit);
  for (uint64_t bit = 8 * (content.size() - 2 * kPage); bit < 8 * (content.size() - 2 * kPage + 170); ++bit) bits.push_back(bit);
  for (uint64_t bit = 8 * (content.size() - kPage); bit < 8 * (content.size() - kPage + kTrailerBytes); ++bit) bits.push_back(bit);
  for (int i = 0; i < 500; ++i) bits.push_back(rng.below(8 * content.size()));
  for (size_t i = 0; i < bits.size(); i += kStep) {
    const uint64_t bit = bits[i];
    const bool while_open = rng.below(2) == 0;
    ASSERT_TRUE(world.disk->put(path, content));
    if (while_open) world.open();
    world.disk->flip_bit(path, bit);
    if (!while_open) world.open();
    size_t num = 0;
    for (const BlockKey& key : chain) num += world.gets(key);  // each compared with what was written
    ASSERT_GE(num, bit < 8 * kPage ? 0u : 3u) << "one flipped bit of a record costs one block at most; bit " << bit;
  }
}

TEST(StoreFaults, ATruncatedFile) {
  for (size_t pages = 0; pages < 12; ++pages) {
    for (const size_t odd : {0u, 1u, 100u, 4095u}) {
      StoreWorld world;
      world.open();
      const auto chain = chain_of(1, 4);
      world.put(chain);
      world.open();
      const std::string path = world.segments()[0], content = world.disk->content(path);
      const bool while_open = (pages + odd) % 2 == 0;
      if (!while_open) world.store.reset();
      const size_t size = std::min(content.size(), pages * kPage + odd);
      ASSERT_TRUE(world.disk->put(path, std::string_view(content).substr(0, size)));
      if (!while_open) world.open();
      const size_t num = world.get(chain);
      const size_t whole = size <= kPage ? 0 : std::min<size_t>(4, (size - kPage + 2 * kPage - kRecordHeaderBytes - kBlockBytes) / (2 * kPage));
      EXPECT_EQ(num, whole) << size;
      EXPECT_EQ(world.put(chain), 4u);
      EXPECT_EQ(world.get(chain), 4u);
    }
  }
}

TEST(StoreFaults, FilesWithOurNameThatAreNotOurs) {
  StoreWorld world;
  world.open();
  const auto chain = chain_of(1, 4);
  world.put(chain);
  world.store.reset();
  const std::string path = world.segments()[0], content = world.disk->content(path);
  const std::string folder = path.substr(0, path.rfind('/') + 1);
  ASSERT_TRUE(world.disk->put(folder + "chat.1.00000000000000aa.000001.seg", ""));
  std::string newer = content;
  newer[4] = 9;
  ASSERT_TRUE(world.disk->put(folder + "chat.1.00000000000000ab.000001.seg", newer));
  ASSERT_TRUE(world.disk->put(folder + "chat.1.00000000000000ac.000001.seg", std::string(100'000, '\7')));
  // Another tenant's segment, renamed into ours.
  const std::string other_folder = "/cache/" + folder_name(world.options.model) + "/" + folder_name(tenant_folder({}, "other")) + "/";
  ASSERT_TRUE(world.disk->put(other_folder + "chat.1.00000000000000ae.000001.seg", content));
  world.open();
  EXPECT_EQ(world.get(chain), 4u);
  EXPECT_EQ(world.store->stats().rejected_segments, 4u);
  EXPECT_EQ(world.segments().size(), 5u) << "left alone, within the budget";
  for (const std::string& segment : world.segments()) {
    if (segment != path) continue;
    ASSERT_TRUE(world.disk->remove(segment));
  }
  world.store->maintain();
  EXPECT_EQ(world.get(chain), 0u) << "the other tenant's copy answers for nobody";
}

TEST(StoreFaults, ARemovedFileIsForgotten) {
  StoreWorld world;
  world.open();
  const auto chain = chain_of(1, 4), other = chain_of(2, 2);
  world.put(chain);
  world.open();
  ASSERT_TRUE(world.disk->remove(world.segments()[0]));
  EXPECT_EQ(world.get(chain), 0u);
  EXPECT_EQ(world.known(chain), 0u) << "no phantom hits";
  EXPECT_EQ(world.store->stats().vanished_segments, 1u);
  EXPECT_EQ(world.put(other), 2u);
  EXPECT_EQ(world.get(other), 2u);
}

// Not seen is not gone: a look at the directory that fails somewhere changes nothing.
TEST(StoreFaults, WhatCannotBeLookedAtIsNotForgotten) {
  StoreWorld world;
  world.open();
  const auto chain = chain_of(1, 10), other = chain_of(2, 3);
  world.put(chain);
  const std::string segment = world.segments().back(), tenant = segment.substr(0, segment.rfind('/')), model = tenant.substr(0, tenant.rfind('/'));
  const uint64_t used = world.store->stats().used_bytes;
  for (const auto& [op, path] : {std::pair(Op::kList, std::string("/cache")), {Op::kList, model}, {Op::kList, tenant}, {Op::kStatus, segment}}) {
    SCOPED_TRACE(path);
    world.disk->set_fault([&, o = op, p = path](const Access& access) -> Result<> {
      if (access.op == o && access.path == p) return Error{Code::kIo, p + ": Too many open files"};
      return {};
    });
    world.store->maintain();
    EXPECT_EQ(world.get(chain), 10u);
    EXPECT_EQ(world.store->stats().vanished_segments, 0u);
    EXPECT_GE(world.store->stats().used_bytes, used);
  }
  world.disk->set_fault(nullptr);
  EXPECT_EQ(world.put(other), 3u);
  EXPECT_EQ(world.segments().size(), 2u) << "appended to, not begun anew";
  world.open();
  EXPECT_EQ(world.get(chain), 10u);
}

void remove_directory(const StoreWorld& world) {
  for (const std::string& path : world.disk->files()) (void)world.disk->remove(path);
  const std::string model = "/cache/" + folder_name(world.options.model), tenant = model + "/" + folder_name(world.tag().tenant);
  for (const std::string& folder : {tenant, model, std::string("/cache/writers"), std::string("/cache")}) (void)world.disk->remove(folder);
  ASSERT_FALSE(world.disk->status("/cache"));
}

// Before any of the accesses of a tenant's first block: at the latest after maintenance it is a directory like any other.
TEST(StoreFaults, TheDirectoryRemovedAtAnyMomentOfATenantsFirstBlock) {
  const auto chain = chain_of(1, 4);
  int64_t num_accesses = 1;
  for (int64_t moment = 0; moment < num_accesses; ++moment) {
    StoreWorld world;
    world.open();
    remove_directory(world);  // so that all of it is made again
    const Digest256 secret = world.options.folder.secret;
    int64_t seen = 0;
    world.disk->set_fault([&](const Access&) -> Result<> {
      if (seen++ == moment) {
        const auto saved = seen;
        remove_directory(world);  // counts accesses of its own
        seen = saved;
      }
      return {};
    });
    world.put(chain);
    world.disk->set_fault(nullptr);
    num_accesses = std::max(num_accesses, seen);
    world.store->maintain();
    EXPECT_EQ(world.put(chain), 4u) << moment;
    world.open();
    EXPECT_EQ(world.options.folder.secret, secret) << moment;
    EXPECT_EQ(world.get(chain), 4u) << moment;
  }
  EXPECT_GT(num_accesses, 10);
}

TEST(StoreFaults, TheDirectoryRemovedWhileServing) {
  StoreWorld world;
  world.open();
  const auto chain = chain_of(1, 4);
  world.put(chain);
  remove_directory(world);
  world.store->maintain();
  EXPECT_EQ(world.get(chain), 0u);
  EXPECT_EQ(world.put(chain), 4u);
  EXPECT_EQ(world.get(chain), 4u);
  const Digest256 secret = world.options.folder.secret;
  world.open();
  EXPECT_EQ(world.options.folder.secret, secret) << "made again as it was";
  EXPECT_EQ(world.get(chain), 4u);
}

TEST(StoreFaults, ClockJumpsNeitherWipeNorResurrect) {
  constexpr int64_t kDay = 86'400;
  for (const int64_t jump : {10 * kDay, -10 * kDay}) {
    StoreWorld world;
    world.open();
    const auto kept = chain_of(1, 3), old = chain_of(2, 3);
    world.put(old, 1);
    world.time->advance(80 * 3600);
    world.store->maintain();
    ASSERT_EQ(world.known(old), 0u);
    world.put(kept, 1);
    world.time->wall += jump;  // while it runs
    world.store->maintain();
    EXPECT_EQ(world.get(kept), 3u) << jump;
    EXPECT_EQ(world.known(old), 0u) << jump;
    EXPECT_EQ(world.store->stats().clock_jumps, 1u);
    world.time->wall -= jump;
    world.store->maintain();
    EXPECT_EQ(world.get(kept), 3u) << jump;

    world.time->advance(61);
    world.store->maintain();  // the mark
    world.time->wall += jump;  // over a restart
    world.open();
    world.store->maintain();
    world.time->advance(100);
    world.store->maintain();
    EXPECT_EQ(world.known(old), 0u) << jump;
    world.time->wall -= jump;  // somebody sets it right
    world.open();
    world.store->maintain();
    EXPECT_EQ(world.get(kept), 3u) << "not wiped by a jump of " << jump;
    EXPECT_EQ(world.known(old), 0u) << jump;
  }
}

// A clock that is really ten days on: after the hour of doubt the old blocks go.
TEST(StoreFaults, AnHonestPauseEndsInExpiry) {
  StoreWorld world;
  world.open();
  world.put(chain_of(1, 3), 1);
  world.time->advance(61);
  world.store->maintain();
  world.store.reset();
  world.time->advance(10 * 86'400);
  world.open();
  world.store->maintain();
  EXPECT_EQ(world.known(chain_of(1, 3)), 0u) << "not served from the first moment";
  EXPECT_EQ(world.segments().size(), 1u);
  world.time->advance(StoreClock::kGraceSeconds);
  world.store->maintain();
  EXPECT_EQ(world.segments().size(), 0u);
}

// A machine that starts with a clock ten days ahead, which is set right while it serves.
TEST(StoreFaults, AWrongClockThatIsSetRightWipesNothing) {
  StoreWorld world;
  world.open();
  const auto kept = chain_of(1, 3), meanwhile = chain_of(2, 3);
  world.put(kept, 1);
  world.time->advance(61);
  world.store->maintain();  // the mark
  world.store.reset();
  world.time->wall += 10 * 86'400;
  world.open();
  world.store->maintain();
  EXPECT_EQ(world.known(kept), 0u) << "it may be an honest pause";
  EXPECT_EQ(world.put(meanwhile, 1), 3u);
  world.time->wall -= 10 * 86'400;
  for (int hour = 0; hour < 5; ++hour) {
    world.store->maintain();
    world.time->advance(StoreClock::kGraceSeconds);
  }
  EXPECT_EQ(world.get(meanwhile), 3u);
  world.open();
  EXPECT_EQ(world.get(kept), 3u);
  EXPECT_EQ(world.get(meanwhile), 3u);
  world.time->advance(80 * 3600);
  world.store->maintain();
  EXPECT_EQ(world.known(kept), 0u);
  EXPECT_EQ(world.segments().size(), 0u);
}

// Threads, real time.
struct BackgroundWorld : StoreWorld {
  BackgroundWorld() {
    options.background = true;
    options.num_fetch_threads = 2;
  }
  bool wait_known(std::span<const BlockKey> chain, size_t count) {
    return eventually([&] { return known(chain) >= count; });
  }
};

// Waits for fetches as an engine does.
class Waiter {
 public:
  std::function<void()> wake() {
    return [this] {
      const std::lock_guard lock(mu_);
      changes_ += 1;
      changed_.notify_all();
    };
  }
  // Takes what comes until the end or the deadline; returns how many blocks came.
  size_t take(BlockFetch& fetch, std::span<const BlockKey> chain, std::chrono::milliseconds limit) {
    const auto deadline = std::chrono::steady_clock::now() + limit;
    size_t count = 0;
    for (;;) {
      uint64_t seen;
      {
        const std::lock_guard lock(mu_);
        seen = changes_;
      }
      const BlockFetch::State state = fetch.state();
      if (state == BlockFetch::State::kReady) {
        const std::string expected = rows_of(chain[count++]);
        EXPECT_EQ(std::memcmp(fetch.front().rows.data(), expected.data(), expected.size()), 0);
        fetch.pop();
        continue;
      }
      if (state == BlockFetch::State::kEnded) return count;
      std::unique_lock lock(mu_);
      if (!changed_.wait_until(lock, deadline, [&] { return changes_ != seen; })) {
        lock.unlock();
        fetch.give_up();
        return count;
      }
    }
  }

 private:
  std::mutex mu_;
  std::condition_variable changed_;
  uint64_t changes_ = 0;
};

TEST(StoreFaults, InTheBackgroundItWritesAndFetches) {
  BackgroundWorld world;
  world.open();
  const auto chain = chain_of(1, 30);
  for (const BlockKey& key : chain) world.publish(key);
  ASSERT_TRUE(world.wait_known(chain, 30));
  Waiter waiter;
  for (int i = 0; i < 5; ++i) EXPECT_EQ(waiter.take(*world.store->fetch({}, chain, waiter.wake()), chain, std::chrono::milliseconds(kPatienceMs)), 30u);
  EXPECT_GT(world.store->find(chain).bytes_per_s, 0.0);
  world.store.reset();
  world.open();
  EXPECT_EQ(waiter.take(*world.store->fetch({}, chain, waiter.wake()), chain, std::chrono::milliseconds(kPatienceMs)), 30u);
}

TEST(StoreFaults, AFlushWaitsForAllThatWasPublished) {
  BackgroundWorld world;
  world.open();
  for (int i = 0; i < 60; ++i) {
    const auto chain = chain_of(i, 1 + static_cast<size_t>(i % 7));
    for (const BlockKey& key : chain) ASSERT_TRUE(world.publish(key));
    world.store->flush();
    ASSERT_EQ(world.known(chain), chain.size());
  }
}

TEST(StoreFaults, TheEndWritesWhatWasPublished) {
  for (int i = 0; i < 20; ++i) {
    BackgroundWorld world;
    world.open();
    const auto chain = chain_of(i, 30);
    for (const BlockKey& key : chain) ASSERT_TRUE(world.publish(key));
    world.open();
    ASSERT_EQ(world.known(chain), 30u);
  }
}

// A write that takes long holds the memory of its own batch; what was written before it gave its memory back, and more can come.
TEST(StoreFaults, MemoryComesFreeBatchByBatch) {
  BackgroundWorld world;
  world.options.block_bytes = 3 << 20;
  world.options.segment_bytes = world.options.budget_bytes = uint64_t{1} << 30;
  world.options.backlog_bytes = 60 << 20;  // 19 records, of which five are written together
  world.open();
  std::mutex mu;
  std::condition_variable changed;
  int num_writes = 0, num_allowed = 1;
  world.disk->set_fault([&](const Access& access) -> Result<> {
    if (access.op != Op::kWrite || !is_segment(access) || access.length <= kPage) return {};
    std::unique_lock lock(mu);
    num_writes += 1;
    changed.notify_all();
    changed.wait(lock, [&] { return num_writes <= num_allowed; });
    return {};
  });
  const auto chain = chain_of(1, 60);
  size_t num_published = 0;
  EXPECT_TRUE(eventually([&] {
    while (num_published < chain.size() && world.publish(chain[num_published])) num_published += 1;
    const std::lock_guard lock(mu);
    return num_writes > num_allowed && world.store->stats().backlog_bytes == 19 * record_pages(3 << 20) * kPage;
  }));
  EXPECT_GT(num_published, 19u) << "the first batch is done, the second hangs";
  EXPECT_LE(num_published, 19u + 5u);
  EXPECT_EQ(world.known(chain), num_published - 19);
  {
    const std::lock_guard lock(mu);
    num_allowed = INT32_MAX;
  }
  changed.notify_all();
  world.store->flush();
  EXPECT_EQ(world.known(chain), num_published);
}

TEST(StoreFaults, WhatIsRetractedWhileItIsWrittenStaysAway) {
  StoreWorld world;
  world.open();
  const auto bad = chain_of(1, 3), good = chain_of(2, 3);
  bool retracted = false;
  world.disk->set_fault([&](const Access& access) -> Result<> {
    if (access.op == Op::kSync && is_segment(access) && !std::exchange(retracted, true)) world.store->retract(bad);
    return {};
  });
  EXPECT_EQ(world.put(bad), 0u);
  EXPECT_TRUE(retracted);
  world.store->maintain();
  EXPECT_EQ(world.put(good), 3u);
  world.open();
  EXPECT_EQ(world.known(bad), 0u);
  EXPECT_EQ(world.get(good), 3u);
  EXPECT_EQ(world.put(bad), 3u) << "computed again";
}

TEST(StoreFaults, AReadThatNeverReturnsIsLateAndHoldsNobodyUp) {
  Gate gate;
  BackgroundWorld world;
  world.open();
  const auto chain = chain_of(1, 4), other = chain_of(2, 4);
  for (const BlockKey& key : chain) world.publish(key);
  for (const BlockKey& key : other) world.publish(key);
  ASSERT_TRUE(world.wait_known(chain, 4) && world.wait_known(other, 4));
  world.disk->set_fault([&](const Access& access) -> Result<> {
    if (access.op == Op::kRead && is_segment(access)) gate.stop_first();
    return {};
  });
  Waiter waiter;
  const auto hung = world.store->fetch({}, chain, waiter.wake());
  ASSERT_TRUE(eventually([&] { return gate.num_stopped() == 1; }));
  EXPECT_EQ(waiter.take(*hung, chain, std::chrono::milliseconds(50)), 0u);
  EXPECT_EQ(world.missed(CacheMiss::kLate), 4u);
  Waiter second;
  EXPECT_EQ(second.take(*world.store->fetch({}, other, second.wake()), other, std::chrono::milliseconds(kPatienceMs)), 4u) << "the other thread serves";
  EXPECT_TRUE(world.publish(chain_of(3, 1)[0])) << "and writing goes on";
  ASSERT_TRUE(world.wait_known(chain_of(3, 1), 1));
  gate.open();
  EXPECT_EQ(second.take(*world.store->fetch({}, chain, second.wake()), chain, std::chrono::milliseconds(kPatienceMs)), 4u) << "it came back";
}

// When all threads are held the store knows nothing and says so, until one comes back.
TEST(StoreFaults, ReadsThatAllHangTurnItOff) {
  Gate gate;
  BackgroundWorld world;
  world.options.hang_ms = 30;
  world.open();
  const auto chain = chain_of(1, 4);
  for (const BlockKey& key : chain) world.publish(key);
  ASSERT_TRUE(world.wait_known(chain, 4));
  world.disk->set_fault([&](const Access& access) -> Result<> {
    if (access.op == Op::kRead && is_segment(access)) gate.wait();
    return {};
  });
  Waiter waiter;
  const auto one = world.store->fetch({}, chain, waiter.wake());
  EXPECT_TRUE(eventually([&] { return gate.num_stopped() == 1; }));
  std::this_thread::sleep_for(std::chrono::milliseconds(60));
  EXPECT_EQ(world.known(chain), 4u) << "the other thread serves";
  const auto two = world.store->fetch({}, chain, waiter.wake());
  EXPECT_TRUE(eventually([&] { return world.known(chain) == 0; }));
  EXPECT_EQ(gate.num_stopped(), 2);
  EXPECT_TRUE(world.store->stats().reads_off);
  ASSERT_EQ(world.log.size(), 1u);
  EXPECT_NE(world.log[0].find("reads do not return"), std::string::npos);
  EXPECT_EQ(world.known(chain), 0u);
  EXPECT_EQ(world.log.size(), 1u) << "told once";
  gate.open();
  EXPECT_TRUE(world.wait_known(chain, 4));
  EXPECT_FALSE(world.store->stats().reads_off);
  EXPECT_EQ(world.log.size(), 2u);
  EXPECT_EQ(waiter.take(*one, chain, std::chrono::milliseconds(kPatienceMs)), 4u);
}

// What a request has matched is in use from then on: room for what is stored meanwhile is made elsewhere.
TEST(StoreFaults, WhatIsBeingFetchedIsNotEvicted) {
  Gate gate;
  BackgroundWorld world;
  world.options.budget_bytes = uint64_t{1} << 20;
  world.options.num_fetch_threads = 1;
  world.open();
  const auto old = chain_of(1, 30);  // in several files
  for (const BlockKey& key : old) ASSERT_TRUE(world.publish(key));
  ASSERT_TRUE(world.wait_known(old, 30));
  for (int32_t i = 2; i < 12; ++i) {
    world.time->advance(600);
    ASSERT_TRUE(world.publish(chain_of(i, 1)[0]));
    ASSERT_TRUE(world.wait_known(chain_of(i, 1), 1));
  }
  world.disk->set_fault([&](const Access& access) -> Result<> {
    if (access.op == Op::kRead && is_segment(access)) gate.stop_first();  // hot blocks are read and copied meanwhile
    return {};
  });
  Waiter waiter;
  const auto fetch = world.store->fetch({}, old, waiter.wake());
  ASSERT_TRUE(eventually([&] { return gate.num_stopped() == 1; }));  // in its first file; the others are not open yet
  for (int32_t i = 100; i < 300 && !HasFailure(); ++i) {
    world.time->advance(10);
    const auto chain = chain_of(i, 2);
    for (const BlockKey& key : chain) EXPECT_TRUE(world.publish(key));
    EXPECT_TRUE(world.wait_known(chain, 2));
  }
  EXPECT_GT(world.store->stats().evicted_segments, 20u);
  gate.open();
  EXPECT_EQ(waiter.take(*fetch, old, std::chrono::milliseconds(kPatienceMs)), 30u);
}

TEST(StoreFaults, ASlowConsumerBoundsWhatIsRead) {
  BackgroundWorld world;
  world.options.staging_bytes = 1;  // the least: a buffer a thread and one more
  world.options.block_bytes = 3 << 20;
  world.options.segment_bytes = 64 << 20;
  world.open();
  const auto chain = chain_of(1, 8);
  for (const BlockKey& key : chain) {
    while (!world.publish(key)) std::this_thread::yield();
  }
  ASSERT_TRUE(world.wait_known(chain, 8));
  Waiter waiter;
  const auto fetch = world.store->fetch({}, chain, waiter.wake());
  EXPECT_TRUE(eventually([&] { return world.store->stats().hit_blocks_disk >= 3; }));
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_LE(world.store->stats().hit_blocks_disk, 3u) << "three buffers of one block";
  size_t count = 0;
  while (fetch->state() != BlockFetch::State::kEnded) {
    if (fetch->state() != BlockFetch::State::kReady) {
      std::this_thread::yield();
      continue;
    }
    fetch->pop();
    count += 1;
  }
  EXPECT_EQ(count, 8u);
}

// Random faults of every kind at once, from a seed; then peace, and everything that is known can be had.
TEST(StoreFaults, RandomFaults) {
  for (uint64_t seed = 0; seed < 30; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    StoreWorld world(uint64_t{2} << 20);
    world.open();
    Rng rng(seed), dice(seed + 1000);
    std::vector<std::vector<BlockKey>> chains;
    for (int i = 0; i < 60; ++i) chains.push_back(chain_of(i, 1 + rng.below(8)));
    const auto fault = [&dice](const Access& access) -> Result<> {
      if (dice.below(12) != 0) return {};
      if (access.torn != nullptr) *access.torn = dice.below(access.length + 1);
      return Error{dice.below(3) == 0 ? Code::kResourceExhausted : Code::kIo, access.path + ": fault"};
    };
    for (int i = 0; i < 300; ++i) {
      world.disk->set_fault(rng.below(3) == 0 ? io::MemoryDisk::Fault() : fault);
      const auto& chain = chains[rng.below(chains.size())];
      switch (rng.below(8)) {
        case 0: world.store->maintain(); break;
        case 1: world.time->advance(static_cast<int64_t>(rng.below(4000))); break;
        case 2:
          if (rng.below(4) != 0) break;
          world.crash(rng.below(9000));
          world.open();
          break;
        case 3:
        case 4: world.get(chain); break;
        default: world.put(chain, static_cast<uint8_t>(rng.below(2)));
      }
      if (HasFatalFailure()) return;
    }
    world.disk->set_fault(nullptr);
    world.time->advance(100);
    world.store->maintain();
    ASSERT_LE(world.disk->allocated_bytes(), world.options.budget_bytes);
    for (const auto& chain : chains) {
      world.time->advance(1000);  // else what was just written may be what goes
      ASSERT_EQ(world.put(chain), chain.size()) << (world.log.empty() ? "" : world.log.back());
      ASSERT_EQ(world.get(chain), chain.size());
    }
  }
}

}  // namespace
}  // namespace deepinfer::kv
