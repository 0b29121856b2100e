#include "trace/routing.h"

#include <algorithm>
#include <bit>

#include "base/check.h"
#include "base/rng.h"

namespace deepinfer::trace {
namespace {

constexpr uint64_t kSeed = 41;
// A worker may be this far ahead of the least loaded, as a share of what a worker got on average, before affinity yields.
constexpr double kMaxImbalance = 0.1;
constexpr uint32_t kStickyDepth = 4;  // blocks that stand for a conversation where no session was logged: beyond many system prompts

uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return x ^ (x >> 31);
}

// What one conversation's requests have in common.
uint64_t sticky_key(const RequestTrace& trace, const TracedRequest& request) {
  if (request.session != 0) return mix(request.session + request.tenant);
  const uint32_t wanted = std::max(request.head_blocks + 1, kStickyDepth);
  uint32_t node = request.leaf;
  while (trace.tree.nodes()[node].depth > wanted) node = trace.tree.nodes()[node].parent;
  return mix(trace.tree.nodes()[node].key.low + request.tenant);
}

std::vector<uint8_t> assign_affine(const RequestTrace& trace, std::span<const uint32_t> order, int num_workers) {
  std::vector<uint8_t> out(order.size());
  std::vector<uint64_t> had_by(trace.tree.nodes().size(), 0);  // by node: workers that were given it
  std::vector<double> load(static_cast<size_t>(num_workers), 0);
  double total = 0;
  for (size_t at = 0; at < order.size(); ++at) {
    const TracedRequest& r = trace.requests[order[at]];
    const size_t least = static_cast<size_t>(std::min_element(load.begin(), load.end()) - load.begin());
    size_t chosen = least;
    // From the leaf up: the first node that anyone had is the longest match; of several workers the least loaded.
    uint32_t node = r.leaf;
    while (node != PrefixTree::kRoot && had_by[node] == 0) node = trace.tree.nodes()[node].parent;
    if (node != PrefixTree::kRoot) {
      size_t best = SIZE_MAX;
      for (uint64_t left = had_by[node]; left != 0; left &= left - 1) {
        const size_t w = static_cast<size_t>(std::countr_zero(left));
        if (best == SIZE_MAX || load[w] < load[best]) best = w;
      }
      const double allowed = load[least] + kMaxImbalance * total / num_workers + static_cast<double>(r.input_tokens);
      if (load[best] <= allowed) chosen = best;
    }
    // Load is the work that is left: tokens that this worker was not given before.
    uint32_t known = r.leaf;
    while (known != PrefixTree::kRoot && (had_by[known] >> chosen & 1) == 0) known = trace.tree.nodes()[known].parent;
    const double work = static_cast<double>(r.input_tokens) - static_cast<double>(trace.tree.nodes()[known].depth) * trace.block_tokens;
    load[chosen] += std::max(1.0, work);
    total += std::max(1.0, work);
    for (uint32_t n = r.leaf; n != PrefixTree::kRoot && (had_by[n] >> chosen & 1) == 0; n = trace.tree.nodes()[n].parent) had_by[n] |= uint64_t{1} << chosen;
    out[at] = static_cast<uint8_t>(chosen);
  }
  return out;
}

}  // namespace

std::string_view routing_name(Routing routing) {
  switch (routing) {
    case Routing::kRandom: return "random";
    case Routing::kRoundRobin: return "round_robin";
    case Routing::kSticky: return "session_sticky";
    case Routing::kPrefixAffine: return "prefix_affine";
    case Routing::kShared: return "shared_store";
  }
  return "";
}

std::vector<uint8_t> assign_workers(const RequestTrace& trace, std::span<const uint32_t> order, Routing routing, int num_workers) {
  CHECK(num_workers >= 1 && num_workers <= kMaxWorkers);
  if (routing == Routing::kPrefixAffine) return assign_affine(trace, order, num_workers);
  std::vector<uint8_t> out(order.size(), 0);
  if (routing == Routing::kShared) return out;
  Rng rng(kSeed);
  for (size_t at = 0; at < order.size(); ++at) {
    const uint64_t workers = static_cast<uint64_t>(num_workers);
    uint64_t worker = at % workers;
    if (routing == Routing::kRandom) worker = rng.below(workers);
    if (routing == Routing::kSticky) worker = sticky_key(trace, trace.requests[order[at]]) % workers;
    out[at] = static_cast<uint8_t>(worker);
  }
  return out;
}

ReuseCounts replay_workers(const RequestTrace& trace, std::span<const uint32_t> order, std::span<const uint8_t> workers, int num_workers,
                           const ReplayOptions& options, ReplayScratch& scratch) {
  ReuseCounts out;
  std::vector<uint32_t> mine;
  for (int w = 0; w < num_workers; ++w) {
    mine.clear();
    for (size_t at = 0; at < order.size(); ++at) {
      if (workers[at] == w) mine.push_back(order[at]);
    }
    if (!mine.empty()) out.add(replay(trace, mine, options, scratch));
  }
  return out;
}

}  // namespace deepinfer::trace
