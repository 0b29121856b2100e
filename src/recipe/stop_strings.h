// Finds the first of a set of strings in a text that arrives byte by byte (Aho and Corasick 1975), and says how much of the text may
// still become one. Linear in the text, whatever the strings. The earliest end wins; of those that end there, the longest.
// Lost: searching a window of the text again with every token, which is quadratic for text that nearly matches.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace deepinfer::recipe {

class StopStrings {
 public:
  // Empty strings are left out.
  explicit StopStrings(std::span<const std::string> strings);

  // The next byte. Returns the index of the string that ends with it, or -1. After a match: only reset().
  int32_t push(char byte);
  // The longest end of the text that begins one of the strings, in bytes. After a match: nothing of use.
  size_t num_held() const { return nodes_[node_].depth; }
  void reset() { node_ = 0; }  // the text begins anew

 private:
  struct Node {
    std::vector<std::pair<char, uint32_t>> children;  // few: at most one a string
    uint32_t fail = 0;
    uint32_t depth = 0;
    int32_t match = -1;  // the longest string that ends here
  };
  uint32_t child(uint32_t node, char byte) const;  // 0: none

  std::vector<Node> nodes_;
  uint32_t node_ = 0;
};

}  // namespace deepinfer::recipe
