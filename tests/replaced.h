// Text with one part exchanged, which has to be in it.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <string_view>

namespace deepinfer {

inline std::string replaced(std::string text, std::string_view from, std::string_view to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

}  // namespace deepinfer
