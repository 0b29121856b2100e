#include "base/units.h"

#include <gtest/gtest.h>

namespace deepinfer {
namespace {

TEST(Units, Sizes) {
  EXPECT_EQ(parse_size("4096").value(), 4096u);
  EXPECT_EQ(parse_size("8GiB").value(), 8ull << 30);
  EXPECT_EQ(parse_size("8gib").value(), 8ull << 30);
  EXPECT_EQ(parse_size("1.5KB").value(), 1500u);
  EXPECT_EQ(parse_size("2M").value(), 2u << 20);
  for (const char* bad : {"", "GiB", "-1", "8 GiB", "8GiBs", "nan", "inf", "1e400", "9999999TiB", "0x10"})
    EXPECT_FALSE(parse_size(bad)) << bad;
}

TEST(Units, Durations) {
  EXPECT_EQ(parse_duration("72h").value(), 72ll * 3600 * 1'000'000'000);
  EXPECT_EQ(parse_duration("250ms").value(), 250'000'000);
  EXPECT_EQ(parse_duration("2").value(), 2'000'000'000);
  for (const char* bad : {"", "h", "-1s", "1 s", "1w"}) EXPECT_FALSE(parse_duration(bad)) << bad;
}

TEST(Units, FormatSize) {
  EXPECT_EQ(format_size(0), "0 B");
  EXPECT_EQ(format_size(999), "999 B");
  EXPECT_EQ(format_size(3ull << 29), "1.50 GiB");
}

}  // namespace
}  // namespace deepinfer
