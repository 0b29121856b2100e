// kv/tiered_store.h: two stores behind one interface: the first near and small, on this machine, the second behind it, which machines share.
// What is computed goes into both; a block is read from the first that can give it; what the second gave is kept in the first too, with its
// age. Each has its own budget, threads, faults and numbers: of one that fails, hangs or is gone only its own blocks are missed.
// Invariants: what one store was to give and did not is asked of the other, and counts as missed with each that did not give it.
// The alternative that lost: a local cache of pieces of the shared store's files. It has to know which pieces of a file it holds, and what they
// are worth, while a segment store already knows that of blocks.
#pragma once

#include <memory>
#include <vector>

#include "kv/block_store.h"

namespace deepinfer::kv {

class TieredStore final : public BlockStore {
 public:
  TieredStore(std::unique_ptr<BlockStore> local, std::unique_ptr<BlockStore> shared) : local_(std::move(local)), shared_(std::move(shared)) {}

  Known find(std::span<const BlockKey> chain) override;
  // The shared store's: processes of one machine see each other's files soon enough.
  bool can_look_up() const override { return shared_->can_look_up(); }
  std::unique_ptr<BlockLookup> look_up(std::vector<BlockKey> keys, std::function<void()> wake) override;
  // The fetch must not outlive this.
  std::unique_ptr<BlockFetch> fetch(const StoreTag& tag, std::span<const BlockKey> chain, std::function<void()> wake) override;
  bool publish(const StoreTag& tag, const BlockKey& key, std::span<const std::byte> rows) override;
  void retract(std::span<const BlockKey> keys) override;
  void flush() override;
  void count_missed(CacheMiss cause, Tier tier, int64_t num_blocks) override;
  CacheStats stats() const override { return local_->stats(); }
  CacheStats shared_stats() const override { return shared_->stats(); }

 private:
  const std::unique_ptr<BlockStore> local_, shared_;
};

}  // namespace deepinfer::kv
