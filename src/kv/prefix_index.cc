#include "kv/prefix_index.h"

#include <bit>

#include "base/check.h"

namespace deepinfer::kv {

PrefixIndex::PrefixIndex(std::span<const BlockKey> keys) : keys_(keys) {
  CHECK(!keys.empty());
  slots_.assign(std::bit_ceil(keys.size() * 2), kNoBlock);
  mask_ = static_cast<uint32_t>(slots_.size() - 1);
}

BlockId PrefixIndex::find(const BlockKey& key) const {
  for (uint32_t i = home(key);; i = (i + 1) & mask_) {
    const BlockId block = slots_[i];
    if (block == kNoBlock || keys_[static_cast<size_t>(block)] == key) return block;
  }
}

void PrefixIndex::insert(BlockId block) {
  CHECK(static_cast<size_t>(size_) < keys_.size());
  uint32_t i = home(keys_[static_cast<size_t>(block)]);
  while (slots_[i] != kNoBlock) {
    DCHECK(keys_[static_cast<size_t>(slots_[i])] != keys_[static_cast<size_t>(block)]);
    i = (i + 1) & mask_;
  }
  slots_[i] = block;
  size_ += 1;
}

void PrefixIndex::erase(BlockId block) {
  uint32_t hole = home(keys_[static_cast<size_t>(block)]);
  while (slots_[hole] != block) {
    CHECK(slots_[hole] != kNoBlock);
    hole = (hole + 1) & mask_;
  }
  // Backward shift: whatever probed past the hole moves into it, so that no tombstones pile up.
  for (uint32_t i = (hole + 1) & mask_; slots_[i] != kNoBlock; i = (i + 1) & mask_) {
    const uint32_t wanted = home(keys_[static_cast<size_t>(slots_[i])]);
    if (((i - wanted) & mask_) >= ((i - hole) & mask_)) {
      slots_[hole] = slots_[i];
      hole = i;
    }
  }
  slots_[hole] = kNoBlock;
  size_ -= 1;
}

}  // namespace deepinfer::kv
