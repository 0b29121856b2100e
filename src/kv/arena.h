// kv/arena.h: the memory of all KV blocks, one mapping made at start and never moved. Pages are given by the kernel when first
// written, so an idle server with a large arena is small; huge pages are asked for and used where the kernel has them (fewer TLB
// misses on the scattered reads of attention). Owned by the engine, which frees it after the last step.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/result.h"

namespace deepinfer::kv {

class Arena {
 public:
  // Errors: kResourceExhausted if the address space or the overcommit policy refuses.
  static Result<Arena> map(uint64_t num_bytes);
  Arena(Arena&& other) noexcept : data_(other.data_), size_(other.size_) { other.data_ = nullptr; }
  Arena& operator=(Arena&&) = delete;
  ~Arena();

  std::byte* data() const { return data_; }
  uint64_t size() const { return size_; }

 private:
  Arena(std::byte* data, uint64_t size) : data_(data), size_(size) {}
  std::byte* data_;
  uint64_t size_;
};

}  // namespace deepinfer::kv
