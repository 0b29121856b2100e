#include "base/float8.h"

#include <gtest/gtest.h>

namespace deepinfer {
namespace {

TEST(E4m3, EveryCodeSurvivesTheRoundTrip) {
  for (uint32_t bits = 0; bits < 256; ++bits) {
    const e4m3 x{static_cast<uint8_t>(bits)};
    if ((bits & 0x7f) == 0x7f) {
      EXPECT_TRUE(std::isnan(to_f32(x)));
      EXPECT_TRUE(std::isnan(to_f32(to_e4m3(to_f32(x)))));
    } else {
      EXPECT_EQ(to_e4m3(to_f32(x)).bits, bits);
    }
  }
  EXPECT_EQ(to_f32(e4m3{0x7e}), 448.0f);
  EXPECT_EQ(to_f32(e4m3{0x38}), 1.0f);
  EXPECT_EQ(to_f32(e4m3{0x01}), 0x1p-9f);
  EXPECT_EQ(to_f32(e4m3{0x08}), 0x1p-6f);
}

TEST(E4m3, RoundsToNearestEvenAndSaturates) {
  for (uint32_t bits = 0; bits < 0x7e; ++bits) {
    const float low = to_f32(e4m3{static_cast<uint8_t>(bits)}), high = to_f32(e4m3{static_cast<uint8_t>(bits + 1)});
    const float middle = (low + high) / 2;
    EXPECT_EQ(to_e4m3(std::nextafter(middle, low)).bits, bits);
    EXPECT_EQ(to_e4m3(std::nextafter(middle, high)).bits, bits + 1);
    EXPECT_EQ(to_e4m3(middle).bits, bits + (bits & 1));
    EXPECT_EQ(to_e4m3(-middle).bits, 0x80 | (bits + (bits & 1)));
  }
  EXPECT_EQ(to_e4m3(1e9f).bits, 0x7e);
  EXPECT_EQ(to_e4m3(-std::numeric_limits<float>::infinity()).bits, 0xfe);
}

TEST(E8m0, PowersOfTwo) {
  EXPECT_EQ(to_f32(e8m0{127}), 1.0f);
  EXPECT_EQ(to_f32(e8m0{0}), 0x1p-127f);
  EXPECT_EQ(to_f32(e8m0{254}), 0x1p127f);
  EXPECT_TRUE(std::isnan(to_f32(e8m0{255})));
  EXPECT_EQ(ceil_e8m0(1.0f).bits, 127);
  EXPECT_EQ(ceil_e8m0(std::nextafter(1.0f, 2.0f)).bits, 128);
  EXPECT_EQ(ceil_e8m0(0.75f).bits, 127);
}

TEST(E2m1, RoundsToNearestEvenAndSaturates) {
  for (uint32_t code = 0; code < 16; ++code) EXPECT_EQ(to_e2m1(e2m1_to_f32(code)), code);
  for (uint32_t code = 0; code < 7; ++code) {
    const float low = e2m1_to_f32(code), high = e2m1_to_f32(code + 1), middle = (low + high) / 2;
    EXPECT_EQ(to_e2m1(std::nextafter(middle, low)), code);
    EXPECT_EQ(to_e2m1(std::nextafter(middle, high)), code + 1);
    EXPECT_EQ(to_e2m1(middle), code + (code & 1));
  }
  EXPECT_EQ(to_e2m1(100.0f), 7);
  EXPECT_EQ(to_e2m1(-100.0f), 15);
}

}  // namespace
}  // namespace deepinfer
