#include "image/patches.h"

#include <gtest/gtest.h>

namespace deepinfer::image {
namespace {

struct Case {
  int32_t width, height, box_width, box_height, token_rows, token_columns, num_tokens;
};

// Design: the table of plans frozen in the model's specification.
TEST(Patches, PlansMeetTheFrozenTable) {
  for (const Case& c : {Case{544, 544, 546, 546, 13, 13, 184}, {100, 50, 770, 392, 10, 19, 202}, {1920, 1080, 1708, 966, 23, 41, 968},
                        {1344, 1344, 1302, 1302, 31, 31, 994}, {1, 5000, 42, 21462, 511, 1, 1024}, {5000, 1, 38472, 14, 1, 916, 919}}) {
    SCOPED_TRACE(std::to_string(c.width) + " x " + std::to_string(c.height));
    const Result<PatchPlan> plan = plan_patches(c.width, c.height, {});
    ASSERT_TRUE(plan) << plan.error().message;
    EXPECT_EQ(plan->width, c.box_width);
    EXPECT_EQ(plan->height, c.box_height);
    EXPECT_EQ(plan->token_rows, c.token_rows);
    EXPECT_EQ(plan->token_columns, c.token_columns);
    EXPECT_EQ(plan->num_tokens(), c.num_tokens);
  }
}

TEST(Patches, EveryShapeFitsItsBudget) {
  const PatchOptions options;
  for (int32_t width = 1; width < 70000; width = width * 3 / 2 + 1) {
    for (int32_t height = 1; height < 70000; height = height * 3 / 2 + 1) {
      const Result<PatchPlan> plan = plan_patches(width, height, options);
      ASSERT_TRUE(plan) << width << " x " << height << ": " << plan.error().message;
      EXPECT_LE(plan->num_tokens(), options.max_tokens);
      EXPECT_EQ(plan->width % options.patch_size, 0);
      EXPECT_EQ(plan->height % options.patch_size, 0);
    }
  }
}

TEST(Patches, WidePicturesAreSqueezedWhereTheModelSaysSo) {
  const Result<PatchPlan> plan = plan_patches(4000, 100, {.max_wh_ratio = 8.0});
  ASSERT_TRUE(plan);
  EXPECT_TRUE(plan->stretch);
  EXPECT_LT(plan->width, 9 * plan->height);
  EXPECT_FALSE(plan_patches(400, 100, {.max_wh_ratio = 8.0})->stretch);
}

TEST(Patches, AreCutChannelByChannel) {
  const PatchOptions options{.patch_size = 2, .downsample_ratio = 1, .max_tokens = 64, .min_pixels = 1, .max_wh_ratio = {}};
  Picture picture{.width = 4, .height = 2, .rgb = {}};
  for (uint8_t i = 0; i < 24; ++i) picture.rgb.push_back(i);
  const Result<PatchPlan> plan = plan_patches(4, 2, options);
  ASSERT_TRUE(plan);
  const std::vector<bf16> patches = make_patches(picture.rgb, picture.width, options);
  ASSERT_EQ(patches.size(), 24u);
  const int order[] = {0, 3, 12, 15, 1, 4, 13, 16, 2, 5, 14, 17, 6, 9, 18, 21, 7, 10, 19, 22, 8, 11, 20, 23};
  for (size_t i = 0; i < 24; ++i) {
    EXPECT_EQ(patches[i].bits, to_bf16((static_cast<float>(order[i]) / 255.0f - 0.5f) / 0.5f).bits) << i;
  }
}

}  // namespace
}  // namespace deepinfer::image
