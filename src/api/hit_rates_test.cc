#include "api/hit_rates.h"

#include <gtest/gtest.h>

namespace deepinfer::api {
namespace {

TEST(HitRates, TellAFallOnceAndAgainAfterARise) {
  HitRates rates;
  const auto falls = [&](const std::string& tenant, int requests, int64_t cached) {
    int count = 0;
    for (int i = 0; i < requests; ++i)
      if (const auto fall = rates.add(tenant, 1000, cached)) {
        ++count;
        EXPECT_GE(fall->usual, HitRates::kLeastUsual);
        EXPECT_LT(fall->late, fall->usual * HitRates::kFallen);
      }
    return count;
  };
  EXPECT_EQ(falls("acme", 300, 800), 0);
  EXPECT_EQ(falls("other", 300, 800), 0);
  EXPECT_EQ(falls("acme", 10, 0), 0) << "a few requests of another kind are no fall";
  EXPECT_EQ(falls("acme", 100, 0), 1);
  EXPECT_EQ(falls("other", 100, 800), 0);
  EXPECT_EQ(falls("acme", 200, 800), 0);
  EXPECT_EQ(falls("acme", 100, 0), 1);
}

TEST(HitRates, TellNothingWhereNothingIsUsual) {
  HitRates rates;
  for (int i = 0; i < 50; ++i) EXPECT_FALSE(rates.add("new", 1000, 900));
  for (int i = 0; i < 45; ++i) EXPECT_FALSE(rates.add("new", 1000, 0)) << "too few requests to have a habit";
  for (int i = 0; i < 1000; ++i) EXPECT_FALSE(rates.add("never", 1000, i % 10 == 0 ? 1000 : 0));
  for (int i = 0; i < 1000; ++i) EXPECT_FALSE(rates.add("empty", 0, 0));
}

// A long prompt counts as its tokens do.
TEST(HitRates, WeighTokens) {
  HitRates rates;
  for (int i = 0; i < 300; ++i) EXPECT_FALSE(rates.add("t", 10'000, 9'000));
  for (int i = 0; i < 300; ++i) {
    EXPECT_FALSE(rates.add("t", 10'000, 9'000));
    EXPECT_FALSE(rates.add("t", 10, 0));
  }
}

}  // namespace
}  // namespace deepinfer::api
