// kv/eviction.h: which segment goes when the store is full, and which of its blocks are worth saving. Pure functions; docs/benchmarks.md
// has the hit rates on public traces against plain LRU over segments.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace deepinfer::kv {

enum class EvictionPolicy : uint8_t {
  kLru,    // the segment whose last use is longest ago; nothing is saved
  kValue,  // the one with the largest sum of bytes x time since last use; blocks that were hit lately are copied forward
};

struct EvictionCandidate {
  uint64_t bytes;      // allocated on disk
  int64_t last_use_s;  // the latest hit of one of its blocks, or its last write
  int64_t mean_use_s;  // mean over its blocks of the same
};

// Index of the one to go. candidates: not empty. Ties: the first.
inline size_t choose_victim(std::span<const EvictionCandidate> candidates, int64_t now_s, EvictionPolicy policy) {
  size_t victim = 0;
  double worst = -1;
  for (size_t i = 0; i < candidates.size(); ++i) {
    const EvictionCandidate& c = candidates[i];
    const int64_t use_s = policy == EvictionPolicy::kLru ? c.last_use_s : c.mean_use_s;
    const double idle_s = now_s > use_s ? static_cast<double>(now_s - use_s) : 0.0;
    const double cost = policy == EvictionPolicy::kLru ? idle_s : (idle_s + 1) * static_cast<double>(c.bytes);
    if (cost <= worst) continue;
    worst = cost;
    victim = i;
  }
  return victim;
}

// A block of the victim is copied forward if it was hit, and later than this: the mean last use of all that the store holds.
inline int64_t hot_since(std::span<const EvictionCandidate> candidates) {
  double sum = 0, bytes = 0;
  for (const EvictionCandidate& c : candidates) {
    sum += static_cast<double>(c.mean_use_s) * static_cast<double>(c.bytes);
    bytes += static_cast<double>(c.bytes);
  }
  return bytes == 0 ? 0 : static_cast<int64_t>(sum / bytes);
}

// At most this share of a victim is copied, so that an eviction always makes room.
constexpr double kMaxCopiedShare = 0.5;

}  // namespace deepinfer::kv
