#include "kv/block_pool.h"

#include <algorithm>

#include "base/check.h"

namespace deepinfer::kv {
namespace {

constexpr int64_t kForGood = INT64_MAX / 4;  // leaves room to be added to a time

}  // namespace

BlockPool::BlockPool(int32_t num_blocks, std::span<const int64_t> class_seconds)
    : blocks_(static_cast<size_t>(num_blocks)), keys_(static_cast<size_t>(num_blocks)), index_(keys_) {
  for (const int64_t seconds : class_seconds) {
    CHECK(seconds > 0);
    classes_.push_back({.seconds = std::min(seconds, kForGood)});
  }
  if (classes_.empty()) classes_.push_back({.seconds = kForGood});
  CHECK(classes_.size() <= 256);
  const auto shortest = std::min_element(classes_.begin(), classes_.end(), [](const Class& a, const Class& b) { return a.seconds < b.seconds; });
  shortest_ = static_cast<uint8_t>(shortest - classes_.begin());
  free_.reserve(blocks_.size());
  for (BlockId block = num_blocks - 1; block >= 0; --block) free_.push_back(block);
}

BlockId BlockPool::allocate() {
  if (free_.empty()) {
    const BlockId evicted = least_wanted();
    if (evicted == kNoBlock) return kNoBlock;
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

BlockId BlockPool::find(const BlockKey& key) const {
  const BlockId block = index_.find(key);
  return block != kNoBlock && now_s_ < blocks_[static_cast<size_t>(block)].expires_s ? block : kNoBlock;
}

std::optional<int64_t> BlockPool::age_s(const BlockKey& key) const {
  const BlockId block = find(key);
  if (block == kNoBlock) return std::nullopt;
  return now_s_ - blocks_[static_cast<size_t>(block)].filled_s;
}

BlockId BlockPool::acquire(const BlockKey& key) {
  const BlockId block = find(key);
  if (block == kNoBlock) return kNoBlock;
  if (at(block).references == 0) unlink(block);
  at(block).references += 1;
  return block;
}

void BlockPool::release(BlockId block, uint8_t retention) {
  CHECK(at(block).references > 0);
  CHECK(retention < classes_.size());
  if (at(block).has_key) use_under(block, retention);
  at(block).references -= 1;
  if (at(block).references > 0) return;
  if (at(block).has_key) {
    link_newest(block);
  } else {
    free_.push_back(block);
  }
}

BlockId BlockPool::publish(BlockId block, const BlockKey& key, const BlockPast& past) {
  CHECK(at(block).references > 0);
  CHECK(!at(block).has_key);
  if (const BlockId first = find(key); first != kNoBlock) return first;
  if (const BlockId expired = index_.find(key); expired != kNoBlock) take_name(expired);
  keys_[static_cast<size_t>(block)] = key;
  at(block).has_key = true;
  at(block).retention = shortest_;
  at(block).filled_s = now_s_ - past.age_s;
  at(block).expires_s = std::max(now_s_ + past.remaining_s, at(block).filled_s + classes_[shortest_].seconds);
  index_.insert(block);
  return block;
}

// Somebody whose blocks are kept under this class has used it.
void BlockPool::use_under(BlockId block, uint8_t retention) {
  const int64_t seconds = classes_[retention].seconds;
  if (seconds > classes_[at(block).retention].seconds) at(block).retention = retention;
  at(block).expires_s = std::max(at(block).expires_s, at(block).filled_s + seconds);
}

void BlockPool::take_name(BlockId block) {
  if (at(block).references == 0) {
    unlink(block);
    free_.push_back(block);
  }
  forget_key(block);
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
  Class& own = classes_[at(block).retention];
  at(block).released = ++num_released_;
  at(block).older = own.newest;
  at(block).newer = kNoBlock;
  if (own.newest != kNoBlock) at(own.newest).newer = block;
  own.newest = block;
  if (own.oldest == kNoBlock) own.oldest = block;
  num_cached_ += 1;
}

void BlockPool::unlink(BlockId block) {
  Class& own = classes_[at(block).retention];
  const BlockId newer = at(block).newer, older = at(block).older;
  (newer == kNoBlock ? own.newest : at(newer).older) = older;
  (older == kNoBlock ? own.oldest : at(older).newer) = newer;
  num_cached_ -= 1;
}

BlockId BlockPool::least_wanted() const {
  BlockId least = kNoBlock;
  double longest = -1;
  for (const Class& one : classes_) {
    if (one.oldest == kNoBlock) continue;
    const double idle = static_cast<double>(num_released_ - blocks_[static_cast<size_t>(one.oldest)].released) / static_cast<double>(one.seconds);
    if (idle <= longest) continue;
    longest = idle;
    least = one.oldest;
  }
  return least;
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
  for (const Class& one : classes_) {
    BlockId newer = kNoBlock;
    for (BlockId block = one.newest; block != kNoBlock; newer = block, block = blocks_[static_cast<size_t>(block)].older) {
      const Block& b = blocks_[static_cast<size_t>(block)];
      CHECK(b.references == 0 && b.has_key && b.newer == newer);
      CHECK(&classes_[b.retention] == &one);
      CHECK(newer == kNoBlock || blocks_[static_cast<size_t>(newer)].released > b.released);
      CHECK(!seen[static_cast<size_t>(block)]);
      seen[static_cast<size_t>(block)] = 1;
      num_listed += 1;
    }
    CHECK(one.oldest == newer);
  }
  CHECK(num_listed == num_cached_);
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
