// From bytes to an id: the vocabulary as a hash table. Slots are 8 bytes (part of the hash, and the id); keys are views that the
// owner keeps alive. Built once, then only read.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "base/hash.h"
#include "core/request.h"

namespace deepinfer::tokenizer {

class PieceMap {
 public:
  // key_of(id) gives the bytes of an id that was inserted.
  template <class KeyOf>
  bool insert(std::string_view key, TokenId id, const KeyOf& key_of) {
    const uint64_t hash = hash_of(key);
    for (size_t at = hash & mask_;; at = (at + 1) & mask_) {
      Slot& slot = slots_[at];
      if (slot.id < 0) {
        size_ += 1;
        CHECK(size_ * 2 <= slots_.size());
        slot = {static_cast<uint32_t>(hash >> 32), id};
        return true;
      }
      if (slot.tag == static_cast<uint32_t>(hash >> 32) && key_of(slot.id) == key) return false;
    }
  }
  template <class KeyOf>
  TokenId find(std::string_view key, const KeyOf& key_of) const {
    const uint64_t hash = hash_of(key);
    for (size_t at = hash & mask_;; at = (at + 1) & mask_) {
      const Slot& slot = slots_[at];
      if (slot.id < 0) return -1;
      if (slot.tag == static_cast<uint32_t>(hash >> 32) && key_of(slot.id) == key) return slot.id;
    }
  }
  void reserve(size_t count) {
    CHECK(size_ == 0);
    slots_.assign(std::bit_ceil(count * 2 + 2), Slot{});
    mask_ = slots_.size() - 1;
  }

 private:
  struct Slot {
    uint32_t tag = 0;
    TokenId id = -1;
  };
  static uint64_t hash_of(std::string_view key) {
    return xxh3_64(std::as_bytes(std::span<const char>(key.data(), key.size())));
  }

  std::vector<Slot> slots_ = std::vector<Slot>(2);
  size_t mask_ = 1;
  size_t size_ = 0;
};

}  // namespace deepinfer::tokenizer
