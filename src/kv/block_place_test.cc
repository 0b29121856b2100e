#include "kv/block_place.h"

#include <gtest/gtest.h>

#include "io/key_values.h"

namespace deepinfer::kv {
namespace {

BlockPlace place() {
  return {.tenant = std::string(31, '0') + "f", .name = "chat.1795000000.00000000a1b2c3d4.000007.seg", .page = 3, .length = 5000, .written_after_s = 77};
}

TEST(BlockPlace, TheBytesAreThoseOfTheDocument) {
  const std::string value = encode_place(place());
  EXPECT_EQ(value, "0000000000000000000000000000000f chat.1795000000.00000000a1b2c3d4.000007.seg 3 5000 77");
  const Result<BlockPlace> back = decode_place(value);
  ASSERT_TRUE(back);
  EXPECT_EQ(*back, place());
  BlockKey key;
  key.bytes.fill(0);
  key.bytes[31] = 0xff;
  EXPECT_EQ(index_key(key), "deepinfer:2:" + std::string(31, '\0') + "\xff");
  BlockPlace longest = place();
  longest.name = "a23456789012345." + std::string(19, '9') + ".00000000a1b2c3d4." + std::string(19, '9') + ".seg";
  longest.page = longest.length = 64u << 20;
  longest.written_after_s = INT32_MAX;
  EXPECT_LE(encode_place(longest).size(), io::KeyValues::kMaxValueBytes);
  EXPECT_TRUE(decode_place(encode_place(longest)));
}

TEST(BlockPlace, NothingElsePasses) {
  const std::string good = encode_place(place());
  for (size_t i = 0; i < good.size(); ++i) {
    EXPECT_FALSE(decode_place(good.substr(0, i)).has_value() && i < good.size() - 1) << i;  // a shorter number is a number
    for (const char c : {'/', ' ', '\0', '\n', '\xff'}) {
      std::string bad = good;
      if (bad[i] == c) continue;
      bad[i] = c;
      EXPECT_FALSE(decode_place(bad)) << bad;
    }
  }
  const auto refused = [](auto change) {
    BlockPlace bad = place();
    change(bad);
    return !decode_place(encode_place(bad));
  };
  EXPECT_TRUE(refused([](BlockPlace& p) { p.tenant = "../../../../../../../etc/passwd0"; }));
  EXPECT_TRUE(refused([](BlockPlace& p) { p.name = "../x.1.00000000a1b2c3d4.1.seg"; }));
  EXPECT_TRUE(refused([](BlockPlace& p) { p.name = "chat.1.2.3.seg"; }));
  EXPECT_TRUE(refused([](BlockPlace& p) { p.page = 0; }));
  EXPECT_TRUE(refused([](BlockPlace& p) { p.length = 0; }));
  EXPECT_TRUE(refused([](BlockPlace& p) { p.length = (64u << 20) + 1; }));
  EXPECT_TRUE(refused([](BlockPlace& p) { p.written_after_s = uint32_t{1} << 31; }));
  for (const char* bad : {"", " ", "   ", "a b c d e", "1 2 3 4 5"}) EXPECT_FALSE(decode_place(bad)) << bad;
  EXPECT_FALSE(decode_place(good + " "));
  EXPECT_FALSE(decode_place(good + "00000000"));
}

}  // namespace
}  // namespace deepinfer::kv
