// All distinct prefixes of a set of prompts, as a tree of blocks. A prompt is a path from the root; two prompts share exactly the
// blocks of their common prefix. So a request needs no more than its last node, and any cache policy can be replayed later.
//
// Bounded: above max_blocks the tree keeps a spatial sample, the blocks whose hash falls below a threshold that halves until they
// fit (SHARDS, Waldspurger et al. 2015, on prefix blocks). The rate depends only on the set of blocks, never on their order.
// Not thread-safe.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

namespace deepinfer::trace {

// The prefix up to and including a block: XXH3-128 over the key before it and the block. Accidents only; nobody attacks an audit.
struct PrefixKey {
  uint64_t low = 0, high = 0;
  bool operator==(const PrefixKey&) const = default;
};

PrefixKey chain_key(const PrefixKey& before, std::span<const std::byte> block);

class PrefixTree {
 public:
  static constexpr uint32_t kRoot = 0;

  struct Node {
    PrefixKey key;
    uint32_t parent;  // nearest kept ancestor; smaller than the node's own id
    uint32_t depth;   // blocks up to and including this one; 0 for the root
  };

  // rate: share of blocks kept from the start, (0, 1]; seed: of the sample, which other seeds draw otherwise.
  explicit PrefixTree(uint64_t max_blocks, double rate = 1, uint64_t seed = 0);

  struct Inserted {
    uint32_t leaf;        // deepest kept block of the prompt
    uint32_t num_known;   // depth of the deepest kept block that was there before; without sampling, the blocks of the prefix hit
  };
  // keys: the prompt's blocks in order, each a hash over all before it.
  Inserted insert(std::span<const PrefixKey> keys);
  // The block below `parent` with that key at that depth: what insert() does for each. For trees that are put together again.
  uint32_t add(const PrefixKey& key, uint32_t parent, uint32_t depth);

  void set_max_blocks(uint64_t max_blocks) { max_blocks_ = std::min<uint64_t>(std::max<uint64_t>(max_blocks, 1), UINT32_MAX - 2); }
  bool full() const { return nodes_.size() > max_blocks_; }
  // Halves the rate until the tree fits. Gives for each old node the node that now stands for it (itself or its nearest kept ancestor).
  std::vector<uint32_t> shrink();
  // Lowers the rate to that of another tree, before both become one.
  std::vector<uint32_t> lower_threshold(uint64_t threshold);

  std::span<const Node> nodes() const { return nodes_; }  // the root first
  double rate() const;
  uint64_t threshold() const { return threshold_; }
  uint64_t seed() const { return seed_; }
  bool kept(const PrefixKey& key) const { return position(key) <= threshold_; }  // belongs to the sample
  bool sampled() const { return threshold_ != UINT64_MAX; }
  // One of kNumGroups disjoint groups of blocks, for estimating the error of a sample.
  uint32_t group(uint32_t node) const { return static_cast<uint32_t>(position(nodes_[node].key) % 31); }
  static constexpr uint32_t kNumGroups = 31;

 private:
  uint64_t position(const PrefixKey& key) const;  // where a block falls on the line that is sampled

  std::vector<uint32_t> drop_unkept();
  uint32_t find_slot(const PrefixKey& key) const;
  void rebuild_index(size_t num_slots);

  uint64_t max_blocks_;
  uint64_t threshold_;
  uint64_t seed_;
  std::vector<Node> nodes_;
  std::vector<uint32_t> slots_;  // open addressing: node id + 1, 0 is free
  std::vector<uint32_t> kept_depths_;  // of insert(); its memory is used again
};

}  // namespace deepinfer::trace
