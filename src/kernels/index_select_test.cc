#include "kernels/index_select.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <limits>
#include <vector>

#include "base/half.h"
#include "base/rng.h"

namespace deepinfer {
namespace {

constexpr float kNone = -std::numeric_limits<float>::infinity();

std::vector<int32_t> top(std::vector<float> scores, int32_t k, Isa isa = default_isa()) {
  std::vector<int32_t> out(scores.size() + 1);
  out.resize(static_cast<size_t>(select_top(scores, k, out.data(), isa)));
  return out;
}

TEST(SelectTop, AscendingPositionsLowerFirstAmongEquals) {
  EXPECT_EQ(top({1, 3, 2, 3, 3, 0}, 2), (std::vector<int32_t>{1, 3}));
  EXPECT_EQ(top({1, 3, 2, 3, 3, 0}, 4), (std::vector<int32_t>{1, 2, 3, 4}));
  EXPECT_EQ(top({1, 3}, 4), (std::vector<int32_t>{0, 1}));
  EXPECT_EQ(top({}, 4), (std::vector<int32_t>{}));
  EXPECT_EQ(top({kNone, 1, kNone, 0}, 3), (std::vector<int32_t>{1, 3}));
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(top({nan, 1, nan, 0}, 3), (std::vector<int32_t>{1, 3}));
  EXPECT_EQ(top({nan, 1, nan, 0, 2}, 2), (std::vector<int32_t>{1, 4}));
}

TEST(SelectTop, IsASortOnAnyNumbers) {
  Rng rng(1);
  for (int round = 0; round < 300; ++round) {
    std::vector<float> scores(rng.next_u32() % 400);
    for (float& score : scores) {
      score = to_f32(to_bf16(static_cast<float>(rng.uniform() * 4 - 2)));
      if (rng.next_u32() % 3 == 0) score = to_f32(to_bf16(score * 1e-4f));
      if (rng.next_u32() % 7 == 0) score = rng.next_u32() % 2 ? 0.0f : -0.0f;
      if (rng.next_u32() % 9 == 0) score = kNone;
      if (rng.next_u32() % 50 == 0) score = -kNone;
    }
    std::vector<int32_t> order;
    for (size_t t = 0; t < scores.size(); ++t)
      if (scores[t] != kNone) order.push_back(static_cast<int32_t>(t));
    std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return scores[static_cast<size_t>(a)] > scores[static_cast<size_t>(b)]; });
    const auto k = static_cast<int32_t>(rng.next_u32() % 100);
    if (static_cast<int32_t>(order.size()) > k) order.resize(static_cast<size_t>(k));
    std::sort(order.begin(), order.end());
    for (const Isa isa : available_isas()) ASSERT_EQ(top(scores, k, isa), order) << round << " " << isa_name(isa);
  }
}

TEST(ChooseBlocks, TheLastBlockIsAlwaysIn) {
  const std::vector<float> scores{9, 0, 5, 0, 7, 0, 1};  // blocks of 2: 9 5 7 1
  std::vector<uint8_t> chosen(4);
  std::vector<float> block_scores(4);
  std::vector<int32_t> scratch(4);
  choose_blocks(scores, 2, 2, chosen.data(), block_scores.data(), scratch.data(), default_isa());
  EXPECT_EQ(chosen, (std::vector<uint8_t>{1, 0, 0, 1}));
  choose_blocks(scores, 2, 3, chosen.data(), block_scores.data(), scratch.data(), default_isa());
  EXPECT_EQ(chosen, (std::vector<uint8_t>{1, 0, 1, 1}));
}

}  // namespace
}  // namespace deepinfer
