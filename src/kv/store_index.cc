#include "kv/store_index.h"

#include <bit>

#include "base/check.h"

namespace deepinfer::kv {

StoreIndex::StoreIndex() { grow(1024); }

void StoreIndex::reserve(size_t num_entries) {
  size_t num_slots = slots_.size();
  while (num_entries * 8 > num_slots * 7) num_slots *= 2;
  if (num_slots > slots_.size()) grow(num_slots);
}

uint32_t StoreIndex::find(const BlockKey& key) const {
  for (size_t i = home(key);; i = (i + 1) & mask_) {
    const uint32_t entry = slots_[i];
    if (entry == kNone || at(entry).key == key) return entry;
  }
}

uint32_t StoreIndex::insert(const Block& block, uint32_t head) {
  const uint32_t old = find(block.key);
  if (old != kNone) forget(old);
  reserve(num_named_ + 1);
  uint32_t entry = free_;
  if (entry != kNone) {
    free_ = at(entry).next;
  } else {
    CHECK(num_made_ < kNone);
    entry = static_cast<uint32_t>(num_made_++);
    if (entry >> kChunkBits == chunks_.size()) chunks_.push_back(std::make_unique<Entry[]>(size_t{1} << kChunkBits));
  }
  Entry& made = at(entry);
  made = {.key = block.key, .segment = block.segment, .page = block.page, .next = head, .last_use = block.last_use};
  made.written_after_s = block.written_after_s & 0x7fffffff;
  place(entry);
  num_named_ += 1;
  return entry;
}

void StoreIndex::place(uint32_t entry) {
  size_t i = home(at(entry).key);
  while (slots_[i] != kNone) i = (i + 1) & mask_;
  slots_[i] = entry;
}

void StoreIndex::forget(uint32_t entry) {
  size_t hole = home(at(entry).key);
  while (slots_[hole] != entry) {
    if (slots_[hole] == kNone) return;  // it has no name any more
    hole = (hole + 1) & mask_;
  }
  // Backward shift, as in PrefixIndex: no tombstones.
  for (size_t i = (hole + 1) & mask_; slots_[i] != kNone; i = (i + 1) & mask_) {
    const size_t wanted = home(at(slots_[i]).key);
    if (((i - wanted) & mask_) >= ((i - hole) & mask_)) {
      slots_[hole] = slots_[i];
      hole = i;
    }
  }
  slots_[hole] = kNone;
  num_named_ -= 1;
}

size_t StoreIndex::remove_list(uint32_t head) {
  const size_t before = num_named_;
  while (head != kNone) {
    const uint32_t next = at(head).next;
    forget(head);
    at(head) = {.key = {}, .next = free_};
    free_ = head;
    head = next;
  }
  return before - num_named_;
}

void StoreIndex::grow(size_t num_slots) {
  CHECK(std::has_single_bit(num_slots));
  const std::vector<uint32_t> old = std::move(slots_);
  slots_.assign(num_slots, kNone);
  mask_ = num_slots - 1;
  for (const uint32_t entry : old) {
    if (entry != kNone) place(entry);
  }
}

uint64_t StoreIndex::memory_bytes() const {
  return chunks_.size() * (sizeof(Entry) << kChunkBits) + chunks_.capacity() * sizeof(chunks_[0]) + slots_.capacity() * sizeof(uint32_t);
}

}  // namespace deepinfer::kv
