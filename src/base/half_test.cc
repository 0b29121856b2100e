#include "base/half.h"

#include <cmath>
#include <gtest/gtest.h>

namespace deepinfer {
namespace {

TEST(Half, EveryF16SurvivesTheRoundTrip) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const f16 x{static_cast<uint16_t>(bits)};
    const float f = to_f32(x);
    if (std::isnan(f)) {
      EXPECT_TRUE(std::isnan(to_f32(to_f16(f))));
    } else {
      EXPECT_EQ(to_f16(f).bits, x.bits) << bits;
    }
  }
}

TEST(Half, F16RoundsToNearestEven) {
  for (uint32_t bits = 0; bits < 0x7bff; ++bits) {  // between each two neighbours: below, at and above the middle
    const float low = to_f32(f16{static_cast<uint16_t>(bits)}), high = to_f32(f16{static_cast<uint16_t>(bits + 1)});
    const float middle = (low + high) / 2;
    EXPECT_EQ(to_f16(std::nextafter(middle, low)).bits, bits);
    EXPECT_EQ(to_f16(std::nextafter(middle, high)).bits, bits + 1);
    EXPECT_EQ(to_f16(middle).bits, bits + (bits & 1));
  }
  EXPECT_EQ(to_f16(65520.0f).bits, 0x7c00);
  EXPECT_EQ(to_f16(std::nextafter(65520.0f, 0.0f)).bits, 0x7bff);
}

TEST(Half, EveryBf16SurvivesTheRoundTrip) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const bf16 x{static_cast<uint16_t>(bits)};
    const float f = to_f32(x);
    if (std::isnan(f)) {
      EXPECT_TRUE(std::isnan(to_f32(to_bf16(f))));
    } else {
      EXPECT_EQ(to_bf16(f).bits, x.bits) << bits;
    }
  }
}

TEST(Half, Bf16RoundsToNearestEven) {
  EXPECT_EQ(to_bf16(std::bit_cast<float>(0x3f808000u)).bits, 0x3f80);
  EXPECT_EQ(to_bf16(std::bit_cast<float>(0x3f818000u)).bits, 0x3f82);
  EXPECT_EQ(to_bf16(std::bit_cast<float>(0x3f808001u)).bits, 0x3f81);
  EXPECT_EQ(to_bf16(std::bit_cast<float>(0x7f7fffffu)).bits, 0x7f80);  // the largest float rounds to infinity
  EXPECT_TRUE(std::isnan(to_f32(to_bf16(std::bit_cast<float>(0x7f800001u)))));
}

}  // namespace
}  // namespace deepinfer
