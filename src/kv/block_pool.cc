#include "kv/block_pool.h"

#include "base/check.h"

namespace deepinfer::kv {

BlockPool::BlockPool(int32_t num_blocks)
    : blocks_(static_cast<size_t>(num_blocks)), keys_(static_cast<size_t>(num_blocks)), index_(keys_) {
  free_.reserve(blocks_.size());
  for (BlockId block = num_blocks - 1; block >= 0; --block) free_.push_back(block);
}

BlockId BlockPool::allocate() {
  if (free_.empty()) {
    if (oldest_ == kNoBlock) return kNoBlock;
    const BlockId evicted = oldest_;
    unlink(evicted);
    forget_key(evicted);
    at(evicted).references = 1;
    return evicted;
  }
  const BlockId block = free_.back();
  free_.pop_back();
  DCHECK(at(block).references == 0 && !at(block).has_key);
  at(block).references = 1;
  return block;
}

BlockId BlockPool::acquire(const BlockKey& key) {
  const BlockId block = index_.find(key);
  if (block == kNoBlock) return kNoBlock;
  if (at(block).references == 0) unlink(block);
  at(block).references += 1;
  return block;
}

void BlockPool::release(BlockId block) {
  CHECK(at(block).references > 0);
  at(block).references -= 1;
  if (at(block).references > 0) return;
  if (at(block).has_key) {
    link_newest(block);
  } else {
    free_.push_back(block);
  }
}

BlockId BlockPool::publish(BlockId block, const BlockKey& key) {
  CHECK(at(block).references > 0);
  CHECK(!at(block).has_key);
  const BlockId first = index_.find(key);
  if (first != kNoBlock) return first;
  keys_[static_cast<size_t>(block)] = key;
  at(block).has_key = true;
  index_.insert(block);
  return block;
}

void BlockPool::retract(BlockId block) {
  CHECK(at(block).references > 0);
  if (at(block).has_key) forget_key(block);
}

void BlockPool::forget_key(BlockId block) {
  index_.erase(block);
  at(block).has_key = false;
}

void BlockPool::link_newest(BlockId block) {
  at(block).older = newest_;
  at(block).newer = kNoBlock;
  if (newest_ != kNoBlock) at(newest_).newer = block;
  newest_ = block;
  if (oldest_ == kNoBlock) oldest_ = block;
  num_cached_ += 1;
}

void BlockPool::unlink(BlockId block) {
  const BlockId newer = at(block).newer, older = at(block).older;
  (newer == kNoBlock ? newest_ : at(newer).older) = older;
  (older == kNoBlock ? oldest_ : at(older).newer) = newer;
  num_cached_ -= 1;
}

void BlockPool::check_invariants() const {
  std::vector<char> seen(blocks_.size(), 0);
  for (const BlockId block : free_) {
    const Block& b = blocks_[static_cast<size_t>(block)];
    CHECK(b.references == 0 && !b.has_key);
    CHECK(!seen[static_cast<size_t>(block)]);
    seen[static_cast<size_t>(block)] = 1;
  }
  int32_t num_listed = 0;
  BlockId newer = kNoBlock;
  for (BlockId block = newest_; block != kNoBlock; newer = block, block = blocks_[static_cast<size_t>(block)].older) {
    const Block& b = blocks_[static_cast<size_t>(block)];
    CHECK(b.references == 0 && b.has_key && b.newer == newer);
    CHECK(!seen[static_cast<size_t>(block)]);
    seen[static_cast<size_t>(block)] = 1;
    num_listed += 1;
  }
  CHECK(num_listed == num_cached_ && oldest_ == newer);
  int32_t num_keyed = 0;
  for (size_t block = 0; block < blocks_.size(); ++block) {
    CHECK(seen[block] || blocks_[block].references > 0);
    if (!blocks_[block].has_key) continue;
    num_keyed += 1;
    CHECK(index_.find(keys_[block]) == static_cast<BlockId>(block));
  }
  CHECK(num_keyed == index_.size());
}

}  // namespace deepinfer::kv
