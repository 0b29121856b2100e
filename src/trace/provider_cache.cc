#include "trace/provider_cache.h"

#include <algorithm>
#include <map>
#include <utility>

namespace deepinfer::trace {
namespace {

constexpr int64_t kNever = INT64_MIN;

// One tenant's cache: when each block was last used; with breakpoints, each marked end.
class Cache {
 public:
  Cache(const RequestTrace& trace, const CacheRule& rule, std::vector<int64_t>& last_use) : trace_(trace), rule_(rule), last_use_(last_use) {}

  void serve(const TracedRequest& r, ProviderCounts& out) {
    out.input_by_model[r.model] += static_cast<double>(r.input_tokens);
    // From the end of the prompt up: the first block that is there ends the hit.
    uint32_t node = r.leaf, below = PrefixTree::kRoot;
    while (node != PrefixTree::kRoot && !fresh(node, r.time_us)) below = std::exchange(node, parent(node));
    const int64_t hit = hit_tokens(r, node, below);
    out.read_by_model[r.model] += static_cast<double>(hit);
    if (!rule_.breakpoints) {
      for (uint32_t n = r.leaf; n != PrefixTree::kRoot; n = parent(n)) last_use_[n] = r.time_us;
      return;
    }
    const int64_t end = std::min<int64_t>(int64_t{r.num_blocks} * trace_.block_tokens, r.input_tokens);
    if (end >= rule_.min_tokens) {
      out.written_by_model[r.model] += static_cast<double>(std::max<int64_t>(0, end - hit));
      last_use_[r.leaf] = r.time_us;
    }
    if (hit > 0) last_use_[node] = r.time_us;
    if (r.head_blocks > 0 && int64_t{r.head_blocks} * trace_.block_tokens >= rule_.min_tokens) {
      uint32_t head = r.leaf;
      while (depth(head) > r.head_blocks) head = parent(head);
      if (head != PrefixTree::kRoot) last_use_[head] = r.time_us;
    }
  }

  // So that the next tenant finds nothing.
  void forget(const TracedRequest& r) {
    for (uint32_t n = r.leaf; n != PrefixTree::kRoot; n = parent(n)) last_use_[n] = kNever;
  }

 private:
  uint32_t parent(uint32_t node) const { return trace_.tree.nodes()[node].parent; }
  uint32_t depth(uint32_t node) const { return trace_.tree.nodes()[node].depth; }
  bool fresh(uint32_t node, int64_t now) const { return last_use_[node] != kNever && now - last_use_[node] <= rule_.retention_us; }

  // node: the deepest block that is there; below: the kept one under it on this path, or the root.
  int64_t hit_tokens(const TracedRequest& r, uint32_t node, uint32_t below) const {
    double blocks = depth(node);
    if (trace_.tree.sampled() && !rule_.breakpoints) {
      const double next = below != PrefixTree::kRoot ? depth(below) - 1 : r.num_blocks;
      blocks = (blocks + std::max(blocks, next)) / 2;
    }
    int64_t hit = std::min<int64_t>(static_cast<int64_t>(blocks * trace_.block_tokens), r.input_tokens);
    hit -= hit % std::max<int64_t>(rule_.step_tokens, 1);
    return hit < rule_.min_tokens ? 0 : hit;
  }

  const RequestTrace& trace_;
  const CacheRule& rule_;
  std::vector<int64_t>& last_use_;  // by node
};

}  // namespace

ProviderCounts replay_provider(const RequestTrace& trace, std::span<const uint32_t> order, const CacheRule& rule) {
  const size_t num_models = trace.models.size();
  ProviderCounts out{std::vector<double>(num_models, 0), std::vector<double>(num_models, 0), std::vector<double>(num_models, 0)};
  std::map<uint32_t, std::vector<uint32_t>> by_tenant;
  for (const uint32_t index : order) by_tenant[trace.requests[index].tenant].push_back(index);
  std::vector<int64_t> last_use(trace.tree.nodes().size(), kNever);
  Cache cache(trace, rule, last_use);
  for (const auto& [tenant, requests] : by_tenant) {
    for (const uint32_t index : requests) cache.serve(trace.requests[index], out);
    for (const uint32_t index : requests) cache.forget(trace.requests[index]);
  }
  return out;
}

}  // namespace deepinfer::trace
