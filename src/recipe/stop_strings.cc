#include "recipe/stop_strings.h"

namespace deepinfer::recipe {

StopStrings::StopStrings(std::span<const std::string> strings) : nodes_(1) {
  for (size_t i = 0; i < strings.size(); ++i) {
    uint32_t node = 0;
    for (const char byte : strings[i]) {
      uint32_t next = child(node, byte);
      if (next == 0) {
        next = static_cast<uint32_t>(nodes_.size());
        nodes_.push_back({.children = {}, .depth = nodes_[node].depth + 1});
        nodes_[node].children.emplace_back(byte, next);
      }
      node = next;
    }
    if (node != 0 && nodes_[node].match < 0) nodes_[node].match = static_cast<int32_t>(i);
  }
  // Breadth first: a node's failure link is shorter than the node, so it is done before.
  std::vector<uint32_t> queue{0};
  for (size_t head = 0; head < queue.size(); ++head) {
    const uint32_t node = queue[head];
    for (const auto& [byte, next] : nodes_[node].children) {
      queue.push_back(next);
      if (node == 0) continue;
      uint32_t fail = nodes_[node].fail;
      while (fail != 0 && child(fail, byte) == 0) fail = nodes_[fail].fail;
      nodes_[next].fail = child(fail, byte);
      if (nodes_[next].match < 0) nodes_[next].match = nodes_[nodes_[next].fail].match;
    }
  }
}

uint32_t StopStrings::child(uint32_t node, char byte) const {
  for (const auto& [label, next] : nodes_[node].children) {
    if (label == byte) return next;
  }
  return 0;
}

int32_t StopStrings::push(char byte) {
  while (node_ != 0 && child(node_, byte) == 0) node_ = nodes_[node_].fail;
  node_ = child(node_, byte);
  return nodes_[node_].match;
}

}  // namespace deepinfer::recipe
