#include "apps/terminal.h"

#include <clocale>
#include <gtest/gtest.h>

namespace deepinfer::apps {
namespace {

TEST(Terminal, RowsOfAnEntry) {
  EXPECT_EQ(rows_below_first("", 10), 0u);
  EXPECT_EQ(rows_below_first("0123456789", 10), 0u);
  EXPECT_EQ(rows_below_first("0123456789a", 10), 1u);
  EXPECT_EQ(rows_below_first("a\r\nb\r\n", 10), 2u);
  EXPECT_EQ(rows_below_first("\xff\xff", 1), 1u) << "a byte that is no character takes a column";
  if (std::setlocale(LC_CTYPE, "C.UTF-8") == nullptr) GTEST_SKIP() << "no UTF-8 locale here";
  EXPECT_EQ(rows_below_first("\xe4\xbd\xa0\xe5\xa5\xbd\xe5\x90\x97", 4), 1u) << "two columns each; one does not break in half";
  EXPECT_EQ(rows_below_first("\xe4\xbd\xa0\xe5\xa5\xbd\xe5\x90\x97", 5), 1u);
  EXPECT_EQ(rows_below_first("\xe4\xbd\xa0\xe5\xa5\xbd\xe5\x90\x97", 6), 0u);
}

}  // namespace
}  // namespace deepinfer::apps
