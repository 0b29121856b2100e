#include "base/seal.h"

#include <gtest/gtest.h>

namespace deepinfer {
namespace {

TEST(Sealer, OpensWhatItSealed) {
  const Sealer sealer = Sealer::from_secret("one");
  for (const std::string& text : {std::string(), std::string("x"), std::string("\0\xff é", 5), std::string(100'000, 'a')}) {
    const std::string sealed = sealer.seal(text, "who");
    EXPECT_EQ(sealer.open(sealed, "who"), text);
    EXPECT_EQ(Sealer::from_secret("one").open(sealed, "who"), text);
    EXPECT_NE(sealer.seal(text, "who"), sealed) << "a nonce was used twice";
    EXPECT_EQ(sealed.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"), std::string::npos);
  }
}

TEST(Sealer, OpensNothingElse) {
  const Sealer sealer = Sealer::with_random_key();
  const std::string sealed = sealer.seal("the text", "tenant a");
  EXPECT_EQ(sealer.open(sealed, "tenant b"), std::nullopt);
  EXPECT_EQ(sealer.open(sealed, ""), std::nullopt);
  EXPECT_EQ(Sealer::with_random_key().open(sealed, "tenant a"), std::nullopt);
  EXPECT_EQ(Sealer::from_secret("x").open(sealed, "tenant a"), std::nullopt);
  for (size_t i = 0; i < sealed.size(); ++i) {
    std::string changed = sealed;
    changed[i] = changed[i] == 'A' ? 'B' : 'A';
    EXPECT_EQ(sealer.open(changed, "tenant a"), std::nullopt) << i;
    EXPECT_EQ(sealer.open(sealed.substr(0, i), "tenant a"), std::nullopt) << i;
  }
  EXPECT_EQ(sealer.open(sealed + "A", "tenant a"), std::nullopt);
  EXPECT_EQ(sealer.open(sealed + "=", "tenant a"), std::nullopt);
  EXPECT_EQ(sealer.open("not base64 \xff", "tenant a"), std::nullopt);
}

}  // namespace
}  // namespace deepinfer
