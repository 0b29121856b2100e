#include "base/hash.h"

#include <gtest/gtest.h>

namespace deepinfer {
namespace {

std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

TEST(Blake2b, KnownAnswer) {  // BLAKE2b-256("abc")
  EXPECT_EQ(blake2b_256(bytes_of("abc")).hex(), "bddd813c634239723171ef3fee98579b94964e3bb1cb3e427262c8c068d52319");
}

TEST(Blake2b, TheKeyMatters) {
  EXPECT_NE(blake2b_256(bytes_of("abc"), bytes_of("k1")), blake2b_256(bytes_of("abc"), bytes_of("k2")));
  EXPECT_NE(blake2b_256(bytes_of("abc"), bytes_of("k1")), blake2b_256(bytes_of("abc")));
}

}  // namespace
}  // namespace deepinfer
