#include "image/decode.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "image/ppm.h"

namespace deepinfer::image {
namespace {

std::string read_image(const std::string& name) { return read_file(image_path(name)); }

Result<Picture> decode_text(const std::string& file, const DecodeLimits& limits = {}) {
  return decode(std::as_bytes(std::span(file)), limits);
}

class Files : public ::testing::TestWithParam<const char*> {};

TEST_P(Files, DecodeToWhatPillowSees) {
  const std::string name = GetParam();
  const Result<Picture> picture = decode_text(read_image(name));
  ASSERT_TRUE(picture) << picture.error().message;
  const Picture expected = read_ppm(image_path(name.substr(0, name.find('.')) + ".ppm"));
  ASSERT_EQ(picture->width, expected.width);
  ASSERT_EQ(picture->height, expected.height);
  int worst = 0;
  for (size_t i = 0; i < expected.rgb.size(); ++i) worst = std::max(worst, std::abs(picture->rgb[i] - expected.rgb[i]));
  EXPECT_LE(worst, name == "ink.jpg" ? 1 : 0);  // the products of CMYK round otherwise
}

// Every cut and every flipped byte ends in a picture or an error: the sanitizers see the rest.
TEST_P(Files, DamageIsAnErrorOrAPicture) {
  const std::string file = read_image(GetParam());
  int refused = 0;
  for (size_t size = 0; size < file.size(); ++size) refused += !decode_text(file.substr(0, size));
  // The last bytes of some formats carry nothing, and what follows the first frame is not read.
  const bool frames = std::string(GetParam()) == "frames.gif";
  EXPECT_GT(refused, static_cast<int>(file.size() * 9 / (frames ? 20 : 10))) << "cut files";
  for (size_t at = 0; at < file.size(); ++at) {
    for (const int bit : {0, 3, 7}) {
      std::string damaged = file;
      damaged[at] = static_cast<char>(damaged[at] ^ (1 << bit));
      const Result<Picture> picture = decode_text(damaged, {.max_bytes = 1 << 20, .max_pixels = 100000});
      if (picture) {
        EXPECT_EQ(picture->rgb.size(), static_cast<size_t>(picture->width) * static_cast<size_t>(picture->height) * 3);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, Files,
                         ::testing::Values("baseline.jpg", "progressive.jpg", "grey.jpg", "ink.jpg", "rgb.png", "alpha.png", "palette.png", "bits.png",
                                           "grey_alpha.png", "lossy.webp", "lossless.webp", "moving.webp", "still.gif", "frames.gif"),
                         [](const auto& info) {
                           std::string name = info.param;
                           name[name.find('.')] = '_';
                           return name;
                         });

// The headers claim sizes that would take gigabytes; a byte limit comes before any reading.
TEST(Decode, BoundsSizesBeforeDecoding) {
  const auto refused = [](std::string file, size_t at, const std::string& bytes) {
    const Result<Picture> picture = decode_text(file.replace(at, bytes.size(), bytes));
    ASSERT_FALSE(picture);
    EXPECT_EQ(picture.error().code, Code::kResourceExhausted) << picture.error().message;
    EXPECT_NE(picture.error().message.find("limit"), std::string::npos);
  };
  refused(read_image("still.gif"), 6, std::string("\xff\xff\xff\xff", 4));
  std::string jpeg = read_image("baseline.jpg");
  refused(jpeg, jpeg.find("\xff\xc0") + 5, std::string("\xfd\xe8\xfd\xe8", 4));
  const Result<Picture> large = decode_text(read_image("rgb.png"), {.max_bytes = 100, .max_pixels = 1000});
  ASSERT_FALSE(large);
  EXPECT_EQ(large.error().code, Code::kResourceExhausted);
  const Result<Picture> many = decode_text(read_image("rgb.png"), {.max_bytes = 1 << 20, .max_pixels = 23 * 17 - 1});
  ASSERT_FALSE(many);
  EXPECT_NE(many.error().message.find("23 x 17"), std::string::npos) << many.error().message;
}

TEST(Decode, StrayBytesBetweenSegmentsLeaveAJpegWhole) {
  std::string jpeg = read_image("baseline.jpg");
  jpeg.insert(jpeg.find("\xff\xda"), "xx");
  const Result<Picture> picture = decode_text(jpeg);
  ASSERT_TRUE(picture) << picture.error().message;
  EXPECT_EQ(picture->rgb, read_ppm(image_path("baseline.ppm")).rgb);
}

TEST(Decode, TellsFormatsByTheirFirstBytes) {
  for (const char* text : {"", "BM\x01\x02", "<svg/>", "RIFF\x10\0\0\0WAVE", "GIF90a", "\x89PNG"}) {
    const Result<Picture> picture = decode_text(text);
    ASSERT_FALSE(picture) << text;
    EXPECT_EQ(picture.error().code, Code::kUnsupported);
  }
}

}  // namespace
}  // namespace deepinfer::image
