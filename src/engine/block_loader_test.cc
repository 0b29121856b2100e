// The engine with a store behind it: what a restart finds again, and that no fault of the store changes a token.
#include "engine/block_loader.h"

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <mutex>
#include <thread>

#include "base/rng.h"
#include "engine/collect.h"
#include "engine/engine.h"
#include "engine/fake_model.h"
#include "engine/image_reader.h"
#include "engine/schedules.h"
#include "eventually.h"
#include "gate.h"
#include "io/memory_disk.h"
#include "io/memory_key_values.h"
#include "kv/segment_store.h"
#include "kv/tiered_store.h"
#include "kv/store_world.h"

namespace deepinfer::engine {
namespace {

using Op = io::MemoryDisk::Op;
using Access = io::MemoryDisk::Access;

TEST(FetchPrice, TheCheaperWayIsTaken) {
  constexpr double kFast = 1e8, kSlow = 5e6, kUnknown = 0;
  const FetchPrice price{.block_tokens = 100, .block_bytes = 1'000'000, .seconds_per_token = 1e-3};
  const auto num = [&](std::vector<double> rates) { return num_worth_fetching(price, rates); };
  EXPECT_EQ(num({kFast}), 1u) << "10 ms against 100 ms";
  EXPECT_EQ(num({kSlow}), 0u) << "200 ms against 100 ms";
  EXPECT_EQ(num({kUnknown}), 1u) << "unknown: try";
  EXPECT_EQ(num({}), 0u);
  EXPECT_EQ(num({kFast, kFast, kSlow, kSlow}), 2u) << "what lies on the slower medium is computed";
  EXPECT_EQ(num({kSlow, kFast}), 0u);
  EXPECT_EQ(num({kSlow, kFast, kFast}), 3u) << "a slow one opens the way to others";
  EXPECT_EQ(num({kFast, kSlow, kFast, kFast}), 4u);
  EXPECT_EQ(num({kFast, kSlow, kSlow, kFast, kFast}), 1u);
  FetchPrice unknown = price;
  unknown.seconds_per_token = 0;
  EXPECT_EQ(num_worth_fetching(unknown, std::vector<double>{kFast, kSlow}), 2u);
  EXPECT_EQ(fetch_patience_ns(price, 1), 100'000'000);
  EXPECT_EQ(fetch_patience_ns(price, 100'000), 10'000'000'000);
  EXPECT_EQ(fetch_patience_ns(unknown, 1), 10'000'000'000);
  FetchPrice quick = price;
  quick.seconds_per_token = 1e-5;
  EXPECT_EQ(fetch_patience_ns(quick, 1), 50'000'000);
}

// One machine: a disk that outlives the servers that run on it one after the other.
class Machine {
 public:
  ~Machine() { stop(); }
  void start(FakeModelOptions model = {}, bool with_store = true) {
    stop();
    auto folder = shared_disk == nullptr ? kv::open_store_folder(*disk, "/cache") : kv::open_store_folders(*disk, "/cache", *shared_disk, "/cache").value().local;
    ASSERT_TRUE(folder);
    auto built = std::make_unique<FakeModel>(model);
    kv::StoreOptions options{.dir = "/cache", .folder = *folder, .budget_bytes = budget_bytes, .classes = {{"chat", 3600}, {"agent", 600}},
                             .model = kv::namespace_of("w", "fake-v1", "fake-v1", model.block_tokens), .block_tokens = model.block_tokens,
                             .block_bytes = built->kv_layout().block_bytes, .num_fetch_threads = 2, .hang_ms = hang_ms, .index = index};
    if (shared_disk != nullptr) options.tier = kv::Tier::kDisk;
    std::vector<std::unique_ptr<kv::SegmentStore>> opened;
    for (const auto& medium : {disk, shared_disk}) {
      if (medium == nullptr) break;
      auto one = kv::SegmentStore::open(medium, time, options);
      ASSERT_TRUE(one) << one.error().message;
      opened.push_back(std::move(*one));
      options.tier = kv::Tier::kShared;
      options.budget_bytes = 64 << 20;
    }
    local = opened[0].get();
    store = std::move(opened[0]);
    if (shared_disk != nullptr) store = std::make_unique<kv::TieredStore>(std::move(store), std::move(opened[1]));
    workers = Workers::create(2, false);
    auto started = Engine::start(std::move(built), *workers, clock,
                                 {.weights_identity = "w", .master_secret = folder->secret, .kv_bytes = 64 * 200, .store = with_store ? store.get() : nullptr, .retention_classes = {{"chat", 3600}, {"agent", 600}}, .time = time});
    ASSERT_TRUE(started) << started.error().message;
    engine = std::move(*started);
  }
  void stop() {
    engine.reset();
    store.reset();
  }
  ChoiceResult answer(const Request& request) {
    auto sink = std::make_shared<Collect>(request.n);
    const auto id = engine->submit(request, sink);
    EXPECT_TRUE(id);
    EXPECT_TRUE(sink->wait());
    return sink->choices[0];
  }

  // Until all that was computed is on disk and told to the index.
  void settle() {
    store->flush();
    const auto settled = [](const CacheStats& s) { return s.index.told_blocks + s.index.dropped_blocks >= s.written_blocks; };
    EXPECT_TRUE(eventually([&] { return settled(store->stats()); }));
  }

  std::shared_ptr<io::MemoryDisk> disk = std::make_shared<io::MemoryDisk>();
  std::shared_ptr<io::MemoryKeyValues> index;
  std::shared_ptr<io::MemoryDisk> shared_disk;  // null: there is one store
  uint64_t budget_bytes = 16 << 20;
  int64_t hang_ms = 5000;
  std::shared_ptr<const kv::TimeSource> time = std::make_shared<kv::SystemTime>();
  SteadyClock clock;
  std::unique_ptr<kv::BlockStore> store;
  kv::SegmentStore* local = nullptr;  // of store
  std::unique_ptr<Workers> workers;
  std::unique_ptr<Engine> engine;
};

Request kept_request(int32_t length, int32_t max_tokens, TokenId first = 1) {
  Request request;
  for (int32_t i = 0; i < length; ++i) request.prompt.push_back((first + i * 7) % 97);
  request.sampling.temperature = 0;
  request.sampling.max_tokens = max_tokens;
  request.sampling.ignore_eos = true;
  request.sampling.top_logprobs = 2;
  return request;
}

TEST(EngineWithStore, ARestartFindsPromptAndAnswerAgain) {
  Machine machine;
  machine.start();
  Request request = kept_request(50, 30);
  const ChoiceResult cold = machine.answer(request);
  EXPECT_EQ(cold.usage.cached_tokens, 0);
  machine.start();
  const ChoiceResult warm = machine.answer(request);
  EXPECT_TRUE(warm.same_output(cold));
  EXPECT_EQ(warm.usage.cached_tokens, 48);
  EXPECT_EQ(warm.usage.disk_tokens, 48);
  EXPECT_GE(warm.usage.match.age_s, 0);
  const ChoiceResult again = machine.answer(request);
  EXPECT_EQ(again.usage.cached_tokens, 48);
  EXPECT_EQ(again.usage.disk_tokens, 0) << "from memory now";
  // The next turn after a restart finds the answer's tokens too, up to its last full block.
  machine.start();
  request.prompt.insert(request.prompt.end(), cold.tokens.begin(), cold.tokens.end());
  request.prompt.push_back(3);
  EXPECT_EQ(machine.answer(request).usage.disk_tokens, 76);
  EXPECT_EQ(machine.engine->stats().cache.hit_blocks_disk, 19u);
  EXPECT_TRUE(eventually([&] { return machine.engine->stats().num_blocks_in_use == 0; }));
}

// Windows beside the blocks, bounded replay: what follows a hit depends on where it ended, so a restart must find the very chain that memory
// held, with its cuts.
TEST(EngineWithStore, AConversationWithWindowsIsTheSameOverRestarts) {
  const auto converse = [](bool restarts) {
    Machine machine;
    std::vector<ChoiceResult> turns;
    Request request = kept_request(50, 24);
    machine.start({.window = 6});
    for (int turn = 0; turn < 4; ++turn) {
      if (restarts) machine.start({.window = 6});
      turns.push_back(machine.answer(request));
      const std::vector<TokenId>& answer = turns.back().tokens;
      request.prompt.insert(request.prompt.end(), answer.begin(), answer.end());
      request.prompt.push_back(static_cast<TokenId>(3 + turn));
    }
    return turns;
  };
  const std::vector<ChoiceResult> memory = converse(false), disk = converse(true);
  for (size_t turn = 0; turn < memory.size(); ++turn) {
    EXPECT_TRUE(disk[turn].same_output(memory[turn])) << turn;
    EXPECT_EQ(disk[turn].usage.cached_tokens, memory[turn].usage.cached_tokens) << turn;
    EXPECT_EQ(disk[turn].usage.disk_tokens, memory[turn].usage.cached_tokens) << turn;
    if (turn > 0) {
      EXPECT_GT(disk[turn].usage.disk_tokens, 40) << turn;
    }
  }
}

// Disk and memory agree on when a block ends: what came from disk is not new in memory.
TEST(EngineWithStore, FromDiskABlockComesWithItsAge) {
  Machine machine;
  const auto time = std::make_shared<kv::ManualTime>();
  machine.time = time;
  machine.start();
  Request request = kept_request(50, 4);
  request.retention = "agent";
  machine.answer(request);
  machine.start();
  time->advance(580);
  EXPECT_EQ(machine.answer(request).usage.disk_tokens, 48);
  time->advance(10);
  const Usage memory = machine.answer(request).usage;
  EXPECT_EQ(memory.cached_tokens, 48);
  EXPECT_EQ(memory.disk_tokens, 0);
  time->advance(600 + 60 - 590);  // the class's time and the rest of its bucket
  EXPECT_EQ(machine.answer(request).usage.cached_tokens, 0);
}

// Memory says how old what it holds is, beside a store and alone.
TEST(EngineWithStore, AHitInMemoryTellsItsAge) {
  for (const bool with_store : {true, false}) {
    SCOPED_TRACE(with_store);
    Machine machine;
    const auto time = std::make_shared<kv::ManualTime>();
    machine.time = time;
    machine.start({}, with_store);
    const Request request = kept_request(50, 4);
    const PrefixMatch cold = machine.answer(request).usage.match;
    EXPECT_EQ(cold.tokens, 0);
    EXPECT_EQ(cold.age_s, -1);
    time->advance(70);
    Request longer = request;
    longer.prompt.resize(70, 3);
    const Usage first = machine.answer(longer).usage;
    EXPECT_EQ(first.cached_tokens, 48);
    EXPECT_EQ(first.match.tokens, 48);
    EXPECT_EQ(first.match.age_s, 70);
    time->advance(5);
    const Usage second = machine.answer(longer).usage;
    EXPECT_EQ(second.match.tokens, 68);
    EXPECT_EQ(second.match.age_s, 5) << "of the last block";
    longer.prompt[60] = 4;
    EXPECT_EQ(machine.answer(longer).usage.match.tokens, 60);
  }
}

// A beginning is in memory, the rest on disk: the match is all of it, and as old as its last block.
TEST(EngineWithStore, AMatchGoesOnFromMemoryToDisk) {
  Machine machine;
  const auto time = std::make_shared<kv::ManualTime>();
  machine.time = time;
  machine.start();
  const Request whole = kept_request(50, 4);
  Request beginning = whole;
  beginning.prompt.resize(25);
  machine.answer(beginning);
  time->advance(100);
  machine.answer(whole);
  machine.start();
  time->advance(30);
  EXPECT_EQ(machine.answer(beginning).usage.disk_tokens, 24);
  const Usage usage = machine.answer(whole).usage;
  EXPECT_EQ(usage.cached_tokens, 48);
  EXPECT_EQ(usage.disk_tokens, 24);
  EXPECT_EQ(usage.match.tokens, 48);
  EXPECT_EQ(usage.match.age_s, 30);
  // What memory has and the disk has lost is found all the same.
  for (const std::string& path : machine.disk->files()) {
    if (path.ends_with(".seg")) {
      ASSERT_TRUE(machine.disk->remove(path));
    }
  }
  machine.local->maintain();
  const Usage memory = machine.answer(whole).usage;
  EXPECT_EQ(memory.cached_tokens, 48);
  EXPECT_EQ(memory.match.age_s, 30);
}

// Memory is full, and of what a request needs it has the beginning, which nobody has used for longest: what is fetched takes others' place.
TEST(EngineWithStore, WhatIsFetchedDoesNotPushOutItsOwnBeginning) {
  Machine machine;
  machine.start();
  const Request whole = kept_request(700, 2);
  Request beginning = whole;
  beginning.prompt.resize(401);
  const ChoiceResult cold = machine.answer(whole);
  machine.start();
  EXPECT_EQ(machine.answer(beginning).usage.disk_tokens, 400);
  for (int i = 0; i < 3; ++i) machine.answer(kept_request(200, 2, 30 + 10 * i));  // memory has 200 blocks of four tokens
  EXPECT_TRUE(eventually([&] { return machine.engine->stats().num_blocks_cached > 195; }));
  const ChoiceResult warm = machine.answer(whole);
  EXPECT_TRUE(warm.same_output(cold));
  EXPECT_EQ(warm.usage.cached_tokens, 696);
  EXPECT_GT(warm.usage.disk_tokens, 296) << "also those of the beginning that had gone";
  // What is known takes all of memory but the room that computing needs.
  const Request longest = kept_request(796, 2, 60);
  machine.answer(longest);
  machine.start();
  EXPECT_EQ(machine.answer(longest).usage.disk_tokens, 792);
}

// Known, but not to be had: that is no divergence, and the cause is told.
TEST(EngineWithStore, WhatWasKnownAndDidNotComeIsNoDivergence) {
  struct Case {
    CacheMiss cause;
    std::function<void(Machine&)> harm;
    int32_t num_cached = 0;
  };
  const auto each_segment = [](Machine& machine, const auto& harm) {  // which nobody notices before it is read
    machine.disk->set_fault([](const Access& access) -> Result<> { return access.op == Op::kList ? Result<>(Error{Code::kIo, "fault"}) : Result<>(); });
    for (const std::string& path : machine.disk->files()) {
      if (path.ends_with(".seg")) harm(path);
    }
  };
  const auto fault_in_reads = [](Machine& machine, const auto& fault) {
    machine.disk->set_fault([=](const Access& access) -> Result<> { return access.op == Op::kRead && access.path.ends_with(".seg") ? fault() : Result<>(); });
  };
  const Case cases[] = {
      {CacheMiss::kLate, [&](Machine& m) {
         fault_in_reads(m, []() -> Result<> { return std::this_thread::sleep_for(std::chrono::milliseconds(400)), Result<>(); });
       }},
      {CacheMiss::kIo, [&](Machine& m) { fault_in_reads(m, []() -> Result<> { return Error{Code::kIo, "fault"}; }); }},
      {CacheMiss::kCorrupt, [&](Machine& m) {
         each_segment(m, [&](const std::string& path) { m.disk->flip_bit(path, 8 * (4096 * 4 + 100)); });  // in the rows of the fourth record
       }, 12},
      {CacheMiss::kShort, [&](Machine& m) {
         each_segment(m, [&](const std::string& path) { ASSERT_TRUE(m.disk->put(path, m.disk->content(path).substr(0, size_t{4096} * 6))); });
       }, 20},
      {CacheMiss::kAbsent, [&](Machine& m) { each_segment(m, [&](const std::string& path) { ASSERT_TRUE(m.disk->remove(path)); }); }},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(kCacheMissNames[static_cast<size_t>(c.cause)]);
    Machine machine;
    const auto time = std::make_shared<kv::ManualTime>();
    machine.time = time;
    machine.start();
    const Request stored = kept_request(400, 8);
    const ChoiceResult cold = machine.answer(stored);
    machine.store->flush();  // its blocks are as old as their records
    time->advance(20);
    machine.start();
    machine.answer(kept_request(300, 2, 30));  // so that the speed of prefill is known, and with it the patience
    machine.store->flush();
    c.harm(machine);
    const ChoiceResult answer = machine.answer(stored);
    EXPECT_TRUE(answer.same_output(cold));
    EXPECT_EQ(answer.usage.cached_tokens, c.num_cached);
    EXPECT_EQ(answer.usage.match.tokens, 396);
    EXPECT_EQ(answer.usage.match.age_s, 20);
    EXPECT_EQ(answer.usage.match.missed, c.cause);
    machine.disk->set_fault(nullptr);
    machine.stop();
  }
}

TEST(EngineWithStore, WhatCannotBeReadNowIsKnownAllTheSame) {
  Machine machine;
  machine.hang_ms = 50;
  machine.start();
  const Request stored = kept_request(60, 4), diverging = [] {
    Request request = kept_request(60, 4);
    request.prompt[30] = 0;
    return request;
  }();
  const ChoiceResult cold = machine.answer(stored);
  machine.answer(kept_request(40, 2, 50));
  machine.start();
  Gate gate;
  machine.disk->set_fault([&](const Access& access) -> Result<> {
    if (access.op == Op::kRead && access.path.ends_with(".seg")) gate.wait();
    return {};
  });
  std::vector<std::shared_ptr<Collect>> waiting;
  for (int i = 0; i < 2; ++i) {
    waiting.push_back(std::make_shared<Collect>(1));
    ASSERT_TRUE(machine.engine->submit(i == 0 ? stored : kept_request(40, 2, 50), waiting.back()));
  }
  EXPECT_TRUE(eventually([&] { return machine.store->stats().reads_off; }));
  const Usage usage = machine.answer(diverging).usage;
  EXPECT_EQ(usage.cached_tokens, 0);
  EXPECT_EQ(usage.match.tokens, 28);
  EXPECT_EQ(usage.match.missed, CacheMiss::kBusy);
  EXPECT_GE(machine.engine->stats().cache.missed_blocks[static_cast<size_t>(CacheMiss::kBusy)], 7u);
  gate.open();
  for (const auto& sink : waiting) EXPECT_TRUE(sink->wait());
  EXPECT_TRUE(waiting[0]->choices[0].same_output(cold));
  machine.disk->set_fault(nullptr);
  machine.stop();
}

// Two processes that never see each other's files by looking.
struct TwoMachines {
  explicit TwoMachines(FakeModelOptions model = {}) {
    first.index = second.index = std::make_shared<io::MemoryKeyValues>();
    second.disk = first.disk;
    first.start(model);
    second.start(model);
    first.disk->set_fault([](const Access& access) -> Result<> {
      if (access.op == Op::kList) return Error{Code::kIo, "fault"};
      return {};
    });
  }
  ~TwoMachines() { first.disk->set_fault(nullptr); }
  Machine first, second;
};

TEST(EngineWithStore, TheSharedIndexSaysWhatAnotherProcessComputed) {
  TwoMachines two;
  const Request request = kept_request(50, 30);
  const ChoiceResult cold = two.first.answer(request);
  two.first.settle();
  const ChoiceResult warm = two.second.answer(request);
  EXPECT_TRUE(warm.same_output(cold));
  EXPECT_EQ(warm.usage.shared_tokens, 48);
  EXPECT_EQ(two.second.engine->stats().cache.index.found_blocks, 12u);
  const ChoiceResult again = two.second.answer(request);
  EXPECT_EQ(again.usage.cached_tokens, 48);
  EXPECT_EQ(again.usage.shared_tokens, 0) << "from memory now";
}

// With windows, each turn goes on from a cut that the other process made: its key can only be named once what lies before is known. Behind
// the cut lies what the turn before showed: a picture, or none.
void expect_conversations_move(bool pictures) {
  const auto picture = [](int turn) {
    const image::Picture flat{.width = 8, .height = 8, .rgb = std::vector<uint8_t>(8 * 8 * 3, static_cast<uint8_t>(turn))};
    return fit_image(flat, FakeImageEncoder().patch_options()).value();
  };
  const auto converse = [&](bool moves) {
    TwoMachines two({.window = 6, .vision = true});
    std::vector<ChoiceResult> turns;
    Request request = kept_request(50, 24);
    for (int turn = 0; turn < 4; ++turn) {
      Machine& machine = moves && turn % 2 == 1 ? two.second : two.first;
      turns.push_back(machine.answer(request));
      machine.settle();
      const std::vector<TokenId>& answer = turns.back().tokens;
      request.prompt.insert(request.prompt.end(), answer.begin(), answer.end());
      request.prompt.push_back(static_cast<TokenId>(3 + turn));
      if (!pictures) continue;
      const auto start = static_cast<int32_t>(request.prompt.size());
      request.prompt.resize(request.prompt.size() + 30, 7);
      place_image(request, start, picture(turn), FakeImageEncoder().token_id());
    }
    return turns;
  };
  const std::vector<ChoiceResult> stays = converse(false), moves = converse(true);
  for (size_t turn = 0; turn < stays.size(); ++turn) {
    EXPECT_TRUE(moves[turn].same_output(stays[turn])) << turn;
    EXPECT_EQ(moves[turn].usage.cached_tokens, stays[turn].usage.cached_tokens) << turn;
    if (turn > 0) {
      EXPECT_GT(moves[turn].usage.shared_tokens, 0) << turn;
    }
  }
}

TEST(EngineWithStore, AConversationThatMovesBetweenProcessesIsTheSame) { expect_conversations_move(false); }

TEST(EngineWithStore, AConversationWithPicturesThatMovesBetweenProcessesIsTheSame) { expect_conversations_move(true); }

TEST(EngineWithStore, AHangingIndexDelaysNobodyForLong) {
  Gate gate;
  TwoMachines two;
  const Request request = kept_request(50, 8);
  const ChoiceResult cold = two.first.answer(request);
  two.first.index->set_fault([&]() -> Result<> {
    gate.wait();
    return {};
  });
  const ChoiceResult answer = two.second.answer(request);
  EXPECT_TRUE(answer.same_output(cold));
  EXPECT_EQ(answer.usage.cached_tokens, 0);
  gate.open();
  two.first.stop();
  two.second.stop();
}

TEST(EngineWithStore, OtherTenantsAndSaltsFindNothing) {
  Machine machine;
  machine.start();
  Request request = kept_request(50, 4);
  const ChoiceResult cold = machine.answer(request);
  machine.start();
  request.tenant = "other";
  EXPECT_EQ(machine.answer(request).usage.cached_tokens, 0);
  request.tenant = "";
  request.cache_salt = "s";
  EXPECT_EQ(machine.answer(request).usage.cached_tokens, 0);
  request.cache_salt = "";
  const ChoiceResult own = machine.answer(request);
  EXPECT_EQ(own.usage.disk_tokens, 48);
  EXPECT_TRUE(own.same_output(cold));
}

TEST(EngineWithStore, ABlockOfAFailedSequenceIsNotStored) {
  Machine machine;
  machine.start({.poison = 13});
  Request request = kept_request(50, 4);
  for (TokenId& token : request.prompt) token = token == 13 ? 12 : token;
  request.prompt.back() = 13;
  EXPECT_EQ(machine.answer(request).finished, FinishReason::kError);
  machine.start();
  EXPECT_EQ(machine.answer(request).usage.cached_tokens, 0);
}

// Reads that hang, fail, differ: the answer is the cold one, and others are served meanwhile.
TEST(EngineWithStore, AHangingReadDelaysItsOwnRequestAlone) {
  Gate gate;
  Machine machine;
  machine.start();
  const Request stored = kept_request(400, 8), other = kept_request(60, 8, 50);
  const ChoiceResult cold = machine.answer(stored), cold_other = machine.answer(other);
  machine.start();
  machine.answer(kept_request(300, 2, 30));  // so that the speed of prefill is known, and with it the patience
  machine.disk->set_fault([&](const Access& access) -> Result<> {
    if (access.op == Op::kRead && access.path.ends_with(".seg")) gate.stop_first();
    return {};
  });
  auto slow = std::make_shared<Collect>(1);
  ASSERT_TRUE(machine.engine->submit(stored, slow));
  ASSERT_TRUE(eventually([&] { return gate.num_stopped() == 1; })) << "or the other's read could be the one that hangs";
  const ChoiceResult meanwhile = machine.answer(other);
  EXPECT_TRUE(meanwhile.same_output(cold_other));
  auto unknown = std::make_shared<Collect>(1);
  ASSERT_TRUE(machine.engine->submit(kept_request(60, 8, 70), unknown));
  EXPECT_TRUE(unknown->wait());
  EXPECT_EQ(unknown->choices[0].usage.cached_tokens, 0) << "what nobody has stored is not waited for";
  EXPECT_TRUE(slow->wait());
  EXPECT_TRUE(slow->choices[0].same_output(cold));
  EXPECT_EQ(slow->choices[0].usage.disk_tokens, 0);
  EXPECT_GT(machine.engine->stats().cache.missed_blocks[static_cast<size_t>(CacheMiss::kLate)], 0u);
  machine.disk->set_fault(nullptr);
  gate.open();
  machine.stop();  // before what its threads may still look at goes
}

// Ten times slower than it was, and more: the answer is the cold one, and it does not wait longer than computing would take.
TEST(EngineWithStore, ASlowDiskIsNotWaitedFor) {
  Machine machine;
  machine.start();
  const Request stored = kept_request(400, 8);
  const ChoiceResult cold = machine.answer(stored);
  machine.start();
  machine.answer(kept_request(300, 2, 30));
  machine.disk->set_fault([](const Access& access) -> Result<> {
    if (access.op == Op::kRead && access.path.ends_with(".seg")) std::this_thread::sleep_for(std::chrono::milliseconds(400));
    return {};
  });
  const ChoiceResult late = machine.answer(stored);
  EXPECT_TRUE(late.same_output(cold));
  EXPECT_EQ(late.usage.disk_tokens, 0);
  EXPECT_GT(machine.engine->stats().cache.missed_blocks[static_cast<size_t>(CacheMiss::kLate)], 0u);
  machine.disk->set_fault(nullptr);
  machine.stop();
}

TEST(EngineWithStore, ACancelWhileItsBlocksAreFetchedEndsIt) {
  Gate gate;
  Machine machine;
  machine.start();
  const Request stored = kept_request(400, 8);
  machine.answer(stored);
  machine.start();
  machine.disk->set_fault([&](const Access& access) -> Result<> {
    if (access.op == Op::kRead && access.path.ends_with(".seg")) gate.wait();
    return {};
  });
  auto sink = std::make_shared<Collect>(1);
  const auto id = machine.engine->submit(stored, sink);
  ASSERT_TRUE(id);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  machine.engine->cancel(*id);
  EXPECT_TRUE(sink->wait());
  EXPECT_EQ(sink->choices[0].finished, FinishReason::kCancelled);
  EXPECT_TRUE(eventually([&] { return machine.engine->stats().num_blocks_in_use == 0; })) << "nothing is kept for blocks that may still come";
  machine.disk->set_fault(nullptr);
  gate.open();
  machine.stop();  // before what its threads may still look at goes
}

// Two machines with disks of their own before a shared store.
TEST(EngineWithStore, ASecondMachineFindsWhatIsSharedAndKeepsItNearby) {
  Machine first, second;
  first.shared_disk = second.shared_disk = std::make_shared<io::MemoryDisk>();
  first.start();
  const Request request = kept_request(50, 4);
  const ChoiceResult cold = first.answer(request);
  first.stop();
  second.start();
  const ChoiceResult shared = second.answer(request);
  EXPECT_TRUE(shared.same_output(cold));
  EXPECT_EQ(shared.usage.shared_tokens, 48);
  EXPECT_EQ(second.answer(request).usage.cached_tokens, 48);
  EXPECT_EQ(second.engine->stats().shared_cache.hit_blocks_shared, 12u);
  second.store->flush();
  second.start();
  const ChoiceResult disk = second.answer(request);
  EXPECT_TRUE(disk.same_output(cold));
  EXPECT_EQ(disk.usage.disk_tokens, 48);
  EXPECT_EQ(disk.usage.shared_tokens, 0);
}

// A shared store that hangs costs its own blocks: those nearby are used, and the request goes on with the rest computed.
TEST(EngineWithStore, AHangingSharedStoreCostsItsOwnBlocksAlone) {
  Machine first, second;
  first.shared_disk = second.shared_disk = std::make_shared<io::MemoryDisk>();
  first.start();
  const Request whole = kept_request(400, 8), other = kept_request(60, 8, 50);
  Request beginning = whole;
  beginning.prompt.resize(201);
  const ChoiceResult cold = first.answer(whole);
  first.stop();
  second.start();
  const ChoiceResult cold_other = second.answer(other);
  second.answer(kept_request(300, 2, 30));  // so that the speed of prefill is known, and with it the patience
  EXPECT_EQ(second.answer(beginning).usage.shared_tokens, 200);
  second.store->flush();
  second.start();
  Gate gate;
  second.shared_disk->set_fault([&](const Access&) -> Result<> {
    gate.wait();
    return {};
  });
  const ChoiceResult late = second.answer(whole);
  EXPECT_TRUE(late.same_output(cold));
  EXPECT_EQ(late.usage.disk_tokens, 200);
  EXPECT_EQ(late.usage.shared_tokens, 0);
  EXPECT_EQ(late.usage.match.tokens, 396);
  EXPECT_EQ(late.usage.match.missed, CacheMiss::kLate);
  EXPECT_EQ(second.answer(other).usage.disk_tokens, 56);
  const InferenceStats stats = second.engine->stats();
  EXPECT_EQ(stats.shared_cache.missed_blocks[static_cast<size_t>(CacheMiss::kLate)], 49u);
  EXPECT_EQ(stats.cache.missed_blocks[static_cast<size_t>(CacheMiss::kLate)], 0u);
  gate.open();
  second.shared_disk->set_fault(nullptr);
  second.stop();  // before what its threads may still look at goes
}

// Each store by its own rate: what lies nearby is fetched, what the slow network would have to bring is computed.
TEST(EngineWithStore, ASlowSharedStoreIsPricedByItself) {
  Machine first, second;
  first.shared_disk = second.shared_disk = std::make_shared<io::MemoryDisk>();
  first.start();
  const Request slow = kept_request(13, 2, 50), whole = kept_request(400, 8);  // three blocks: a low rate
  Request beginning = whole;
  beginning.prompt.resize(201);
  first.answer(slow);
  const ChoiceResult cold = first.answer(whole);
  first.stop();
  second.start();
  EXPECT_EQ(second.answer(beginning).usage.shared_tokens, 200);
  second.store->flush();
  second.start();
  second.answer(kept_request(300, 2, 30));  // so that the speed of prefill is known
  second.shared_disk->set_fault([](const Access& access) -> Result<> {
    if (access.op == Op::kRead && access.path.ends_with(".seg")) std::this_thread::sleep_for(std::chrono::milliseconds(400));
    return {};
  });
  EXPECT_EQ(second.answer(slow).usage.shared_tokens, 0) << "late";
  ASSERT_TRUE(eventually([&] { return second.store->shared_stats().read_bytes > 0; })) << "now its rate is known too";
  const ChoiceResult priced = second.answer(whole);
  EXPECT_TRUE(priced.same_output(cold));
  EXPECT_EQ(priced.usage.disk_tokens, 200);
  EXPECT_EQ(priced.usage.match.tokens, 396);
  EXPECT_EQ(priced.usage.match.missed, CacheMiss::kPriced);
  EXPECT_EQ(second.store->shared_stats().missed_blocks[static_cast<size_t>(CacheMiss::kPriced)], 49u);
  EXPECT_EQ(second.store->stats().missed_blocks[static_cast<size_t>(CacheMiss::kPriced)], 0u);
  second.shared_disk->set_fault(nullptr);
  second.stop();
}

// Restarts, shared prefixes, a pool that is too small, and disks that err, tear and rot at random: every answer is the cold one.
void expect_faults_change_no_token(bool two_stores) {
  std::vector<Request> requests;
  std::vector<ChoiceResult> cold;
  {
    Machine plain;
    plain.start();
    for (int i = 0; i < 12; ++i) {
      Request request = kept_request(40 + 13 * i, 12, static_cast<TokenId>(1 + i / 3));  // thirds share their beginning
      requests.push_back(request);
      request.cache_salt = std::to_string(i);  // finds nothing
      cold.push_back(plain.answer(request));
      EXPECT_EQ(cold.back().usage.cached_tokens, 0);
    }
  }
  uint64_t num_disk_tokens = 0, num_shared_tokens = 0;
  for (uint64_t seed = 0; seed < 6; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Machine machine;
    std::vector<io::MemoryDisk*> disks = {machine.disk.get()};
    if (two_stores) {
      machine.shared_disk = std::make_shared<io::MemoryDisk>();
      machine.budget_bytes = 512 << 10;  // less than there is
      disks.push_back(machine.shared_disk.get());
    }
    Rng rng(seed), dice(seed + 100);
    std::mutex mu;
    const auto fault = [&](const Access& access) -> Result<> {
      const std::lock_guard lock(mu);
      if (dice.below(10) != 0) return {};
      if (access.torn != nullptr) *access.torn = dice.below(access.length + 1);
      return Error{Code::kIo, "fault"};
    };
    for (int round = 0; round < 6; ++round) {
      for (io::MemoryDisk* disk : disks) disk->set_fault(nullptr);
      machine.stop();
      for (io::MemoryDisk* disk : disks) {
        for (const std::string& path : disk->files()) {
          const size_t size = disk->content(path).size();
          if (path.ends_with(".seg") && size > 0) {
            for (int i = 0; i < 3; ++i) disk->flip_bit(path, rng.below(8 * size));
          }
        }
      }
      machine.start();
      for (io::MemoryDisk* disk : disks) disk->set_fault(fault);
      for (int i = 0; i < 12; ++i) {
        const size_t which = rng.below(requests.size());
        const ChoiceResult result = machine.answer(requests[which]);
        ASSERT_TRUE(result.same_output(cold[which])) << which;
        num_disk_tokens += static_cast<uint64_t>(result.usage.disk_tokens);
        num_shared_tokens += static_cast<uint64_t>(result.usage.shared_tokens);
      }
    }
    for (io::MemoryDisk* disk : disks) disk->set_fault(nullptr);
    machine.stop();
  }
  EXPECT_GT(num_disk_tokens, two_stores ? 100u : 500u) << "the store did take part";
  EXPECT_GE(num_shared_tokens, two_stores ? 500u : 0u) << "and so did the one behind it";
}

TEST(EngineWithStore, RandomFaultsChangeNoToken) { expect_faults_change_no_token(false); }

TEST(EngineWithStore, RandomFaultsOfTwoStoresChangeNoToken) { expect_faults_change_no_token(true); }

}  // namespace
}  // namespace deepinfer::engine
