#include "trace/provider_cache.h"

#include <algorithm>
#include <unordered_map>

namespace deepinfer::trace {
namespace {

// (tenant, node): caches are apart, the tree is one.
uint64_t slot(uint32_t tenant, uint32_t node) { return uint64_t{tenant} << 32 | node; }

}  // namespace

ProviderCounts replay_provider(const RequestTrace& trace, std::span<const uint32_t> order, const CacheRule& rule) {
  const size_t num_models = trace.models.size();
  ProviderCounts out{std::vector<double>(num_models, 0), std::vector<double>(num_models, 0), std::vector<double>(num_models, 0)};
  const bool one_tenant = trace.tenants.size() <= 2 && std::all_of(trace.requests.begin(), trace.requests.end(),
                                                                     [&](const TracedRequest& r) { return r.tenant == trace.requests[0].tenant; });
  // Last use: of every block, or of marked ends only. One tenant: an array is far faster than a table.
  std::vector<int64_t> by_node(one_tenant ? trace.tree.nodes().size() : 0, INT64_MIN);
  std::unordered_map<uint64_t, int64_t> by_slot;
  const auto last_use = [&](uint32_t tenant, uint32_t node) {
    if (one_tenant) return by_node[node];
    const auto at = by_slot.find(slot(tenant, node));
    return at != by_slot.end() ? at->second : INT64_MIN;
  };
  const auto use = [&](uint32_t tenant, uint32_t node, int64_t time) {
    if (one_tenant) by_node[node] = time;
    else by_slot[slot(tenant, node)] = time;
  };
  for (const uint32_t index : order) {
    const TracedRequest& r = trace.requests[index];
    out.input_by_model[r.model] += static_cast<double>(r.input_tokens);
    // From the end of the prompt up: the first block that is there ends the hit.
    uint32_t node = r.leaf, below = PrefixTree::kRoot;
    while (node != PrefixTree::kRoot) {
      const int64_t last = last_use(r.tenant, node);
      if (last != INT64_MIN && r.time_us - last <= rule.retention_us) break;
      below = node;
      node = trace.tree.nodes()[node].parent;
    }
    double blocks = trace.tree.nodes()[node].depth;
    if (trace.tree.sampled() && !rule.breakpoints) {
      const double next = below != PrefixTree::kRoot ? trace.tree.nodes()[below].depth - 1 : r.num_blocks;
      blocks = (blocks + std::max(blocks, next)) / 2;
    }
    int64_t hit = std::min<int64_t>(static_cast<int64_t>(blocks * trace.block_tokens), r.input_tokens);
    hit -= hit % std::max<int64_t>(rule.step_tokens, 1);
    if (hit < rule.min_tokens) hit = 0;
    out.read_by_model[r.model] += static_cast<double>(hit);
    if (rule.breakpoints) {
      const int64_t end = std::min<int64_t>(int64_t{r.num_blocks} * trace.block_tokens, r.input_tokens);
      if (end >= rule.min_tokens) {
        out.written_by_model[r.model] += static_cast<double>(std::max<int64_t>(0, end - hit));
        use(r.tenant, r.leaf, r.time_us);
      }
      if (hit > 0) use(r.tenant, node, r.time_us);
      if (r.head_blocks > 0 && int64_t{r.head_blocks} * trace.block_tokens >= rule.min_tokens) {
        uint32_t head = r.leaf;
        while (trace.tree.nodes()[head].depth > r.head_blocks) head = trace.tree.nodes()[head].parent;
        if (head != PrefixTree::kRoot) use(r.tenant, head, r.time_us);
      }
    } else {
      for (uint32_t n = r.leaf; n != PrefixTree::kRoot; n = trace.tree.nodes()[n].parent) use(r.tenant, n, r.time_us);
    }
  }
  return out;
}

}  // namespace deepinfer::trace
