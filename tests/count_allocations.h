// Replaces operator new and delete of a program, to count what it allocates. Included by one source of a test program. Under the sanitizers
// memory still comes from their malloc. Not inlined, else the compiler sees free() meet a pointer of operator new and warns of a mismatch.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>

namespace deepinfer {

inline std::atomic<uint64_t> num_allocations{0};                // of all threads
inline thread_local uint64_t num_allocations_of_this_thread = 0;

inline void* counted_allocation(std::size_t size, std::size_t alignment) {
  num_allocations.fetch_add(1, std::memory_order_relaxed);
  num_allocations_of_this_thread += 1;
  void* p = nullptr;
  if (alignment <= alignof(std::max_align_t)) {
    p = std::malloc(size == 0 ? 1 : size);
  } else if (posix_memalign(&p, alignment, size) != 0) {
    p = nullptr;
  }
  if (p == nullptr) std::abort();
  return p;
}

}  // namespace deepinfer

#define DI_COUNTED [[gnu::noinline]]
DI_COUNTED void* operator new(std::size_t size) { return deepinfer::counted_allocation(size, 1); }
DI_COUNTED void* operator new[](std::size_t size) { return deepinfer::counted_allocation(size, 1); }
DI_COUNTED void* operator new(std::size_t size, std::align_val_t a) { return deepinfer::counted_allocation(size, static_cast<std::size_t>(a)); }
DI_COUNTED void* operator new[](std::size_t size, std::align_val_t a) { return deepinfer::counted_allocation(size, static_cast<std::size_t>(a)); }
// The sanitizers' own nothrow forms would not call these.
DI_COUNTED void* operator new(std::size_t size, const std::nothrow_t&) noexcept { return deepinfer::counted_allocation(size, 1); }
DI_COUNTED void* operator new[](std::size_t size, const std::nothrow_t&) noexcept { return deepinfer::counted_allocation(size, 1); }
DI_COUNTED void operator delete(void* p) noexcept { std::free(p); }
DI_COUNTED void operator delete[](void* p) noexcept { std::free(p); }
DI_COUNTED void operator delete(void* p, std::size_t) noexcept { std::free(p); }
DI_COUNTED void operator delete[](void* p, std::size_t) noexcept { std::free(p); }
DI_COUNTED void operator delete(void* p, std::align_val_t) noexcept { std::free(p); }
DI_COUNTED void operator delete[](void* p, std::align_val_t) noexcept { std::free(p); }
DI_COUNTED void operator delete(void* p, std::size_t, std::align_val_t) noexcept { std::free(p); }
DI_COUNTED void operator delete[](void* p, std::size_t, std::align_val_t) noexcept { std::free(p); }
#undef DI_COUNTED
