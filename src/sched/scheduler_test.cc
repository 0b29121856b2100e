#include "sched/scheduler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/hash.h"
#include "base/rng.h"

namespace deepinfer::sched {
namespace {

constexpr int32_t kBlockTokens = 4;

// A scheduler with its pool, a naive arena and naive window states (what was written where), and the invariants of all. Every row is
// checked as it is "computed": all earlier slots of its table must hold exactly the sequence's own prefix, it may only write into a
// private block, and the windows that it reads must be of its own sequence and segment.
class Harness {
 public:
  Harness(SchedulerOptions options, int32_t num_blocks)
      : options_(options),
        pool(num_blocks, kClassSeconds),
        scheduler(options, pool),
        arena_(static_cast<size_t>(num_blocks * kBlockTokens), 0),
        windows_(static_cast<size_t>(options.max_num_sequences)) {}

  Sequence& add(std::vector<TokenId> prompt, int32_t max_output, Sequence* first = nullptr) {
    auto sequence = std::make_unique<Sequence>();
    const int32_t max_tokens = static_cast<int32_t>(prompt.size()) + max_output;
    if (first == nullptr) {
      sequence->prepare(next_order_++, std::move(prompt), max_tokens, kv::root_key({.weights = "w", .format = "f", .block_tokens = kBlockTokens}), kBlockTokens);
    } else {
      sequence->prepare_sibling(next_order_++, *first, max_tokens, kBlockTokens);
    }
    sequence->retention = static_cast<uint8_t>(sequence->order % kClassSeconds.size());
    all.push_back(std::move(sequence));
    return *all.back();
  }
  Sequence& submit(std::vector<TokenId> prompt, int32_t max_output) {
    Sequence& sequence = add(std::move(prompt), max_output);
    scheduler.submit(sequence);
    check();
    return sequence;
  }

  // One step; sequences whose reserve is full end. Returns the plan's entries.
  std::vector<StepPlan::Entry> step() {
    const StepPlan& plan = scheduler.next_step();
    check_plan(plan);
    for (const StepPlan::Entry& entry : plan.entries) write_rows(entry);
    const std::vector<StepPlan::Entry> entries = plan.entries;
    scheduler.complete_step();
    for (const StepPlan::Entry& entry : entries) {
      if (!entry.wants_logits) continue;
      Sequence& sequence = *entry.sequence;
      // The next token is a function of the prefix, as a greedy model's is; few tokens, so that outputs coincide too.
      scheduler.append_token(sequence, static_cast<TokenId>(prefix_hash(sequence, sequence.num_tokens()) % 3));
      if (sequence.tokens.size() == sequence.tokens.capacity()) scheduler.end(sequence);
    }
    check();
    return entries;
  }

  void check() {
    pool.check_invariants();
    ASSERT_TRUE(std::is_sorted(scheduler.running().begin(), scheduler.running().end(), by_order));
    ASSERT_TRUE(std::is_sorted(scheduler.waiting().begin(), scheduler.waiting().end(), by_order));
    ASSERT_LE(static_cast<int32_t>(scheduler.running().size()), options_.max_num_sequences);
    std::multiset<const Sequence*> queued(scheduler.running().begin(), scheduler.running().end());
    queued.insert(scheduler.waiting().begin(), scheduler.waiting().end());
    std::vector<int32_t> references(static_cast<size_t>(pool.num_blocks()), 0);
    std::set<int32_t> slots;
    for (const auto& sequence : all) {
      const bool alive = sequence->state == Sequence::State::kRunning || sequence->state == Sequence::State::kWaiting;
      ASSERT_EQ(queued.count(sequence.get()), alive ? 1u : 0u) << "a sequence is in one queue";
      if (sequence->state != Sequence::State::kRunning) {
        ASSERT_TRUE(sequence->blocks.empty());
        ASSERT_EQ(sequence->state_slot, -1);
        continue;
      }
      ASSERT_TRUE(slots.insert(sequence->state_slot).second) << "a state is one sequence's";
      ASSERT_GE(sequence->num_next_rows(), is_held(*sequence) ? 0 : 1);
      const int32_t num_held = std::max(sequence->num_computed_tokens, sequence->global_start);
      ASSERT_EQ(static_cast<int32_t>(sequence->blocks.size()), (num_held + kBlockTokens - 1) / kBlockTokens);
      for (const kv::BlockId block : sequence->blocks) references[static_cast<size_t>(block)] += 1;
      for (int32_t i = 0; i < num_held; ++i) ASSERT_EQ(slot(*sequence, i), prefix_hash(*sequence, i + 1));
      check_cuts(*sequence);
    }
    for (kv::BlockId b = 0; b < pool.num_blocks(); ++b) ASSERT_EQ(pool.num_references(b), references[static_cast<size_t>(b)]);
  }

  static bool is_held(const Sequence& sequence) { return sequence.num_ready_tokens != Sequence::kAllReady; }

  SchedulerOptions options_;
  kv::BlockPool pool;
  Scheduler scheduler;
  std::vector<std::unique_ptr<Sequence>> all;
  int64_t rows_computed = 0;

 private:
  static bool by_order(const Sequence* a, const Sequence* b) { return a->order < b->order; }
  // What the row of the last of these tokens leaves: a function of them and of the cuts before it.
  static uint64_t prefix_hash(const Sequence& sequence, int32_t num_tokens) {
    uint64_t hash = xxh3_64(std::as_bytes(std::span(sequence.tokens).first(static_cast<size_t>(num_tokens))));
    for (const int32_t cut : sequence.cuts)
      if (cut < num_tokens) hash = (hash ^ static_cast<uint64_t>(cut)) * 0x9E3779B97F4A7C15;
    return hash | 1;
  }
  void check_cuts(const Sequence& sequence) const {
    for (size_t i = 0; i < sequence.cuts.size(); ++i) {
      ASSERT_FALSE(options_.replay.exact);
      ASSERT_EQ(sequence.cuts[i] % kBlockTokens, 0);
      ASSERT_GT(sequence.cuts[i], i == 0 ? options_.replay.tokens : sequence.cuts[i - 1]);
      ASSERT_LT(sequence.cuts[i], sequence.num_prompt_tokens);
    }
  }
  // The windows of a row: those before it were run by this sequence since its segment began, and are as many as they must be.
  struct WindowRow {
    uint64_t order;
    size_t segment;
    bool operator==(const WindowRow&) const = default;
  };
  void run_window(const Sequence& sequence, int32_t i) {
    if (options_.replay.tokens == 0) return;
    auto& rows = windows_[static_cast<size_t>(sequence.state_slot)];
    const WindowRow own{sequence.order, sequence.num_cuts_passed};
    for (int32_t j = std::max(sequence.window_start, i - options_.replay.tokens + 1); j < i; ++j) ASSERT_EQ(rows.at(j), own) << "stale windows";
    rows.insert_or_assign(i, own);
    const int32_t segment_start = own.segment == 0 ? 0 : sequence.cuts[own.segment - 1] - options_.replay.tokens;
    if (!options_.replay.exact) {
      ASSERT_EQ(sequence.window_start, segment_start);
    } else if (i >= sequence.global_start) {
      ASSERT_GE(i - sequence.window_start, std::min(i, options_.replay.tokens));
    }
  }
  uint64_t& slot(const Sequence& sequence, int32_t position) {
    const kv::BlockId block = sequence.blocks[static_cast<size_t>(position / kBlockTokens)];
    return arena_[static_cast<size_t>(block * kBlockTokens + position % kBlockTokens)];
  }

  void check_plan(const StepPlan& plan) {
    ASSERT_LE(plan.num_tokens, options_.max_num_batched_tokens);
    const bool idle = scheduler.running().empty() && scheduler.waiting().empty();
    const bool somebody_held = std::any_of(all.begin(), all.end(), [](const auto& s) { return s->state != Sequence::State::kEnded && is_held(*s); });
    ASSERT_TRUE(plan.entries.empty() == idle || somebody_held) << "whoever waits, somebody advances";
    if (idle) return;
    const auto planned = [&](const Sequence* s) {
      return std::any_of(plan.entries.begin(), plan.entries.end(), [&](const StepPlan::Entry& e) { return e.sequence == s; });
    };
    ASSERT_TRUE(is_held(*scheduler.running().front()) || planned(scheduler.running().front())) << "the oldest advances";
    std::set<const Sequence*> seen;
    int32_t num_tokens = 0;
    for (const StepPlan::Entry& entry : plan.entries) {
      ASSERT_TRUE(seen.insert(entry.sequence).second);
      ASSERT_EQ(entry.sequence->state, Sequence::State::kRunning);
      ASSERT_GE(entry.num_tokens, 1);
      ASSERT_LE(entry.num_tokens, entry.sequence->num_next_rows());
      ASSERT_LE(entry.sequence->num_computed_tokens + entry.num_tokens, entry.sequence->num_ready_tokens);
      ASSERT_EQ(entry.wants_logits, entry.num_tokens == entry.sequence->num_remaining_tokens());
      num_tokens += entry.num_tokens;
    }
    ASSERT_EQ(num_tokens, plan.num_tokens);
  }

  void write_rows(const StepPlan::Entry& entry) {
    const Sequence& sequence = *entry.sequence;
    for (int32_t i = sequence.num_computed_tokens; i < sequence.num_computed_tokens + entry.num_tokens; ++i) {
      ASSERT_LT(static_cast<size_t>(i / kBlockTokens), sequence.blocks.size()) << "a row without a block";
      const kv::BlockId block = sequence.blocks[static_cast<size_t>(i / kBlockTokens)];
      run_window(sequence, i);
      rows_computed += 1;
      if (i < sequence.global_start) {
        ASSERT_EQ(slot(sequence, i), prefix_hash(sequence, i + 1)) << "a replayed row finds its block";
        continue;
      }
      ASSERT_EQ(pool.num_references(block), 1) << "writes into a shared block";
      ASSERT_FALSE(pool.is_published(block)) << "writes into a named block";
      for (int32_t j = 0; j < i; ++j) ASSERT_EQ(slot(sequence, j), prefix_hash(sequence, j + 1)) << "attends to foreign bytes";
      slot(sequence, i) = prefix_hash(sequence, i + 1);
    }
  }

  static constexpr std::array<int64_t, 2> kClassSeconds{168, 72};  // of retention classes
  std::vector<uint64_t> arena_;
  std::vector<std::map<int32_t, WindowRow>> windows_;  // by state slot: position to who ran it
  uint64_t next_order_ = 0;
};

std::vector<TokenId> prompt_of(int32_t length, TokenId first = 0) {
  std::vector<TokenId> prompt(static_cast<size_t>(length));
  for (int32_t i = 0; i < length; ++i) prompt[static_cast<size_t>(i)] = first + i;
  return prompt;
}

SchedulerOptions options_of(int32_t budget, int32_t num_sequences = 8, Replay replay = {}) {
  return {.max_num_batched_tokens = budget, .max_num_sequences = num_sequences, .max_num_tracked = 256, .block_tokens = kBlockTokens, .replay = replay};
}

TEST(Scheduler, DecodesComeFirstAndPromptsAreFinishedInTurn) {
  Harness h(options_of(10), 64);
  Sequence& a = h.submit(prompt_of(6), 8);
  h.step();  // a has its first token
  Sequence& b = h.submit(prompt_of(12, 100), 8);
  Sequence& c = h.submit(prompt_of(5, 200), 8);
  auto plan = h.step();
  ASSERT_EQ(plan.size(), 2u);
  EXPECT_EQ(plan[0].sequence, &a);
  EXPECT_EQ(plan[0].num_tokens, 1);
  EXPECT_EQ(plan[1].sequence, &b);
  EXPECT_EQ(plan[1].num_tokens, 9);
  EXPECT_FALSE(plan[1].wants_logits);
  plan = h.step();  // a, the rest of b, then c in the same step
  ASSERT_EQ(plan.size(), 3u);
  EXPECT_EQ(plan[1].num_tokens, 3);
  EXPECT_TRUE(plan[1].wants_logits);
  EXPECT_EQ(plan[2].sequence, &c);
  EXPECT_EQ(plan[2].num_tokens, 5);
}

TEST(Scheduler, ASecondRequestComputesOnlyWhatIsNew) {
  Harness h(options_of(64), 64);
  h.submit(prompt_of(18), 1);
  h.step();
  Sequence& again = h.submit(prompt_of(18), 1);
  EXPECT_EQ(h.step()[0].num_tokens, 2);  // four full blocks of 4 are found
  EXPECT_EQ(again.num_cached_tokens, 16);
  Sequence& exact = h.submit(prompt_of(16), 1);  // the last token is computed even when all of it is in the cache
  EXPECT_EQ(h.step()[0].num_tokens, 4);
  EXPECT_EQ(exact.num_cached_tokens, 12);
}

TEST(Scheduler, BlocksOfTheStepInProgressAreNotFound) {
  Harness h(options_of(64), 64);
  h.submit(prompt_of(16), 4);
  h.submit(prompt_of(16), 4);
  const auto plan = h.step();
  ASSERT_EQ(plan.size(), 2u);
  EXPECT_EQ(plan[1].num_tokens, 16);
  EXPECT_EQ(h.pool.num_in_use(), 4) << "once computed, equal blocks are one";
}

TEST(Scheduler, APromptInProgressTakesOverWhatAnotherHasComputedMeanwhile) {
  Harness h(options_of(10), 64);
  h.submit(prompt_of(30), 4);
  Sequence& b = h.submit(prompt_of(30), 4);
  while (b.num_computed_tokens < 30) h.step();
  EXPECT_LE(h.rows_computed, 30 + 10 + 4);  // at most one step's rows were computed twice, and a's decodes
}

TEST(Scheduler, FurtherChoicesWaitForThePromptAndShareIt) {
  Harness h(options_of(64), 64);
  Sequence& first = h.add(prompt_of(18), 4);
  Sequence& second = h.add(prompt_of(18), 4, &first);
  h.scheduler.submit(first);
  h.scheduler.submit(second);
  EXPECT_EQ(h.step().size(), 1u);
  const auto plan = h.step();
  ASSERT_EQ(plan.size(), 2u);
  EXPECT_EQ(plan[1].num_tokens, 2);
  EXPECT_EQ(first.blocks[0], second.blocks[0]);
  EXPECT_NE(first.blocks[4], second.blocks[4]);
}

TEST(Scheduler, TheYoungestIsPreemptedAndFindsItsBlocksAgain) {
  Harness h(options_of(64), 8);
  Sequence& old = h.submit(prompt_of(8), 24);
  Sequence& young = h.submit(prompt_of(8, 100), 20);
  while (h.scheduler.num_preemptions() == 0) h.step();
  EXPECT_EQ(young.state, Sequence::State::kWaiting);
  EXPECT_EQ(old.state, Sequence::State::kRunning);
  const int32_t cached = young.num_cached_tokens;
  while (young.state != Sequence::State::kEnded) h.step();
  EXPECT_EQ(young.num_cached_tokens, cached) << "what it had computed itself is no hit";
  EXPECT_EQ(h.pool.num_in_use(), 0);
}

TEST(Scheduler, NobodyOvertakesTheHeadOfTheQueueForBeingSmaller) {
  Harness h(options_of(64), 8);
  h.submit(prompt_of(12), 20);
  h.step();
  Sequence& large = h.submit(prompt_of(24, 100), 4);
  Sequence& small = h.submit(prompt_of(2, 200), 2);
  while (large.state == Sequence::State::kWaiting) {
    h.step();
    ASSERT_EQ(large.state == Sequence::State::kWaiting, small.state == Sequence::State::kWaiting);
  }
}

TEST(Scheduler, SuspiciousBlocksAreNotFoundAgain) {
  Harness h(options_of(64), 16);
  Sequence& bad = h.submit(prompt_of(16), 4);
  h.step();
  h.scheduler.end(bad, Scheduler::Trust::kForget);
  EXPECT_EQ(h.pool.num_cached(), 0);
  h.submit(prompt_of(16), 4);
  EXPECT_EQ(h.step()[0].num_tokens, 16);
}

TEST(Scheduler, AHitReplaysAWindowWithinTheBudget) {
  Harness h(options_of(5, 8, {.tokens = 6, .exact = false}), 64);
  h.submit(prompt_of(18), 1);
  while (h.rows_computed < 18) h.step();
  Sequence& again = h.submit(prompt_of(22), 1);
  auto plan = h.step();  // 16 are found; 6 rows before them come first, then 6 new ones
  EXPECT_EQ(plan[0].num_tokens, 5);
  EXPECT_EQ(again.num_cached_tokens, 16);
  EXPECT_EQ(again.cuts, std::vector<int32_t>{16});
  EXPECT_EQ(again.num_computed_tokens, 15);
  EXPECT_EQ(h.step()[0].num_tokens, 5);
  EXPECT_TRUE(h.step()[0].wants_logits);
  EXPECT_EQ(h.rows_computed, 18 + 12);
}

TEST(Scheduler, WhatACutRunLeftIsFoundByItsCuts) {
  Harness h(options_of(64, 8, {.tokens = 6, .exact = false}), 64);
  h.submit(prompt_of(10), 1);
  h.step();
  h.submit(prompt_of(30), 1);  // finds 8, cut there
  h.step();
  Sequence& third = h.submit(prompt_of(30), 1);
  h.step();
  EXPECT_EQ(third.num_cached_tokens, 28);
  EXPECT_EQ(third.cuts, (std::vector<int32_t>{8, 28}));
  Sequence& small = h.submit(prompt_of(6), 1);  // a hit whose replay reaches back to the beginning is no cut
  h.step();
  EXPECT_EQ(small.num_cached_tokens, 4);
  EXPECT_TRUE(small.cuts.empty());
}

TEST(Scheduler, ExactReplayLeavesNoCut) {
  Harness h(options_of(64, 8, {.tokens = 6, .exact = true}), 64);
  h.submit(prompt_of(18), 1);
  h.step();
  Sequence& again = h.submit(prompt_of(22), 1);
  EXPECT_EQ(h.step()[0].num_tokens, 12);
  EXPECT_TRUE(again.cuts.empty());
  EXPECT_EQ(h.submit(prompt_of(22), 1).keys, again.keys) << "as if nothing had been found";
}

TEST(Scheduler, RowsThatAreNotReadyLeaveTheirBudgetToOthers) {
  Harness h(options_of(10), 64);
  Sequence& held = h.submit(prompt_of(12), 2);
  held.num_ready_tokens = 3;
  Sequence& other = h.submit(prompt_of(20, 100), 2);
  auto plan = h.step();
  ASSERT_EQ(plan.size(), 2u);
  EXPECT_EQ(plan[0].num_tokens, 3);
  EXPECT_FALSE(plan[0].wants_logits);
  EXPECT_EQ(plan[1].num_tokens, 7);
  plan = h.step();
  ASSERT_EQ(plan.size(), 1u);
  EXPECT_EQ(plan[0].sequence, &other);
  EXPECT_EQ(plan[0].num_tokens, 10);
  held.num_ready_tokens = Sequence::kAllReady;
  plan = h.step();
  EXPECT_EQ(plan[0].sequence, &held);
  EXPECT_EQ(plan[0].num_tokens, 9);
  EXPECT_TRUE(plan[0].wants_logits);
}

class SchedulerSchedules : public testing::TestWithParam<Replay> {};

// Holds some sequences, each at a place of its prompt, and lets others go on.
void hold_some(Harness& h, Rng& rng) {
  for (const auto& sequence : h.all) {
    const bool held = Harness::is_held(*sequence);
    if (rng.below(held ? 4 : 40) != 0) continue;
    sequence->num_ready_tokens = held ? Sequence::kAllReady : static_cast<int32_t>(rng.below(static_cast<uint64_t>(sequence->num_prompt_tokens)));
  }
}

// Random arrivals (many with common prefixes, some with several choices), cancels, rows that are not ready, tiny pools and budgets. The harness checks the
// invariants after each step; here: everybody ends, in bounded time, and every block comes back.
TEST_P(SchedulerSchedules, KeepTheInvariantsAndEnd) {
  uint64_t num_preemptions = 0, num_hits = 0, num_cuts = 0, num_rebuilt = 0;
  for (uint64_t seed = 0; seed < 150; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Rng rng(seed);
    const auto budget = static_cast<int32_t>(1 + rng.below(rng.below(2) ? 6 : 60));
    const auto num_blocks = static_cast<int32_t>(4 + rng.below(24));
    Harness h(options_of(budget, static_cast<int32_t>(1 + rng.below(6)), GetParam()), num_blocks);
    const int32_t capacity = num_blocks * kBlockTokens;
    int num_to_submit = 25, num_steps = 0;
    while (num_to_submit > 0 || !h.scheduler.running().empty() || !h.scheduler.waiting().empty()) {
      ASSERT_LT(++num_steps, 30000) << "no progress";
      while (num_to_submit > 0 && rng.below(4) == 0) {
        num_to_submit -= 1;
        const auto total = static_cast<int32_t>(2 + rng.below(static_cast<uint64_t>(capacity - 1)));
        const auto length = static_cast<int32_t>(1 + rng.below(static_cast<uint64_t>(total - 1)));
        Sequence& first = h.add(prompt_of(length, static_cast<TokenId>(rng.below(3) * 1000)), total - length);
        std::vector<Sequence*> choices{&first};
        for (uint64_t n = rng.below(5) == 0 ? rng.below(4) : 0; n > 0; --n) choices.push_back(&h.add(first.tokens, total - length, &first));
        for (Sequence* choice : choices) h.scheduler.submit(*choice);
        h.check();
      }
      if (!h.all.empty() && rng.below(40) == 0) {
        Sequence& victim = *h.all[rng.below(h.all.size())];
        if (victim.state == Sequence::State::kRunning || victim.state == Sequence::State::kWaiting) h.scheduler.end(victim);
        h.check();
      }
      if (seed % 4 == 0) hold_some(h, rng);
      h.step();
      for (const Sequence* s : h.scheduler.running()) num_rebuilt += !s->in_last_segment();
      if (HasFatalFailure()) return;
    }
    for (const auto& sequence : h.all) {
      ASSERT_EQ(sequence->state, Sequence::State::kEnded);
      num_cuts += sequence->cuts.size();
      num_hits += static_cast<uint64_t>(sequence->num_cached_tokens);
    }
    ASSERT_EQ(h.pool.num_in_use(), 0);
    num_preemptions += h.scheduler.num_preemptions();
  }
  EXPECT_GT(num_preemptions, 100u);  // the schedules did reach what they are for
  EXPECT_GT(num_hits, 1000u);
  if (!GetParam().exact) {
    EXPECT_GT(num_cuts, 100u);
    EXPECT_GT(num_rebuilt, 20u) << "some had lost blocks before their last cut";
  }
}

INSTANTIATE_TEST_SUITE_P(Replays, SchedulerSchedules,
                         testing::Values(Replay{}, Replay{.tokens = 3, .exact = false}, Replay{.tokens = 6, .exact = false}, Replay{.tokens = 9, .exact = true}),
                         [](const auto& info) { return (info.param.exact ? "Exact" : "Bounded") + std::to_string(info.param.tokens); });

TEST(Scheduler, TheSameCallsGiveTheSamePlans) {
  const auto run = [] {
    Harness h(options_of(9, 3), 10);
    std::string log;
    Rng rng(7);
    for (int i = 0; i < 200; ++i) {
      if (i < 12) h.submit(prompt_of(static_cast<int32_t>(1 + rng.below(14)), static_cast<TokenId>(rng.below(2) * 100)), 6);
      for (const auto& entry : h.step()) {
        log += std::to_string(entry.sequence->order) + ":" + std::to_string(entry.num_tokens) + " ";
        for (const kv::BlockId block : entry.sequence->blocks) log += std::to_string(block) + ",";
      }
    }
    return log;
  };
  EXPECT_EQ(run(), run());
}

}  // namespace
}  // namespace deepinfer::sched
