#include "kv/store_clock.h"

#include <gtest/gtest.h>

#include "kv/store_world.h"

namespace deepinfer::kv {
namespace {

constexpr int64_t kDay = 86'400;

TEST(StoreClock, AJumpOfTheWallClockChangesNothingWhileItRuns) {
  for (const int64_t jump : {10 * kDay, -10 * kDay}) {
    ManualTime time;
    StoreClock clock(time, 0);
    const int64_t begin = clock.now_s();
    time.advance(100);
    time.wall += jump;
    EXPECT_TRUE(clock.check());
    EXPECT_FALSE(clock.check()) << "told once";
    EXPECT_EQ(clock.now_s(), begin + 100);
    time.advance(50);
    EXPECT_EQ(clock.now_s(), begin + 150);
    time.wall -= jump;
    EXPECT_FALSE(clock.check());
    EXPECT_EQ(clock.now_s(), begin + 150);
  }
}

TEST(StoreClock, FollowsSmallCorrectionsForwardOnly) {
  ManualTime time;
  StoreClock clock(time, 0);
  time.wall += 20;
  EXPECT_FALSE(clock.check());
  EXPECT_EQ(clock.now_s(), time.wall_s());
  time.wall -= 10;
  EXPECT_FALSE(clock.check());
  EXPECT_EQ(clock.now_s(), time.wall_s() + 10);
}

TEST(StoreClock, NeverBeforeTheMark) {
  ManualTime time;
  StoreClock clock(time, time.wall_s() + 10 * kDay);
  EXPECT_EQ(clock.now_s(), time.wall_s() + 10 * kDay);
  EXPECT_FALSE(clock.in_doubt());
}

TEST(StoreClock, FarAfterTheMarkIsInDoubtForAnHour) {
  ManualTime time;
  StoreClock clock(time, time.wall_s() - 10 * kDay);
  EXPECT_TRUE(clock.in_doubt());
  time.advance(StoreClock::kGraceSeconds - 1);
  EXPECT_TRUE(clock.in_doubt());
  time.advance(1);
  EXPECT_FALSE(clock.in_doubt());
  EXPECT_FALSE(StoreClock(time, time.wall - kDay / 2).in_doubt());
  EXPECT_FALSE(StoreClock(time, 0).in_doubt());
}

// A machine that starts with a wrong clock has it set right a moment later.
TEST(StoreClock, SetBackInDoubtItStaysInDoubt) {
  ManualTime time;
  StoreClock clock(time, time.wall_s() - 10 * kDay);
  time.advance(60);
  const int64_t now = clock.now_s();
  time.wall -= 10 * kDay;
  EXPECT_TRUE(clock.check());
  EXPECT_EQ(clock.now_s(), now) << "what was not served comes not back";
  for (int hour = 0; hour < 100; ++hour) {
    time.advance(StoreClock::kGraceSeconds);
    EXPECT_FALSE(clock.check());
    EXPECT_TRUE(clock.in_doubt());
  }
  time.wall += 10 * kDay;  // no, it was right
  EXPECT_FALSE(clock.check());
  EXPECT_FALSE(clock.in_doubt());
  time.wall -= 10 * kDay;
  EXPECT_TRUE(clock.check());
  EXPECT_FALSE(clock.in_doubt()) << "the hour is long over";
}

}  // namespace
}  // namespace deepinfer::kv
