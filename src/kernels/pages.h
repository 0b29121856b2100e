// Pages: a large anonymous block of memory, zero, page-aligned, asked to lie in huge pages (a 2 MiB page saves 511 TLB entries, and
// weights are read from end to end for every token). Not resident until touched, so a generous reservation costs nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

namespace deepinfer {

class Pages {
 public:
  Pages() = default;
  explicit Pages(int64_t size);  // ends the process when the address space is exhausted
  ~Pages();
  Pages(Pages&& other) noexcept : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  Pages& operator=(Pages&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }
  std::byte* data() const { return data_; }
  int64_t size() const { return size_; }

 private:
  std::byte* data_ = nullptr;
  int64_t size_ = 0;
};

}  // namespace deepinfer
