#include "trace/prefix_tree.h"

#include <xxhash.h>

#include <algorithm>

#include "base/check.h"

namespace deepinfer::trace {

PrefixKey chain_key(const PrefixKey& before, std::span<const std::byte> block) {
  // The key before is no seed: from 240 bytes on a seed makes XXH3 derive a secret with every call.
  const XXH128_hash_t hash = XXH3_128bits(block.data(), block.size());
  const uint64_t folded[4] = {hash.low64, hash.high64, before.low, before.high};
  const XXH128_hash_t key = XXH3_128bits(folded, sizeof(folded));
  return {key.low64, key.high64};
}

PrefixTree::PrefixTree(uint64_t max_blocks, double rate, uint64_t seed)
    : max_blocks_(std::min<uint64_t>(max_blocks, UINT32_MAX - 2)),
      threshold_(rate >= 1 ? UINT64_MAX : static_cast<uint64_t>(rate * 0x1p64)),
      seed_(seed) {
  nodes_.push_back({{}, kRoot, 0});
  rebuild_index(1024);
}

uint64_t PrefixTree::position(const PrefixKey& key) const {
  uint64_t x = key.high + seed_ * 0x9E3779B97F4A7C15;  // splitmix64: other seeds, other samples
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return x ^ (x >> 31);
}

double PrefixTree::rate() const { return sampled() ? static_cast<double>(threshold_) * 0x1p-64 : 1.0; }

uint32_t PrefixTree::find_slot(const PrefixKey& key) const {
  const size_t mask = slots_.size() - 1;
  size_t slot = key.low & mask;
  while (slots_[slot] != 0 && !(nodes_[slots_[slot] - 1].key == key)) slot = (slot + 1) & mask;
  return static_cast<uint32_t>(slot);
}

void PrefixTree::rebuild_index(size_t num_slots) {
  slots_.assign(num_slots, 0);
  for (uint32_t id = 1; id < nodes_.size(); ++id) slots_[find_slot(nodes_[id].key)] = id + 1;
}

uint32_t PrefixTree::add(const PrefixKey& key, uint32_t parent, uint32_t depth) {
  const uint32_t slot = find_slot(key);
  if (slots_[slot] != 0) return slots_[slot] - 1;
  const uint32_t id = static_cast<uint32_t>(nodes_.size());
  nodes_.push_back({key, parent, depth});
  slots_[slot] = id + 1;
  if (nodes_.size() * 2 > slots_.size()) rebuild_index(slots_.size() * 2);
  return id;
}

PrefixTree::Inserted PrefixTree::insert(std::span<const PrefixKey> keys) {
  std::vector<uint32_t>& depths = kept_depths_;
  depths.clear();
  for (uint32_t depth = 1; depth <= keys.size(); ++depth) {
    if (kept(keys[depth - 1])) depths.push_back(depth);
  }
  // A block is there only if all before it are: where the known ones end is searched for, so that a long prompt costs few misses of
  // the processor's cache.
  Inserted out{kRoot, 0};
  size_t known = 0, unknown = depths.size() + 1;
  while (known + 1 < unknown) {
    const size_t middle = known + (unknown - known) / 2;
    const uint32_t slot = slots_[find_slot(keys[depths[middle - 1] - 1])];
    if (slot == 0) {
      unknown = middle;
    } else {
      known = middle;
      out = {slot - 1, depths[middle - 1]};
    }
  }
  for (size_t i = known; i < depths.size(); ++i) out.leaf = add(keys[depths[i] - 1], out.leaf, depths[i]);
  return out;
}

std::vector<uint32_t> PrefixTree::drop_unkept() {
  std::vector<uint32_t> now(nodes_.size());
  uint32_t num_kept = 1;
  for (uint32_t id = 1; id < nodes_.size(); ++id) {
    const uint32_t parent = now[nodes_[id].parent];
    if (!kept(nodes_[id].key)) {
      now[id] = parent;
      continue;
    }
    nodes_[num_kept] = {nodes_[id].key, parent, nodes_[id].depth};
    now[id] = num_kept++;
  }
  nodes_.resize(num_kept);
  rebuild_index(slots_.size());
  return now;
}

std::vector<uint32_t> PrefixTree::lower_threshold(uint64_t threshold) {
  threshold_ = std::min(threshold_, threshold);
  return drop_unkept();
}

std::vector<uint32_t> PrefixTree::shrink() {
  CHECK(full());
  std::vector<uint64_t> positions;
  positions.reserve(nodes_.size());
  for (uint32_t id = 1; id < nodes_.size(); ++id) positions.push_back(position(nodes_[id].key));
  while (static_cast<uint64_t>(std::count_if(positions.begin(), positions.end(), [&](uint64_t p) { return p <= threshold_; })) >= max_blocks_) {
    threshold_ /= 2;
  }
  return drop_unkept();
}

}  // namespace deepinfer::trace
