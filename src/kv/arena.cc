#include "kv/arena.h"

#include <cerrno>
#include <cstring>
#include <string>
#include <sys/mman.h>

#include "base/units.h"

namespace deepinfer::kv {

Result<Arena> Arena::map(uint64_t num_bytes) {
  // MAP_NORESERVE: what is never touched costs nothing, whatever the machine's swap.
  void* data = mmap(nullptr, num_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED) {
    return Error{Code::kResourceExhausted,
                 "the KV arena of " + format_size(num_bytes) + " cannot be mapped (" + std::strerror(errno) + ")"};
  }
  madvise(data, num_bytes, MADV_HUGEPAGE);  // advice: a kernel without it serves small pages
  return Arena(static_cast<std::byte*>(data), num_bytes);
}

Arena::~Arena() {
  if (data_ != nullptr) munmap(data_, size_);
}

}  // namespace deepinfer::kv
