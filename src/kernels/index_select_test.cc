#include "kernels/index_select.h"

#include <gtest/gtest.h>
#include <limits>
#include <vector>

namespace deepinfer {
namespace {

constexpr float kNone = -std::numeric_limits<float>::infinity();

std::vector<int32_t> top(std::vector<float> scores, int32_t k) {
  std::vector<int32_t> out(scores.size() + 1), scratch(scores.size() + 1);
  out.resize(static_cast<size_t>(select_top(scores, k, out.data(), scratch.data())));
  return out;
}

TEST(SelectTop, AscendingPositionsLowerFirstAmongEquals) {
  EXPECT_EQ(top({1, 3, 2, 3, 3, 0}, 2), (std::vector<int32_t>{1, 3}));
  EXPECT_EQ(top({1, 3, 2, 3, 3, 0}, 4), (std::vector<int32_t>{1, 2, 3, 4}));
  EXPECT_EQ(top({1, 3}, 4), (std::vector<int32_t>{0, 1}));
  EXPECT_EQ(top({}, 4), (std::vector<int32_t>{}));
  EXPECT_EQ(top({kNone, 1, kNone, 0}, 3), (std::vector<int32_t>{1, 3}));
}

TEST(ChooseBlocks, TheLastBlockIsAlwaysIn) {
  const std::vector<float> scores{9, 0, 5, 0, 7, 0, 1};  // blocks of 2: 9 5 7 1
  std::vector<uint8_t> chosen(4);
  std::vector<float> block_scores(4);
  std::vector<int32_t> scratch(8);
  choose_blocks(scores, 2, 2, chosen.data(), block_scores.data(), scratch.data());
  EXPECT_EQ(chosen, (std::vector<uint8_t>{1, 0, 0, 1}));
  choose_blocks(scores, 2, 3, chosen.data(), block_scores.data(), scratch.data());
  EXPECT_EQ(chosen, (std::vector<uint8_t>{1, 0, 1, 1}));
}

}  // namespace
}  // namespace deepinfer
