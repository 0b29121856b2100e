#include "base/base64.h"

#include <gtest/gtest.h>

namespace deepinfer {
namespace {

TEST(Base64, VectorsOfTheStandard) {  // RFC 4648, section 10
  for (const auto& [bytes, text] : {std::pair<std::string, std::string>{"", ""}, {"f", "Zg=="}, {"fo", "Zm8="}, {"foo", "Zm9v"}, {"foobar", "Zm9vYmFy"}}) {
    EXPECT_EQ(encode_base64(bytes), text);
    EXPECT_EQ(decode_base64(text), bytes);
  }
  EXPECT_EQ(encode_base64("\xfb\xff", Base64::kStandard), "+/8=");
  EXPECT_EQ(encode_base64("\xfb\xff", Base64::kUrlUnpadded), "-_8");
}

TEST(Base64, EveryLengthComesBackAndOtherVariantsDoNot) {
  std::string bytes;
  for (int i = 0; i < 70; ++i) {
    for (const Base64 variant : {Base64::kStandard, Base64::kUrlUnpadded}) EXPECT_EQ(decode_base64(encode_base64(bytes, variant), variant), bytes);
    bytes += static_cast<char>(i * 37);
  }
  for (const char* text : {"Zg", "Z", "Zg==x", "Zg=x", "Z\xff==", "-_8="}) EXPECT_FALSE(decode_base64(text)) << text;
  for (const char* text : {"Zg==", "+/8", "Z"}) EXPECT_FALSE(decode_base64(text, Base64::kUrlUnpadded)) << text;
}

}  // namespace
}  // namespace deepinfer
