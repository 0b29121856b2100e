#include "image/resize.h"

#include <gtest/gtest.h>

#include <string>

#include "image/ppm.h"

namespace deepinfer::image {
namespace {

TEST(Resize, HasTheBitsOfPillow) {
  const Picture picture = read_ppm(image_path("rgb.ppm"));
  for (const auto& [width, height] : {std::pair{23, 40}, {9, 17}, {64, 5}, {3, 2}}) {
    const Picture expected = read_ppm(image_path("rgb_" + std::to_string(width) + "x" + std::to_string(height) + ".ppm"));
    EXPECT_EQ(resize_bicubic(picture, width, height).rgb, expected.rgb) << width << " x " << height;
  }
  EXPECT_EQ(resize_bicubic(picture, picture.width, picture.height).rgb, picture.rgb);
}

TEST(Resize, PadsWithGreyInTheMiddle) {
  const Picture picture{.width = 4, .height = 2, .rgb = std::vector<uint8_t>(24, 10)};
  const Picture tall = pad_to(picture, 4, 5);  // one and a half rows above: Python rounds 1.5 to 2
  for (size_t y = 0; y < 5; ++y) EXPECT_EQ(tall.rgb[y * 12], y == 2 || y == 3 ? 10 : 127) << y;
  const Picture wide = pad_to(picture, 9, 2);
  for (size_t x = 0; x < 9; ++x) EXPECT_EQ(wide.rgb[x * 3], x >= 2 && x < 6 ? 10 : 127) << x;
}

// A shape so narrow that its share of the box rounds to nothing keeps one pixel.
TEST(Resize, NeverLosesAPicture) {
  const Picture line{.width = 1, .height = 65000, .rgb = std::vector<uint8_t>(65000 * 3, 200)};
  const Picture small = pad_to(line, 14, 14);
  EXPECT_EQ(std::count(small.rgb.begin(), small.rgb.end(), 200), 14 * 3);
}

}  // namespace
}  // namespace deepinfer::image
