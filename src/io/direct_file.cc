#include "io/direct_file.h"

#include <fcntl.h>
#include <unistd.h>
#include <cerrno>
#include <utility>

#include "io/system_error.h"

namespace deepinfer::io {
namespace {

bool is_on_page(uint64_t value) { return value % kPageBytes == 0; }

Error became_shorter(const std::string& path) { return Error{Code::kCorruption, path + ": the file has become shorter since it was opened"}; }

}  // namespace

Result<DirectFile> DirectFile::open(const MappedFile& file, Way way) {
  const std::string name = "/proc/self/fd/" + std::to_string(file.descriptor());
  const int cached = ::open(name.c_str(), O_RDONLY | O_CLOEXEC);
  if (cached < 0) return system_error(file.path(), errno);
  (void)::posix_fadvise(cached, 0, 0, POSIX_FADV_RANDOM);  // nothing is read ahead that nobody gives back
  return DirectFile(file.path(), cached, way == Way::kDirect ? ::open(name.c_str(), O_RDONLY | O_CLOEXEC | O_DIRECT) : -1);
}

DirectFile::DirectFile(DirectFile&& other) noexcept
    : path_(std::move(other.path_)), cached_(std::exchange(other.cached_, -1)), direct_(std::exchange(other.direct_, -1)) {}

DirectFile& DirectFile::operator=(DirectFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(cached_, other.cached_);
  std::swap(direct_, other.direct_);
  return *this;
}

DirectFile::~DirectFile() {
  if (cached_ >= 0) ::close(cached_);
  if (direct_ >= 0) ::close(direct_);
}

Result<> DirectFile::read(uint64_t offset, size_t needed, std::span<std::byte> out) const {
  CHECK(is_on_page(offset) && is_on_page(out.size()) && is_on_page(reinterpret_cast<uintptr_t>(out.data())));
  CHECK(needed <= out.size());
  for (size_t done = 0; done < needed;) {
    if (direct_ < 0) return read_cached(offset, out.first(needed));
    const ssize_t n = ::pread(direct_, out.data() + done, out.size() - done, static_cast<off_t>(offset + done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EINVAL) return read_cached(offset, out.first(needed));  // opened, and refused all the same
    if (n < 0) return system_error(path_, errno);
    if (n == 0) return became_shorter(path_);
    if (done + static_cast<size_t>(n) >= needed) return {};
    // Cut short inside a page: either the file ends there, or the page is read once more.
    const size_t whole = pages_down(done + static_cast<size_t>(n));
    if (whole == done) return became_shorter(path_);
    done = whole;
  }
  return {};
}

Result<> DirectFile::read_cached(uint64_t offset, std::span<std::byte> out) const {
  for (size_t done = 0; done < out.size();) {
    const ssize_t n = ::pread(cached_, out.data() + done, out.size() - done, static_cast<off_t>(offset + done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return system_error(path_, errno);
    if (n == 0) return became_shorter(path_);
    done += static_cast<size_t>(n);
  }
  // To the end of the last page, which the system keeps if it is named in part only.
  (void)::posix_fadvise(cached_, static_cast<off_t>(offset), static_cast<off_t>(pages_up(out.size())), POSIX_FADV_DONTNEED);
  return {};
}

}  // namespace deepinfer::io
