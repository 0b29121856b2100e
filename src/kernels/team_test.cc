#include "kernels/team.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <sched.h>

#include <atomic>
#include <chrono>
#include <numeric>
#include <thread>
#include <vector>

#include "base/clock.h"

namespace deepinfer {
namespace {

class WorkersSize : public testing::TestWithParam<int> {};

TEST_P(WorkersSize, EveryThreadRunsOnceWithItsIndex) {
  auto workers = Workers::create(GetParam());
  ASSERT_EQ(workers->size(), GetParam());
  std::vector<int> runs(GetParam());
  for (int repeat = 0; repeat < 200; ++repeat) {
    workers->run([&](Team& team) {
      EXPECT_EQ(team.size(), GetParam());
      ++runs[team.index()];  // plain: each thread has its own, and run() orders them
    });
  }
  for (int count : runs) EXPECT_EQ(count, 200);
}

TEST_P(WorkersSize, NobodyPassesABarrierBeforeAllArrive) {
  auto workers = Workers::create(GetParam());
  std::vector<int64_t> values(GetParam());
  std::atomic<int> wrong{0};
  workers->run([&](Team& team) {
    for (int64_t round = 1; round <= 300; ++round) {
      values[team.index()] = round;  // plain memory: the barrier must order it
      team.barrier();
      for (int64_t value : values)
        if (value != round) wrong.fetch_add(1);
      team.barrier();
    }
  });
  EXPECT_EQ(wrong.load(), 0);
}

TEST_P(WorkersSize, RangesCoverOnceAndDifferByOne) {
  auto workers = Workers::create(GetParam());
  for (int64_t n : {0, 1, 2, 7, 64, 1001}) {
    std::vector<int> covered(n);
    std::vector<int64_t> sizes(GetParam());
    workers->run([&](Team& team) {
      const auto [begin, end] = team.range(n);
      sizes[team.index()] = end - begin;
      for (int64_t i = begin; i < end; ++i) ++covered[i];
    });
    for (int count : covered) EXPECT_EQ(count, 1);
    const auto [low, high] = std::minmax_element(sizes.begin(), sizes.end());
    EXPECT_LE(*high - *low, 1);
  }
}

TEST_P(WorkersSize, TicketsAreHandedOutOnceAndStartAgain) {
  auto workers = Workers::create(GetParam());
  constexpr int64_t kTickets = 500;
  std::vector<std::atomic<int>> taken(kTickets);
  workers->run([&](Team& team) {
    for (int round = 0; round < 3; ++round) {
      team.reset_tickets();
      for (int64_t ticket; (ticket = team.next_ticket()) < kTickets;) taken[ticket].fetch_add(1);
    }
  });
  for (auto& count : taken) EXPECT_EQ(count.load(), 3);
}

// 5 is more than some machines have: the threads must still all come to the barrier.
INSTANTIATE_TEST_SUITE_P(Sizes, WorkersSize, testing::Values(1, 2, 3, 5));

TEST(Workers, DefaultIsAtLeastOneThread) {
  auto workers = Workers::create(0);
  EXPECT_GE(workers->size(), 1);
  // Pinning the caller must not shrink what a later default sees.
  workers->pin_caller();
  workers->run([](Team&) {});
  EXPECT_EQ(Workers::create(0)->size(), workers->size());
}

TEST(Workers, OnlyACallerThatAsksIsPinned) {
  const auto num_processors = [] {
    cpu_set_t set;
    CPU_ZERO(&set);
    EXPECT_EQ(pthread_getaffinity_np(pthread_self(), sizeof set, &set), 0);
    return CPU_COUNT(&set);
  };
  const int before = num_processors();
  if (before < 2) GTEST_SKIP() << "one processor";
  {
    auto workers = Workers::create(2);
    workers->run([](Team&) {});
    EXPECT_EQ(num_processors(), before);
    workers->pin_caller();
    EXPECT_EQ(num_processors(), 1);
  }
  EXPECT_EQ(num_processors(), before);
}

TEST(Workers, MayBeUsedFromAnotherThread) {
  auto workers = Workers::create(2);
  for (int caller = 0; caller < 3; ++caller) {
    std::thread([&] {
      std::atomic<int> sum{0};
      workers->run([&](Team& team) { sum += team.index() + 1; });
      EXPECT_EQ(sum.load(), 3);
    }).join();
  }
}

TEST(Workers, SayWhetherTheyLeaveAProcessor) {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  ASSERT_EQ(sched_getaffinity(0, sizeof allowed, &allowed), 0);
  EXPECT_FALSE(Workers::create(CPU_COUNT(&allowed))->leave_processor());
  if (Workers::create(0)->size() > 1) {
    EXPECT_TRUE(Workers::create(1)->leave_processor());
  }
}

TEST(Workers, IdleWorkersUseNoProcessor) {
  auto workers = Workers::create(2);
  workers->run([](Team&) {});
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // past the time they stay awake
  const double before_s = process_cpu_seconds();
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  EXPECT_LT(process_cpu_seconds() - before_s, 0.050);  // a spinning worker would use 0.2
}

// At a barrier and at a run's end alike: a thread that waits for one whose processor others use leaves them its own.
TEST(Workers, WhoWaitsLongUsesNoProcessor) {
  for (const int size : {2, 5}) {
    auto workers = Workers::create(size);
    for (const bool at_barrier : {true, false}) {
      for (int late = 0; late < size; ++late) {
        const double before_s = process_cpu_seconds();
        workers->run([&](Team& team) {
          if (team.index() == late) std::this_thread::sleep_for(std::chrono::milliseconds(100));
          if (at_barrier) team.barrier();
        });
        EXPECT_LT(process_cpu_seconds() - before_s, 0.050) << size << ", " << late;  // one that only waits would use 0.1
      }
    }
  }
}

}  // namespace
}  // namespace deepinfer
