#include "base/hash.h"

#include <gtest/gtest.h>

namespace deepinfer {
namespace {

TEST(Blake2b, KnownAnswer) {  // BLAKE2b-256("abc")
  EXPECT_EQ(blake2b_256(bytes_of("abc")).hex(), "bddd813c634239723171ef3fee98579b94964e3bb1cb3e427262c8c068d52319");
}

TEST(Blake2b, TheKeyMatters) {
  EXPECT_NE(blake2b_256(bytes_of("abc"), bytes_of("k1")), blake2b_256(bytes_of("abc"), bytes_of("k2")));
  EXPECT_NE(blake2b_256(bytes_of("abc"), bytes_of("k1")), blake2b_256(bytes_of("abc")));
}

TEST(Blake2b, InPiecesIsTheSame) {
  for (const std::string_view key : {std::string_view(), std::string_view("secret")}) {
    Blake2b256 hash(bytes_of(key));
    hash.update(bytes_of("ab"));
    hash.update({});
    hash.update(bytes_of("c"));
    EXPECT_EQ(hash.finish(), blake2b_256(bytes_of("abc"), bytes_of(key)));
  }
}

TEST(Xxh3, PiecesAreOneMessage) {
  EXPECT_EQ(xxh3_128({bytes_of("ab"), bytes_of("c")}), xxh3_128({bytes_of("abc")}));
  EXPECT_FALSE(xxh3_128({bytes_of("abc")}) == xxh3_128({bytes_of("abd")}));
  EXPECT_EQ(xxh3_128({}).low, 0x6001c324468d497full);  // XXH3-128 of nothing: 99aa06d3014798d86001c324468d497f
}

TEST(Random256, Differs) { EXPECT_NE(random_256(), random_256()); }

}  // namespace
}  // namespace deepinfer
