// The most recently used of many values, bounded by the bytes that they say they have. Values are cheap to copy (shared pointers). Found by
// key, never iterated. Not thread-safe.
#pragma once

#include <cstdint>
#include <list>
#include <optional>
#include <unordered_map>
#include <utility>

namespace deepinfer {

template <class Key, class Value, class Hash>
class LruCache {
 public:
  explicit LruCache(uint64_t max_bytes) : max_bytes_(max_bytes) {}

  // Makes it the most recent.
  std::optional<Value> find(const Key& key) {
    const auto found = by_key_.find(key);
    if (found == by_key_.end()) return std::nullopt;
    entries_.splice(entries_.begin(), entries_, found->second);
    return entries_.front().value;
  }

  // A value that is larger than the bound by itself is not kept; a key that is there keeps its value.
  void insert(const Key& key, Value value, uint64_t num_bytes) {
    if (num_bytes > max_bytes_ || by_key_.contains(key)) return;
    entries_.push_front({.key = key, .value = std::move(value), .num_bytes = num_bytes});
    by_key_.emplace(key, entries_.begin());
    num_bytes_ += num_bytes;
    while (num_bytes_ > max_bytes_) {
      num_bytes_ -= entries_.back().num_bytes;
      by_key_.erase(entries_.back().key);
      entries_.pop_back();
    }
  }

  uint64_t num_bytes() const { return num_bytes_; }

 private:
  struct Entry {
    Key key;
    Value value;
    uint64_t num_bytes;
  };
  const uint64_t max_bytes_;
  std::list<Entry> entries_;  // the most recent first
  std::unordered_map<Key, typename std::list<Entry>::iterator, Hash> by_key_;
  uint64_t num_bytes_ = 0;
};

}  // namespace deepinfer
