#include "tokenizer/unicode.h"

#include <gtest/gtest.h>
#include <unicode/normalizer2.h>
#include <unicode/uchar.h>
#include <unicode/unistr.h>

#include <string>
#include <vector>

#include "base/rng.h"

namespace deepinfer::tokenizer {
namespace {

TEST(Unicode, ClassesAreThoseOfIcu) {
  EXPECT_STREQ(kUnicodeVersion, U_UNICODE_VERSION);
  for (uint32_t c = 0; c < 0x110000; ++c) {
    const auto u = static_cast<UChar32>(c);
    const uint32_t category = U_MASK(u_charType(u));
    const uint8_t got = class_of(c);
    ASSERT_EQ((got & kLetter) != 0, (category & U_GC_L_MASK) != 0) << c;
    ASSERT_EQ((got & kMark) != 0, (category & U_GC_M_MASK) != 0) << c;
    ASSERT_EQ((got & kNumber) != 0, (category & U_GC_N_MASK) != 0) << c;
    ASSERT_EQ((got & kPunctuation) != 0, (category & U_GC_P_MASK) != 0) << c;
    ASSERT_EQ((got & kSymbol) != 0, (category & U_GC_S_MASK) != 0) << c;
    ASSERT_EQ((got & kSpace) != 0, u_isUWhiteSpace(u) != 0) << c;
  }
  EXPECT_TRUE(class_of(0x4e00) & kCjkRange);
  EXPECT_FALSE(class_of(0x9fa6) & kCjkRange);
  EXPECT_TRUE(class_of(0x30fb) & kCjkRange);
}

TEST(Unicode, EncodesAndDecodesEveryCodePoint) {
  for (uint32_t c = 0; c < 0x110000; ++c) {
    if (c >= 0xd800 && c < 0xe000) continue;
    std::string text;
    append_utf8(c, text);
    const CodePoint got = decode_at(text, 0);
    ASSERT_EQ(got.value, c);
    ASSERT_EQ(got.size, text.size());
    const Subpart part = subpart_at(text, 0);
    ASSERT_EQ(part.kind, Subpart::kValid);
    ASSERT_EQ(part.size, text.size());
    for (size_t n = 1; n < text.size(); ++n) {
      ASSERT_EQ(decode_at(std::string_view(text).substr(0, n), 0).value, kInvalidByte);
      ASSERT_EQ(subpart_at(std::string_view(text).substr(0, n), 0).kind, Subpart::kUnfinished);
    }
  }
}

TEST(Unicode, MaximalSubparts) {
  // Table 3-8 of the Unicode standard, and its neighbours.
  struct Case {
    std::string_view bytes;
    std::vector<uint32_t> bad;  // sizes of the bad runs, in order
  };
  const Case cases[] = {
      {"\xc0\xaf", {1, 1}},
      {"\xe0\x80\xaf", {1, 1, 1}},
      {"\xed\xa0\x80", {1, 1, 1}},
      {"\xf4\x91\x92\x93\xff", {1, 1, 1, 1, 1}},
      {"\xe1\x80\xe2\xf0\x91\x92\xf1\xbf\x41", {2, 1, 3, 2}},
      {"\xf0\x90\x80z", {3}},
  };
  for (const Case& c : cases) {
    std::vector<uint32_t> bad;
    for (size_t pos = 0; pos < c.bytes.size();) {
      const Subpart part = subpart_at(c.bytes, pos);
      if (part.kind == Subpart::kBad) bad.push_back(part.size);
      pos += part.size;
    }
    EXPECT_EQ(bad, c.bad);
  }
}

std::string nfc_by_icu(const std::string& text) {
  UErrorCode status = U_ZERO_ERROR;
  std::string out;
  icu::Normalizer2::getNFCInstance(status)->normalize(icu::UnicodeString::fromUTF8(text), status).toUTF8String(out);
  return out;
}

TEST(Unicode, NormalisesLikeIcu) {
  static constexpr std::pair<uint32_t, uint32_t> kRanges[] = {
      {0x20, 0x7e}, {0xc0, 0x24f}, {0x300, 0x36f}, {0x900, 0x97f}, {0x1100, 0x11ff}, {0xac00, 0xd7a3},
      {0x1e00, 0x1fff}, {0xf900, 0xfaff}, {0x340, 0x345}, {0x0f40, 0x0fbc}, {0x1d15e, 0x1d164}, {0x2f800, 0x2fa1d},
  };
  Rng rng(1);
  size_t num_changed = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string text;
    for (uint64_t n = rng.below(12); n > 0; --n) {
      const auto [low, high] = kRanges[rng.below(std::size(kRanges))];
      append_utf8(low + static_cast<uint32_t>(rng.below(high - low + 1)), text);
    }
    std::string storage;
    const std::string_view got = to_nfc(text, storage);
    ASSERT_EQ(got, nfc_by_icu(text));
    num_changed += got != text;
  }
  EXPECT_GT(num_changed, 1000u);
}

TEST(Unicode, NormalisationKeepsBytesThatAreNotUtf8) {
  std::string storage;
  EXPECT_EQ(to_nfc("e\xcc\x81\xff\xfe" "e\xcc\x81\xc3", storage), "\xc3\xa9\xff\xfe\xc3\xa9\xc3");
  EXPECT_EQ(to_nfc("\xed\xa0\x80" "a\xcc\x8a", storage), "\xed\xa0\x80\xc3\xa5");
  const std::string_view same = "plain \xd0\xb6 \xe4\xb8\xad";
  EXPECT_EQ(to_nfc(same, storage).data(), same.data());
}

}  // namespace
}  // namespace deepinfer::tokenizer
