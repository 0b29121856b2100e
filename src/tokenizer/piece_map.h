// From bytes to an id: the vocabulary as a hash table. Slots are 4 bytes; keys are views that the owner
// keeps alive. Built once, then only read.
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
  // Room for keys with ids below `num_ids`, each id once.
  void reserve(size_t num_ids) {
    CHECK(size_ == 0);
    CHECK(num_ids < (size_t{1} << 30));
    slots_.assign(std::bit_ceil(num_ids + num_ids / 2 + 2), 0);
    mask_ = slots_.size() - 1;
    id_bits_ = std::bit_width(num_ids);
  }

  // key_of(id) gives the bytes of an id that was inserted. False: the key is there already.
  template <class KeyOf>
  bool insert(std::string_view key, TokenId id, const KeyOf& key_of) {
    const uint64_t hash = hash_of(key);
    for (size_t at = hash & mask_;; at = (at + 1) & mask_) {
      if (slots_[at] == 0) {
        size_ += 1;
        CHECK(size_ < slots_.size());
        slots_[at] = tag_of(hash) << id_bits_ | (static_cast<uint32_t>(id) + 1);
        return true;
      }
      if (slots_[at] >> id_bits_ == tag_of(hash) && key_of(id_of(slots_[at])) == key) return false;
    }
  }
  template <class KeyOf>
  TokenId find(std::string_view key, const KeyOf& key_of) const {
    const uint64_t hash = hash_of(key);
    for (size_t at = hash & mask_;; at = (at + 1) & mask_) {
      const uint32_t slot = slots_[at];
      if (slot == 0) return -1;
      if (slot >> id_bits_ == tag_of(hash) && key_of(id_of(slot)) == key) return id_of(slot);
    }
  }

 private:
  TokenId id_of(uint32_t slot) const { return static_cast<TokenId>((slot & ((uint32_t{1} << id_bits_) - 1)) - 1); }
  uint32_t tag_of(uint64_t hash) const { return static_cast<uint32_t>(hash >> 32) >> id_bits_; }
  static uint64_t hash_of(std::string_view key) {
    return xxh3_64(std::as_bytes(std::span<const char>(key.data(), key.size())));
  }

  // A slot is 4 bytes, 0 when empty: the id plus 1, and above it as much of the hash as there is room for.
  std::vector<uint32_t> slots_ = std::vector<uint32_t>(2);
  size_t mask_ = 1;
  int id_bits_ = 1;
  size_t size_ = 0;
};

}  // namespace deepinfer::tokenizer
