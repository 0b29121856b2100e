#include "io/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cerrno>
#include <cstring>
#include <utility>

namespace deepinfer::io {
namespace {

Error system_error(const std::string& path, int number) {
  const Code code = number == ENOENT || number == ENOTDIR ? Code::kNotFound : Code::kIo;
  return Error{code, path + ": " + std::strerror(number)};
}

}  // namespace

Result<MappedFile> MappedFile::open(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
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
    return MappedFile({});
  }
  void* address = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0);
  const int number = errno;
  ::close(fd);  // the mapping keeps the file
  if (address == MAP_FAILED) return system_error(path, number);
  return MappedFile({static_cast<const std::byte*>(address), size});
}

MappedFile::MappedFile(MappedFile&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(bytes_, other.bytes_);
  return *this;
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

void MappedFile::release(std::span<const std::byte> range) const {
  CHECK(range.empty() || (range.data() >= bytes_.data() && range.data() + range.size() <= bytes_.data() + bytes_.size()));
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = (reinterpret_cast<uintptr_t>(range.data()) + page - 1) / page * page;
  const auto end = reinterpret_cast<uintptr_t>(range.data() + range.size()) / page * page;
  // Advice only: a kernel that refuses keeps the pages, which costs memory and nothing else.
  if (begin < end) ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

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
