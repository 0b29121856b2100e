#include "io/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "io/system_error.h"

namespace deepinfer::io {

Result<MappedFile> MappedFile::open(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // a pipe would wait for its writer, for ever
  if (fd < 0) return system_error(path, errno);
  struct stat status{};
  if (::fstat(fd, &status) != 0) {
    const int number = errno;
    ::close(fd);
    return system_error(path, number);
  }
  if (!S_ISREG(status.st_mode)) {
    ::close(fd);
    return Error{Code::kIo, path + ": not a regular file"};
  }
  const auto size = static_cast<size_t>(status.st_size);
  if (size == 0) {
    ::close(fd);
    return MappedFile(path, {}, -1);
  }
  void* address = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0);
  if (address == MAP_FAILED) {
    const int number = errno;
    ::close(fd);
    return system_error(path, number);
  }
  return MappedFile(path, {static_cast<const std::byte*>(address), size}, fd);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)), bytes_(std::exchange(other.bytes_, {})), fd_(std::exchange(other.fd_, -1)), loaded_(std::exchange(other.loaded_, {})) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(loaded_, other.loaded_);
  std::swap(bytes_, other.bytes_);
  std::swap(fd_, other.fd_);
  return *this;
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
  if (fd_ >= 0) ::close(fd_);
}

// From the page that holds the first byte to that of the last; the mapping itself begins at a page and is padded to one.
std::span<const std::byte> MappedFile::whole_pages(std::span<const std::byte> range) const {
  CHECK(range.empty() || (range.data() >= bytes_.data() && range.data() + range.size() <= bytes_.data() + bytes_.size()));
  const size_t begin = pages_down(static_cast<size_t>(range.data() - bytes_.data()));
  const size_t end = pages_up(static_cast<size_t>(range.data() + range.size() - bytes_.data()));
  return range.empty() ? range : std::span(bytes_.data() + begin, end - begin);
}

MappedFile::Part MappedFile::pages_inside(std::span<const std::byte> range) const {
  if (range.empty()) return {};
  CHECK(range.data() >= bytes_.data() && range.data() + range.size() <= bytes_.data() + bytes_.size());
  const auto first = static_cast<size_t>(range.data() - bytes_.data());
  const size_t begin = pages_up(first), end = pages_down(first + range.size());
  return begin < end ? Part{begin, end} : Part{};
}

// Advice only: a kernel that refuses keeps the pages, which costs memory and nothing else. Of a copy it would make zeros.
void MappedFile::give_back(Part pages) const {
  CHECK(std::none_of(loaded_.begin(), loaded_.end(), [&](const Part& part) { return pages.begin < part.end && part.begin < pages.end; }));
  if (pages.begin < pages.end) ::madvise(const_cast<std::byte*>(bytes_.data() + pages.begin), pages.end - pages.begin, MADV_DONTNEED);
}

Result<> MappedFile::load(std::span<const std::byte> range) {
  const Part pages = pages_inside(range);
  if (pages.begin == pages.end) return {};
  auto* at = const_cast<std::byte*>(bytes_.data());
  if (::mmap(at + pages.begin, pages.end - pages.begin, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED)
    return Error{Code::kResourceExhausted, path_ + ": no memory for a copy: " + std::strerror(errno)};
  loaded_.push_back(pages);
  (void)::madvise(at + pages.begin, pages.end - pages.begin, MADV_HUGEPAGE);  // where it is switched off, small pages do
  constexpr size_t kPiece = 8 << 20;  // so that the system's cache never holds much of it beside the copy
  for (size_t done = pages.begin; done < pages.end;) {
    const ssize_t n = ::pread(fd_, at + done, std::min(kPiece, pages.end - done), static_cast<off_t>(done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return system_error(path_, errno);
    if (n == 0) return Error{Code::kCorruption, path_ + ": the file has become shorter since it was opened"};
    (void)::posix_fadvise(fd_, static_cast<off_t>(done), n, POSIX_FADV_DONTNEED);
    done += static_cast<size_t>(n);
  }
  (void)::mprotect(at + pages.begin, pages.end - pages.begin, PROT_READ);
  return {};
}

uint64_t MappedFile::loaded_bytes() const {
  uint64_t bytes = 0;
  for (const Part& part : loaded_) bytes += part.end - part.begin;
  return bytes;
}

void MappedFile::read_ahead(std::span<const std::byte> range) const {
  // Linux reads no more for one call than the device's read-ahead window, 128 KiB by default, and forgets the rest.
  constexpr size_t kWindow = 128 << 10;
  const auto pages = whole_pages(range);
  for (size_t at = 0; at < pages.size(); at += kWindow)
    ::madvise(const_cast<std::byte*>(pages.data() + at), std::min(kWindow, pages.size() - at), MADV_WILLNEED);
}

void MappedFile::evict(std::span<const std::byte> range) const {
  const auto pages = whole_pages(range);
  if (pages.empty()) return;
  const auto begin = static_cast<size_t>(pages.data() - bytes_.data());
  // In this order: the cache does not let go of what is mapped.
  give_back({begin, begin + pages.size()});
  ::posix_fadvise(fd_, static_cast<off_t>(begin), static_cast<off_t>(pages.size()), POSIX_FADV_DONTNEED);
}

void MappedFile::expect_random(std::span<const std::byte> range) const {
  const auto pages = whole_pages(range);
  if (!pages.empty()) ::madvise(const_cast<std::byte*>(pages.data()), pages.size(), MADV_RANDOM);
}

int64_t MappedFile::resident_bytes(std::span<const std::byte> range) const { return io::resident_bytes(whole_pages(range)); }

int64_t MappedFile::resident_bytes_inside(std::span<const std::byte> range) const {
  const Part pages = pages_inside(range);
  return io::resident_bytes(bytes_.subspan(pages.begin, pages.end - pages.begin));
}

int64_t resident_bytes(std::span<const std::byte> pages) {
  std::vector<unsigned char> present(pages_up(pages.size()) / kPageBytes);
  if (present.empty() || ::mincore(const_cast<std::byte*>(pages.data()), pages.size(), present.data()) != 0) return 0;
  return std::count_if(present.begin(), present.end(), [](unsigned char p) { return (p & 1) != 0; }) * static_cast<int64_t>(kPageBytes);
}

void MappedFile::release(std::span<const std::byte> range) const { give_back(pages_inside(range)); }

Result<std::string> read_small_file(const std::string& path, size_t max_bytes) {
  DI_TRY(const auto file, MappedFile::open(path));
  const auto bytes = file.bytes();
  if (bytes.size() > max_bytes) {
    return Error{Code::kResourceExhausted,
                 path + ": " + std::to_string(bytes.size()) + " bytes long, at most " + std::to_string(max_bytes) + " are read"};
  }
  return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

}  // namespace deepinfer::io
