// What the measuring programs share: the clock, the median of rounds, lists and instruction sets on the command line.
#pragma once

#include <algorithm>
#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "base/median.h"

namespace deepinfer::bench {

inline double seconds() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

using deepinfer::median;

inline std::vector<std::string> split(std::string_view text) {  // at commas
  std::vector<std::string> out;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    out.emplace_back(text.substr(at, end - at));
    at = end + 1;
  }
  return out;
}

}  // namespace deepinfer::bench
