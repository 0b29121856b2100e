// Stores that share a directory and an index: what one tells and another finds, and that an index which is down, slow, emptied or full of
// rubbish changes nothing but what is known.
#include <gtest/gtest.h>

#include <atomic>

#include "eventually.h"
#include "gate.h"
#include "io/memory_key_values.h"
#include "kv/block_place.h"
#include "kv/index_client.h"
#include "kv/store_world.h"

namespace deepinfer::kv {
namespace {

// Two processes; `b` looks at the directory only when a test says so.
struct TwoStores {
  TwoStores() {
    b.share(a);
    a.options.index = b.options.index = index;
    a.open();
    b.open();
  }
  // What b knows of the chain after it asked.
  size_t ask(std::span<const BlockKey> chain) {
    const auto lookup = b.store->look_up({chain.begin(), chain.end()}, nullptr);
    if (lookup != nullptr) {
      EXPECT_TRUE(lookup->done());
    }
    return b.known(chain);
  }
  CacheStats::Index stats() const { return b.store->stats().index; }

  std::shared_ptr<io::MemoryKeyValues> index = std::make_shared<io::MemoryKeyValues>();
  StoreWorld a, b;
};

TEST(SharedIndex, WhatOneWroteAnotherFindsWithoutLooking) {
  TwoStores two;
  const auto chain = chain_of(1, 6);
  two.a.put(chain);
  EXPECT_EQ(two.index->items().size(), 6u);
  EXPECT_EQ(two.b.known(chain), 0u);
  two.a.time->advance(77);
  EXPECT_EQ(two.ask(chain), 6u);
  EXPECT_EQ(two.b.store->find(chain).age_s, 77);
  EXPECT_EQ(two.stats().found_blocks, 6u);
  Tier tier = Tier::kRam;
  EXPECT_EQ(two.b.get(chain, &tier), 6u);
  EXPECT_EQ(tier, Tier::kShared);
  EXPECT_FALSE(two.b.publish(chain[0])) << "stored once, whoever did";
  EXPECT_EQ(two.ask(chain_of(2, 3)), 0u);
  EXPECT_EQ(two.stats().wrong_places, 0u);
}

TEST(SharedIndex, ALaterLookAtTheDirectoryAgrees) {
  TwoStores two;
  const auto chain = chain_of(1, 6), more = chain_of(2, 30);
  two.a.put(chain);
  EXPECT_EQ(two.ask(std::span(chain).first(3)), 3u);
  two.b.store->maintain();
  EXPECT_EQ(two.b.get(chain), 6u) << "the file's other blocks too";
  two.a.put(more);  // seals files along the way
  EXPECT_EQ(two.ask(more), 30u);
  two.b.store->maintain();
  EXPECT_EQ(two.b.get(more), 30u);
  EXPECT_EQ(two.b.store->stats().num_blocks, 36u);
  EXPECT_NEAR(static_cast<double>(two.b.store->stats().used_bytes), static_cast<double>(two.a.disk->allocated_bytes()), kRecordPages * kPage);
  EXPECT_EQ(two.b.store->stats().vanished_segments, 0u);
  two.a.store.reset();
  two.b.store->maintain();
  EXPECT_EQ(two.b.get(chain), 6u);
}

TEST(SharedIndex, ItForgetsWithTheRetention) {
  TwoStores two;
  two.a.put(chain_of(1, 1), 0);
  two.a.put(chain_of(2, 1), 1);
  for (const auto& [key, item] : two.index->items()) {
    const bool chat = key == index_key(chain_of(1, 1)[0]);
    EXPECT_GE(item.seconds, (chat ? 168 : 72) * kHour - 1);
    EXPECT_LE(item.seconds, (chat ? 175 : 76) * kHour);
  }
  two.b.time->advance(76 * kHour);
  EXPECT_EQ(two.ask(chain_of(2, 1)), 0u) << "an index that did not forget";
  EXPECT_EQ(two.ask(chain_of(1, 1)), 1u);
}

TEST(SharedIndex, DownItIsNotAskedForAWhile) {
  TwoStores two;
  const auto chain = chain_of(1, 4), other = chain_of(2, 4);
  int calls = 0;
  two.index->set_fault([&]() -> Result<> {
    calls += 1;
    return Error{Code::kUnavailable, "Connection refused"};
  });
  EXPECT_EQ(two.a.put(chain), 4u) << "the directory has them";
  EXPECT_EQ(two.ask(chain), 0u);
  EXPECT_TRUE(two.stats().off);
  ASSERT_EQ(two.b.log.size(), 1u);
  EXPECT_NE(two.b.log[0].find("Connection refused"), std::string::npos);
  const int before = calls;
  EXPECT_EQ(two.b.store->look_up({chain.begin(), chain.end()}, nullptr), nullptr);
  EXPECT_EQ(calls, before);
  for (int i = 0; i < 20; ++i) {  // the pause grows, and ends
    two.b.time->advance(31);
    EXPECT_EQ(two.ask(chain), 0u);
  }
  EXPECT_EQ(calls, before + 20);
  EXPECT_EQ(two.b.log.size(), 1u) << "told once";
  two.index->set_fault(nullptr);
  two.b.time->advance(31);
  EXPECT_EQ(two.ask(chain), 0u) << "nobody told it";
  EXPECT_FALSE(two.stats().off);
  EXPECT_EQ(two.b.log.size(), 2u);
  two.a.put(other);
  EXPECT_EQ(two.ask(other), 4u);
  two.b.store->maintain();
  EXPECT_EQ(two.b.get(chain), 4u);
}

TEST(SharedIndex, FullItIsStillAsked) {
  TwoStores two;
  const auto chain = chain_of(1, 4), other = chain_of(2, 4);
  two.a.put(chain);
  two.index->set_fault([]() -> Result<> { return Error{Code::kResourceExhausted, "OOM command not allowed"}; });
  two.a.put(other);
  EXPECT_EQ(two.a.store->stats().index.dropped_blocks, 4u);
  two.index->set_fault(nullptr);
  EXPECT_EQ(two.ask(chain), 4u);
  EXPECT_EQ(two.ask(other), 0u);
}

TEST(SharedIndex, EmptiedItKnowsNothing) {
  TwoStores two;
  const auto chain = chain_of(1, 4);
  two.a.put(chain);
  two.index->clear();
  EXPECT_EQ(two.ask(chain), 0u);
  two.b.store->maintain();
  EXPECT_EQ(two.b.get(chain), 4u) << "local knowledge";
}

// Every way to be wrong: no place, no file, another's file, another block's record, beyond the end, a length that is not ours.
TEST(SharedIndex, RubbishIsAMiss) {
  TwoStores two;
  const auto chain = chain_of(1, 4), other = chain_of(2, 4);
  two.a.put(chain);
  two.a.put(other, 1);
  const auto items = two.index->items();
  const auto place_of = [&](const BlockKey& key) { return *decode_place(items.at(index_key(key)).value); };
  Rng rng(3);
  std::vector<std::string> rubbish = {"", "x", std::string(10'000, 'y'), std::string(200, '\0'), "../../etc/passwd a.b 1 1", items.at(index_key(other[0])).value};
  BlockPlace place = place_of(chain[0]);
  for (const uint32_t page : {2u, 4u, 1000u, UINT32_MAX}) {
    BlockPlace moved = place;
    moved.page = page;
    rubbish.push_back(encode_place(moved));
  }
  BlockPlace longer = place, elsewhere = place, absent = place;
  longer.length += 1;
  elsewhere.tenant[0] = elsewhere.tenant[0] == '0' ? '1' : '0';
  absent.name.replace(absent.name.find(".seg") - 1, 1, "9");
  for (const BlockPlace& bad : {longer, elsewhere, absent}) rubbish.push_back(encode_place(bad));
  for (const std::string& value : rubbish) {
    SCOPED_TRACE(value.substr(0, 120));
    two.index->set_value(index_key(chain[0]), value);
    StoreWorld fresh;
    fresh.share(two.a);
    fresh.options.index = two.index;
    fresh.disk->set_fault([](const io::MemoryDisk::Access& access) -> Result<> {
      if (access.op == io::MemoryDisk::Op::kList && access.path != "/cache") return Error{Code::kNotFound, "not seen yet"};
      return {};
    });
    fresh.open();
    fresh.disk->set_fault(nullptr);
    const auto lookup = fresh.store->look_up({chain.begin(), chain.end()}, nullptr);
    ASSERT_NE(lookup, nullptr);
    EXPECT_EQ(fresh.get({&chain[0], 1}), 0u) << "get() compares the bytes of whatever comes";
    EXPECT_EQ(fresh.known({&chain[0], 1}), 0u) << "not promised again";
    EXPECT_EQ(fresh.get(std::span(chain).subspan(1)), 3u) << "the others are right";
    EXPECT_TRUE(fresh.publish(chain[0]));
    fresh.store->flush();
    EXPECT_TRUE(fresh.gets(chain[0])) << "computed and stored again";
    EXPECT_FALSE(*decode_place(two.index->items().at(index_key(chain[0])).value) == place) << "and told anew";
    fresh.store->maintain();
    EXPECT_EQ(fresh.get(other), 4u);
  }
}

TEST(SharedIndex, WhatIsKnownToBeBadStaysUnknown) {
  TwoStores two;
  const auto chain = chain_of(1, 2);
  two.a.put(chain);
  ASSERT_EQ(two.ask(chain), 2u);
  two.b.store->maintain();  // has read the file up to its end
  const std::string path = two.a.segments().front();
  two.a.disk->flip_bit(path, 8 * (kPage + kRecordHeaderBytes + 100));
  EXPECT_EQ(two.b.get(chain), 0u);
  EXPECT_EQ(two.b.missed(CacheMiss::kCorrupt), 2u);
  EXPECT_EQ(two.ask(chain), 0u) << "the index says it again";
  EXPECT_EQ(two.stats().wrong_places, 1u);
}

TEST(SharedIndex, ManyBlocksGoInPieces) {
  TwoStores two;
  const auto chain = chain_of(1, 2000);
  for (size_t i = 0; i < chain.size(); i += 100) two.a.put(std::span(chain).subspan(i, 100));
  EXPECT_EQ(two.ask(chain), 2000u);
  EXPECT_EQ(two.a.store->stats().index.told_blocks, 2000u);
}

// Threads: an index that never answers holds up neither its own thread's store nor the end of the process.
TEST(SharedIndex, AHangingIndexIsNotWaitedFor) {
  Gate gate;
  StoreWorld world;
  const auto index = std::make_shared<io::MemoryKeyValues>();
  world.options.index = index;
  world.options.background = true;
  index->set_fault([&]() -> Result<> {
    gate.wait();
    return {};
  });
  world.open();
  const auto chain = chain_of(1, 4);
  std::atomic<int> woken{0};
  const auto lookup = world.store->look_up({chain.begin(), chain.end()}, [&] { woken += 1; });
  ASSERT_NE(lookup, nullptr);
  ASSERT_TRUE(eventually([&] { return gate.num_stopped() > 0; }));
  EXPECT_FALSE(lookup->done());
  auto abandoned = world.store->look_up({chain.begin(), chain.end()}, [&] { woken += 100; });
  ASSERT_NE(abandoned, nullptr);
  abandoned.reset();
  world.time->advance(2);
  EXPECT_EQ(world.store->look_up({chain.begin(), chain.end()}, nullptr), nullptr) << "stuck: no more questions";
  for (const BlockKey& key : chain) EXPECT_TRUE(world.publish(key));
  EXPECT_TRUE(eventually([&] { return world.known(chain) == 4; })) << "writing goes on";
  gate.open();
  EXPECT_TRUE(eventually([&] { return lookup->done() && index->items().size() == 4; }));
  EXPECT_EQ(woken.load(), 1);
  world.store.reset();
}

TEST(IndexClient, QueuesAreBounded) {
  const auto time = std::make_shared<ManualTime>();
  IndexClient client(std::make_shared<io::MemoryKeyValues>(), time, nullptr);
  for (size_t i = 0; i < IndexClient::kMaxTold + 5; ++i) client.tell({}, {}, 10);
  std::vector<std::shared_ptr<LookupJob>> jobs;
  for (size_t i = 0; i < IndexClient::kMaxQuestions; ++i) jobs.push_back(client.ask({{}}, nullptr));
  EXPECT_NE(jobs.back(), nullptr);
  EXPECT_EQ(client.ask({{}}, nullptr), nullptr);
  CacheStats stats;
  client.add_to(stats);
  EXPECT_EQ(stats.index.dropped_blocks, 5u);
  EXPECT_EQ(stats.index.lookups, IndexClient::kMaxQuestions);
}

}  // namespace
}  // namespace deepinfer::kv
