// Small questions about text that the standard library answers only from C++23 on.
#pragma once

#include <string_view>

namespace deepinfer {

inline bool contains(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

}  // namespace deepinfer
