#include "kernels/pages.h"

#include <sys/mman.h>

#include "base/check.h"

namespace deepinfer {
namespace {
constexpr int64_t kHugePage = int64_t{2} << 20;
}

Pages::Pages(int64_t size) {
  if (size <= 0) return;
  // A mapping of at least a huge page is placed on its boundary by hand: the kernel need not do so.
  const int64_t slack = size >= kHugePage ? kHugePage : 0;
  void* const mapped = mmap(nullptr, static_cast<size_t>(size + slack), PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  CHECK(mapped != MAP_FAILED);
  auto* begin = static_cast<std::byte*>(mapped);
  if (slack > 0) {
    const auto address = reinterpret_cast<uintptr_t>(begin);
    const auto skip = static_cast<int64_t>((kHugePage - address % kHugePage) % kHugePage);
    if (skip > 0) munmap(begin, static_cast<size_t>(skip));
    const int64_t page_end = (size + 4095) / 4096 * 4096;
    if (slack - skip > 0) munmap(begin + skip + page_end, static_cast<size_t>(slack - skip));
    begin += skip;
    (void)madvise(begin, static_cast<size_t>(size), MADV_HUGEPAGE);  // where it is switched off, small pages do
  }
  data_ = begin;
  size_ = size;
}

Pages::~Pages() {
  if (data_ != nullptr) munmap(data_, static_cast<size_t>(size_));
}

}  // namespace deepinfer
