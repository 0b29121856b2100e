// io/key_values.h: small values under keys in a place that several machines share and that forgets them by itself: Redis, as the block store
// sees it. Small, so that tests put faults behind it (io/memory_key_values.h); io/redis.h is the real one. What comes out is whatever anybody
// put there. For one thread at a time; a call takes a bounded time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"

namespace deepinfer::io {

class KeyValues {
 public:
  static constexpr size_t kMaxValueBytes = 255;  // what lies beyond never comes out, so that nobody's value fills our memory
  static constexpr size_t kMaxItems = 512;       // a call

  struct Item {
    std::string key, value;
    int64_t seconds = 0;  // until it is forgotten; at least 1
  };

  virtual ~KeyValues() = default;
  // Replaces what is there. After an error any of them may have been put. Errors: kUnavailable (nobody answers, or not in time),
  // kResourceExhausted (it is full, or may not be written to), kCorruption (what answers speaks another language).
  virtual Result<> put(std::span<const Item> items) = 0;
  // A value a key, cut after kMaxValueBytes + 1 bytes; empty: there is none. The same errors.
  virtual Result<std::vector<std::string>> get(std::span<const std::string> keys) = 0;
};

}  // namespace deepinfer::io
