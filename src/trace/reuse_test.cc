#include "trace/reuse.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <list>
#include <map>

#include "base/rng.h"
#include "trace/audit.h"
#include "trace/routing.h"

namespace deepinfer::trace {
namespace {

constexpr int kBlock = 16;

// A random log: a few templates, conversations that grow and fork, gaps from milliseconds to days.
RequestTrace random_trace(uint64_t seed, int num_requests, double rate = 1, uint64_t sample_seed = 0, uint64_t max_blocks = 1 << 24) {
  Rng rng(seed);
  RequestTrace trace(kBlock, max_blocks, rate, sample_seed);
  std::vector<std::vector<PrefixKey>> known{{}};
  int64_t now = 0;
  uint64_t fresh = seed << 32;
  for (int i = 0; i < num_requests; ++i) {
    std::vector<PrefixKey> keys = known[rng.below(known.size())];
    if (rng.below(4) == 0 && !keys.empty()) keys.resize(rng.below(keys.size()));
    const uint64_t grow = 1 + rng.below(12);
    for (uint64_t k = 0; k < grow; ++k) {
      ++fresh;
      keys.push_back(chain_key(keys.empty() ? PrefixKey{} : keys.back(), std::as_bytes(std::span(&fresh, 1))));
    }
    known.push_back(keys);
    if (known.size() > 60) known.erase(known.begin() + static_cast<ptrdiff_t>(1 + rng.below(known.size() - 1)));
    now += static_cast<int64_t>(std::exp2(rng.uniform() * 34));
    TracedRequest r;
    r.time_us = now;
    r.tenant = trace.tenants.id("t" + std::to_string(rng.below(3)));
    r.session = 1 + rng.below(20);
    r.model = trace.models.id((seed + static_cast<uint64_t>(i)) % 2 == 0 ? "even" : "odd");
    r.input_tokens = static_cast<int32_t>(keys.size() * kBlock + rng.below(kBlock));
    trace.add(r, keys);
  }
  return trace;
}

std::vector<uint32_t> path_of(const RequestTrace& trace, uint32_t request, uint32_t multiple) {
  std::vector<uint32_t> path;
  for (uint32_t n = trace.requests[request].leaf; n != PrefixTree::kRoot; n = trace.tree.nodes()[n].parent) {
    if (trace.tree.nodes()[n].depth % multiple == 0) path.push_back(n);
  }
  std::reverse(path.begin(), path.end());
  return path;
}

// The definition: one LRU list, one bound of each kind.
double naive_hit(const RequestTrace& trace, std::span<const uint32_t> order, uint32_t multiple, int64_t retention, uint64_t capacity) {
  std::list<uint32_t> recent;  // the last used first
  std::map<uint32_t, int64_t> used;
  double hit = 0;
  for (const uint32_t index : order) {
    const TracedRequest& r = trace.requests[index];
    const std::vector<uint32_t> path = path_of(trace, index, multiple);
    for (const uint32_t node : path) {
      if (std::find(recent.begin(), recent.end(), node) == recent.end() || r.time_us - used[node] > retention) break;
      hit += static_cast<double>(multiple) * kBlock;
    }
    for (auto node = path.rbegin(); node != path.rend(); ++node) {
      recent.remove(*node);
      recent.push_front(*node);
      used[*node] = r.time_us;
    }
    while (recent.size() > capacity) recent.pop_back();
  }
  return hit;
}

const ReplayOptions kOptions{.multiple = 1, .retentions_us = {1'000, 1'000'000, 300'000'000, 3'600'000'000, kForever}, .capacities = {1, 7, 40, 150, 600, kUnlimited}};

TEST(Reuse, EveryRetentionAndCapacityIsThatOfALruList) {
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    const RequestTrace trace = random_trace(seed, 150);
    const std::vector<uint32_t> order = trace.by_time();
    ReplayScratch scratch;
    for (const uint32_t multiple : {1u, 2u, 3u}) {
      ReplayOptions options = kOptions;
      options.multiple = multiple;
      const ReuseCounts counts = replay(trace, order, options, scratch);
      for (size_t r = 0; r < options.retentions_us.size(); ++r) {
        for (size_t c = 0; c < options.capacities.size(); ++c) {
          EXPECT_EQ(counts.hit(r, c, options), naive_hit(trace, order, multiple, options.retentions_us[r], options.capacities[c]))
              << "seed " << seed << " multiple " << multiple << " retention " << r << " capacity " << c;
        }
      }
    }
  }
}

TEST(Reuse, MoreRetentionOrCapacityNeverHitsLess) {
  for (uint64_t seed = 10; seed < 40; ++seed) {
    const RequestTrace trace = random_trace(seed, 400);
    ReplayScratch scratch;
    const ReuseCounts counts = replay(trace, trace.by_time(), kOptions, scratch);
    for (size_t r = 0; r < kOptions.retentions_us.size(); ++r) {
      for (size_t c = 0; c < kOptions.capacities.size(); ++c) {
        EXPECT_GE(counts.hit(r, c, kOptions), counts.hit(r == 0 ? r : r - 1, c, kOptions));
        EXPECT_GE(counts.hit(r, c, kOptions), counts.hit(r, c == 0 ? c : c - 1, kOptions));
      }
    }
    double by_distance = 0, by_age = 0;
    for (uint32_t b = 0; b < kNumBuckets; ++b) {
      by_distance += counts.distance_tokens[b];
      by_age += counts.age_tokens[b];
    }
    const double all = counts.hit(4, 5, kOptions);
    EXPECT_EQ(by_distance, all);
    EXPECT_EQ(by_age, all);
    EXPECT_EQ(counts.distinct_tokens + all, counts.block_tokens);
  }
}

TEST(Reuse, EveryValueLiesInItsBucket) {
  for (uint64_t value = 0; value < 5000; ++value) {
    EXPECT_LE(bucket_floor(bucket_of(value)), value);
    EXPECT_GT(bucket_floor(bucket_of(value) + 1), value);
  }
  EXPECT_LT(bucket_of(UINT64_MAX), kNumBuckets);
}

// A block that is used again behind three others, a second later.
TEST(Reuse, DistanceAndAgeAreThoseSinceTheLastUse) {
  RequestTrace trace(kBlock, 1 << 10);
  for (const auto& [ms, block] : {std::pair<int64_t, uint64_t>{0, 1}, {100, 2}, {200, 3}, {300, 2}, {400, 4}, {1000, 1}}) {
    const PrefixKey key = chain_key({}, std::as_bytes(std::span(&block, 1)));
    trace.add({.time_us = ms * 1000, .input_tokens = kBlock}, std::span(&key, 1));
  }
  ReplayScratch scratch;
  const ReuseCounts counts = replay(trace, trace.by_time(), kOptions, scratch);
  EXPECT_EQ(counts.distance_tokens[bucket_of(3 * kBlock)], kBlock);
  EXPECT_EQ(counts.distance_tokens[bucket_of(1 * kBlock)], kBlock) << "the second block of its name";
  EXPECT_EQ(counts.age_tokens[bucket_of(1000)], kBlock);
  EXPECT_EQ(counts.age_tokens[bucket_of(200)], kBlock);
}

TEST(Reuse, AReplayLeavesNoTraceInItsScratch) {
  const RequestTrace trace = random_trace(5, 200);
  ReplayScratch scratch;
  const std::vector<uint32_t> order = trace.by_time();
  const ReuseCounts first = replay(trace, order, kOptions, scratch);
  EXPECT_TRUE(std::all_of(scratch.last_use.begin(), scratch.last_use.end(), [](uint32_t use) { return use == 0; }));
  EXPECT_EQ(replay(trace, order, kOptions, scratch).missed, first.missed);
}

TEST(Reuse, JoinedTracesAreOneTrace) {
  const RequestTrace a = random_trace(7, 120), b = random_trace(8, 120);
  RequestTrace both(kBlock, 1 << 24);
  ASSERT_TRUE(both.append(a));
  ASSERT_TRUE(both.append(b));
  // The same requests, entered one after the other.
  RequestTrace whole(kBlock, 1 << 24);
  for (const RequestTrace* part : {&a, &b}) {
    for (uint32_t i = 0; i < part->requests.size(); ++i) {
      std::vector<PrefixKey> keys;
      for (const uint32_t node : path_of(*part, i, 1)) keys.push_back(part->tree.nodes()[node].key);
      TracedRequest r = part->requests[i];
      r.tenant = whole.tenants.id(part->tenants.name(r.tenant));
      r.model = whole.models.id(part->models.name(r.model));
      whole.add(r, keys);
    }
  }
  EXPECT_EQ(both.encode(), whole.encode());

  const auto decoded = RequestTrace::decode(both.encode(), 1 << 24);
  ASSERT_TRUE(decoded) << decoded.error().message;
  EXPECT_EQ(decoded->encode(), both.encode());
}

TEST(Reuse, DamagedTracesAreRefused) {
  const std::string bytes = random_trace(3, 30).encode();
  for (size_t cut = 0; cut < bytes.size(); cut += 7) EXPECT_FALSE(RequestTrace::decode(std::string_view(bytes).substr(0, cut), 1 << 20));
  Rng rng(1);
  for (int i = 0; i < 3000; ++i) {
    std::string damaged = bytes;
    damaged[8 + rng.below(damaged.size() - 8)] = static_cast<char>(rng.next_u32());
    (void)RequestTrace::decode(damaged, 1 << 20);  // refused or read, never a crash
  }
}

TEST(Reuse, ASampleIsWithinItsErrorInNineteenOfTwentyCases) {
  const RequestTrace exact = random_trace(77, 3000);
  ReplayScratch scratch;
  const ReplayOptions options{.multiple = 1, .retentions_us = {1'000'000, 300'000'000, kForever}, .capacities = {1500, 6000, kUnlimited}};
  const ReuseCounts truth = replay(exact, exact.by_time(), options, scratch);
  for (size_t r = 0; r < 3; ++r) {
    for (size_t c = 0; c < 3; ++c) {
      int within = 0;
      double error = 0;
      for (uint64_t seed = 0; seed < 100; ++seed) {
        const RequestTrace sample = random_trace(77, 3000, 0.1, seed);
        ReplayScratch other;
        const ReuseCounts counts = replay(sample, sample.by_time(), options, other);
        within += std::abs(counts.hit(r, c, options) - truth.hit(r, c, options)) <= counts.error(r, c, options);
        error += counts.error(r, c, options) / 100;
      }
      EXPECT_GE(within, 95) << "retention " << r << " capacity " << c;
      EXPECT_LT(error, 0.25 * truth.block_tokens) << "an error that says nothing";
    }
  }
}

TEST(Reuse, ATreeThatIsFullBecomesASampleOfBoundedSize) {
  const RequestTrace exact = random_trace(9, 2000);
  const RequestTrace bounded = random_trace(9, 2000, 1, 0, 1000);
  EXPECT_TRUE(bounded.tree.sampled());
  EXPECT_LE(bounded.tree.nodes().size(), 1001u);
  // The rate follows from the set of blocks, not from when they came.
  RequestTrace late(kBlock, 1000);
  ASSERT_TRUE(late.append(exact));
  EXPECT_EQ(late.tree.threshold(), bounded.tree.threshold());
  ReplayScratch scratch, other;
  EXPECT_EQ(replay(late, late.by_time(), kOptions, scratch).missed, replay(bounded, bounded.by_time(), kOptions, other).missed);
}

TEST(Routing, PoliciesStandInTheOrderThatTheyMust) {
  const RequestTrace trace = random_trace(21, 1500);
  const std::vector<uint32_t> order = trace.by_time();
  ReplayScratch scratch;
  const auto hit = [&](Routing routing, int workers) {
    const std::vector<uint8_t> assigned = assign_workers(trace, order, routing, workers);
    const ReuseCounts counts = replay_workers(trace, order, assigned, workers, kOptions, scratch);
    EXPECT_EQ(counts.num_requests, 1500);
    return counts.hit(4, 5, kOptions);
  };
  const double shared = hit(Routing::kShared, 8);
  EXPECT_EQ(shared, replay(trace, order, kOptions, scratch).hit(4, 5, kOptions));
  for (const Routing routing : kAllRoutings) {
    EXPECT_EQ(hit(routing, 1), shared) << routing_name(routing);
    EXPECT_LE(hit(routing, 8), shared) << routing_name(routing);
  }
  EXPECT_GT(hit(Routing::kPrefixAffine, 8), hit(Routing::kRandom, 8));
}

// Two workers. Prompts that share their first block alone all go where it is, until that worker is too far ahead of the other.
TEST(Routing, AffinityYieldsWhenItsWorkerIsTooFarAhead) {
  uint64_t fresh = 0;
  const auto keys = [&](std::vector<PrefixKey> from, int more) {
    for (int i = 0; i < more; ++i) {
      ++fresh;
      from.push_back(chain_key(from.empty() ? PrefixKey{} : from.back(), std::as_bytes(std::span(&fresh, 1))));
    }
    return from;
  };
  const auto add = [](RequestTrace& trace, const std::vector<PrefixKey>& path) { trace.add({.input_tokens = static_cast<int32_t>(path.size()) * kBlock}, path); };
  RequestTrace hot(kBlock, 1 << 16);
  const std::vector<PrefixKey> shared = keys({}, 1);
  for (int i = 0; i < 8; ++i) add(hot, keys(shared, 9));
  // Once both have the block, the less loaded of them.
  EXPECT_EQ(assign_workers(hot, hot.by_time(), Routing::kPrefixAffine, 2), (std::vector<uint8_t>{0, 0, 1, 1, 0, 1, 0, 1}));

  // 16,000 tokens of work each, then prompts that begin as one of the first worker's did and bring 16 tokens of their own: it may be ahead by
  // one prompt of 1,616 tokens and a tenth of the average, 1,600 + 0.8 n of them after n.
  RequestTrace even(kBlock, 1 << 16);
  std::vector<PrefixKey> first;
  for (int i = 0; i < 20; ++i) {
    const std::vector<PrefixKey> path = keys({}, 100);
    if (i == 0) first = path;
    add(even, path);
  }
  for (int i = 0; i < 300; ++i) add(even, keys(first, 1));
  const std::vector<uint8_t> assigned = assign_workers(even, even.by_time(), Routing::kPrefixAffine, 2);
  EXPECT_EQ(std::count(assigned.begin(), assigned.begin() + 20, 0), 10);
  EXPECT_EQ(std::find(assigned.begin() + 20, assigned.end(), 1) - assigned.begin(), 20 + 212);
}

// --- public traces, with ceilings that were computed elsewhere

struct Ceiling {
  int64_t hit, input;
};

Ceiling ceiling_of(const std::string& path) {
  Audit audit({.num_threads = 2}, nullptr, nullptr);
  audit.read({path});
  const ReplayOptions options{.multiple = 1, .retentions_us = {kForever}, .capacities = {kUnlimited}};
  ReplayScratch scratch;
  const ReuseCounts counts = replay(*audit.trace(), audit.trace()->by_time(), options, scratch);
  return {static_cast<int64_t>(counts.hit(0, 0, options)), static_cast<int64_t>(counts.input_tokens)};
}

TEST(HashTraces, CeilingOfASlice) {
  const Ceiling found = ceiling_of(std::string(DI_SOURCE_DIR) + "/tests/golden/traces/mooncake_conversation_300.jsonl");
  EXPECT_EQ(found.hit, 345'966);
  EXPECT_EQ(found.input, 4'269'971);
}

TEST(HashTraces, CeilingsOfThePublicTraces) {
  const std::string folder = std::string(DI_SOURCE_DIR) + "/../shared/traces";
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << "../shared/traces is not here";
  const Ceiling conversation = ceiling_of(folder + "/mooncake_conversation_trace.jsonl");
  EXPECT_EQ(conversation.hit, 54'098'411);
  EXPECT_EQ(conversation.input, 144'793'823);
  const Ceiling synthetic = ceiling_of(folder + "/mooncake_synthetic_trace.jsonl");
  EXPECT_EQ(synthetic.hit, 39'852'661);
  EXPECT_EQ(synthetic.input, 61'194'628);
}

}  // namespace
}  // namespace deepinfer::trace
