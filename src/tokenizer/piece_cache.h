// Recently encoded pieces and their ids: most of a text are words seen a moment ago. Owned by one encode() call at a time, bounded
// (kSlots entries of 64 bytes, two ways), and only a cache: what it returns is what merging would give.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <utility>
#include <vector>

#include "core/request.h"

namespace deepinfer::tokenizer {

class PieceCache {
 public:
  static constexpr size_t kSlots = 8192;
  static constexpr size_t kMaxPiece = 31;  // bytes
  static constexpr size_t kMaxIds = 7;

  // The piece, zero-padded, its length in the last byte.
  struct Key {
    uint64_t words[4];
    bool operator==(const Key&) const = default;
  };
  struct alignas(64) Entry {
    Key key{};       // length 0: empty
    uint32_t count = 0;
    TokenId ids[kMaxIds];
  };
  static_assert(sizeof(Entry) == 64);

  // piece: 1..kMaxPiece bytes. readable: bytes that may be read from piece.data() on, at least its size.
  static Key key_of(std::string_view piece, size_t readable) {
    Key key{};
    const size_t n = piece.size();
    if (n <= 16 && readable >= 16) {  // two loads and masks
      std::memcpy(key.words, piece.data(), 16);
      if (n < 8) {
        key.words[0] &= (uint64_t{1} << 8 * n) - 1;
        key.words[1] = 0;
      } else if (n < 16) {
        key.words[1] &= (uint64_t{1} << 8 * (n - 8)) - 1;
      }
    } else {
      std::memcpy(key.words, piece.data(), n);
    }
    key.words[3] |= uint64_t{n} << 56;
    return key;
  }

  // Null: not there. On a hit in the second way the two change places.
  const Entry* find(const Key& key) {
    Entry* pair = &entries_[slot_of(key)];
    if (pair[0].key == key) return &pair[0];
    if (pair[1].key == key) {
      std::swap(pair[0], pair[1]);
      return &pair[0];
    }
    return nullptr;
  }
  // New pieces wait in the second way and move up when they are seen again: text that never repeats does not push out words that do.
  void insert(const Key& key, const TokenId* ids, size_t count) {
    if (count > kMaxIds) return;
    Entry* pair = &entries_[slot_of(key)];
    Entry& entry = pair[pair[0].key == Key{} ? 0 : 1];
    entry.key = key;
    entry.count = static_cast<uint32_t>(count);
    std::memcpy(entry.ids, ids, count * sizeof *ids);
  }

 private:
  static size_t slot_of(const Key& key) {
    uint64_t x = key.words[0] * 0x9e3779b97f4a7c15 ^ key.words[1] * 0xc2b2ae3d27d4eb4f;
    x ^= (key.words[2] ^ (key.words[3] << 7 | key.words[3] >> 57)) * 0xd6e8feb86659fd93;
    x ^= x >> 32;
    x *= 0x9e3779b97f4a7c15;
    return static_cast<size_t>(x >> 40) % kSlots & ~size_t{1};
  }
  std::vector<Entry> entries_ = std::vector<Entry>(kSlots);
};

}  // namespace deepinfer::tokenizer
