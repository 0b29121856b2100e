// Who serves a request, when several workers have caches of their own. A policy gives each request a worker; each worker's requests
// are then replayed through a cache of its own (reuse.h).
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "trace/reuse.h"

namespace deepinfer::trace {

enum class Routing : uint8_t {
  kRandom,         // by chance, seeded
  kRoundRobin,
  kSticky,         // all requests of a session to one worker; without a session, of a conversation's first blocks
  kPrefixAffine,   // to the worker that was given the longest part of the prompt before, unless it has far more load than the least loaded
  kShared,         // one store behind all workers
};
constexpr Routing kAllRoutings[] = {Routing::kRandom, Routing::kRoundRobin, Routing::kSticky, Routing::kPrefixAffine, Routing::kShared};
std::string_view routing_name(Routing routing);

constexpr int kMaxWorkers = 64;

// For each position in `order` the worker, 0 to num_workers - 1. kShared: all 0.
std::vector<uint8_t> assign_workers(const RequestTrace& trace, std::span<const uint32_t> order, Routing routing, int num_workers);

// options.capacities are those of one worker.
ReuseCounts replay_workers(const RequestTrace& trace, std::span<const uint32_t> order, std::span<const uint8_t> workers, int num_workers,
                           const ReplayOptions& options, ReplayScratch& scratch);

}  // namespace deepinfer::trace
