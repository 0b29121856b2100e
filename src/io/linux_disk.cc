#include "io/linux_disk.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "io/system_error.h"

namespace deepinfer::io {
namespace {

FileStatus status_of(const struct stat& s) {
  return {.size = static_cast<uint64_t>(s.st_size),
          .allocated_bytes = static_cast<uint64_t>(s.st_blocks) * 512,
          .changed_unix_s = s.st_mtim.tv_sec,
          .is_directory = S_ISDIR(s.st_mode)};
}

bool is_aligned(uint64_t value) { return value % kDiskPage == 0; }

class LinuxFile final : public File {
 public:
  // direct: a second descriptor with O_DIRECT, or -1.
  LinuxFile(std::string path, int fd, int direct) : path_(std::move(path)), fd_(fd), direct_(direct) {}
  LinuxFile(const LinuxFile&) = delete;
  LinuxFile& operator=(const LinuxFile&) = delete;
  ~LinuxFile() override {
    ::close(fd_);
    if (direct_ >= 0) ::close(direct_);
  }

  Result<size_t> read(uint64_t offset, std::span<std::byte> out) override {
    const bool direct = direct_ >= 0 && is_aligned(offset) && is_aligned(out.size()) && is_aligned(reinterpret_cast<uintptr_t>(out.data()));
    size_t done = 0;
    while (done < out.size()) {
      // What a direct read left over at an odd place (the end of the file) is read through the page cache.
      const int fd = direct && is_aligned(done) ? direct_ : fd_;
      const ssize_t n = ::pread(fd, out.data() + done, out.size() - done, static_cast<off_t>(offset + done));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return system_error(path_, errno);
      if (n == 0) break;
      done += static_cast<size_t>(n);
    }
    return done;
  }

  Result<> write(uint64_t offset, std::span<const std::span<const std::byte>> pieces) override {
    const bool direct = direct_ >= 0 && is_aligned(offset) && std::all_of(pieces.begin(), pieces.end(), [](const auto& piece) {
                          return is_aligned(piece.size()) && is_aligned(reinterpret_cast<uintptr_t>(piece.data()));
                        });
    std::array<iovec, 64> vectors;
    while (!pieces.empty()) {
      const size_t count = std::min(pieces.size(), vectors.size());
      for (size_t i = 0; i < count; ++i) vectors[i] = {.iov_base = const_cast<std::byte*>(pieces[i].data()), .iov_len = pieces[i].size()};
      DI_TRY(offset, write_all(direct ? direct_ : fd_, offset, std::span(vectors).first(count)));
      pieces = pieces.subspan(count);
    }
    return {};
  }

  Result<> sync() override {
    if (::fdatasync(fd_) != 0) return system_error(path_, errno);
    return {};
  }
  Result<FileStatus> status() override {
    struct stat s {};
    if (::fstat(fd_, &s) != 0) return system_error(path_, errno);
    return status_of(s);
  }
  Result<> truncate(uint64_t size) override {
    if (::ftruncate(fd_, static_cast<off_t>(size)) != 0) return system_error(path_, errno);
    return {};
  }

 private:
  // Returns where it ends.
  Result<uint64_t> write_all(int fd, uint64_t offset, std::span<iovec> vectors) {
    while (!vectors.empty()) {
      const ssize_t n = ::pwritev(fd, vectors.data(), static_cast<int>(vectors.size()), static_cast<off_t>(offset));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return system_error(path_, errno);
      if (n == 0) return Error{Code::kIo, path_ + ": nothing was written"};
      offset += static_cast<uint64_t>(n);
      auto left = static_cast<size_t>(n);
      while (!vectors.empty() && left >= vectors.front().iov_len) {
        left -= vectors.front().iov_len;
        vectors = vectors.subspan(1);
      }
      if (left > 0) {
        vectors.front().iov_base = static_cast<std::byte*>(vectors.front().iov_base) + left;
        vectors.front().iov_len -= left;
        fd = is_aligned(offset) ? fd : fd_;  // a short direct write may end anywhere
      }
    }
    return offset;
  }

  const std::string path_;
  const int fd_, direct_;
};

}  // namespace

Result<std::unique_ptr<File>> LinuxDisk::open(const std::string& path, Mode mode) {
  const bool create = mode == Mode::kCreate || mode == Mode::kCreateDirect;
  const bool direct = mode == Mode::kReadDirect || mode == Mode::kCreateDirect;
  const int access = create ? O_RDWR : O_RDONLY;
  // Not through links: a name in the folder is a file of the folder. Without waiting: somebody's pipe would be opened once somebody writes to it.
  const int fd = ::open(path.c_str(), access | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | (create ? O_CREAT | O_EXCL : 0), 0600);
  if (fd < 0) return system_error(path, errno);
  struct stat s {};
  if (::fstat(fd, &s) != 0 || !S_ISREG(s.st_mode)) {
    ::close(fd);
    return Error{Code::kIo, path + ": not a regular file"};
  }
  // Refused where the file system has no direct access (tmpfs before Linux 6.6): then the page cache serves.
  const int direct_fd = direct ? ::open(path.c_str(), access | O_CLOEXEC | O_NOFOLLOW | O_DIRECT) : -1;
  return std::unique_ptr<File>(new LinuxFile(path, fd, direct_fd));
}

Result<> LinuxDisk::rename(const std::string& from, const std::string& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) return system_error(from, errno);
  return {};
}

Result<> LinuxDisk::remove(const std::string& path) {
  if (::unlink(path.c_str()) == 0) return {};
  if (errno == EISDIR && ::rmdir(path.c_str()) == 0) return {};
  return system_error(path, errno);
}

Result<> LinuxDisk::touch(const std::string& path, int64_t unix_s) {
  const std::array<timespec, 2> times{{{.tv_sec = unix_s, .tv_nsec = 0}, {.tv_sec = unix_s, .tv_nsec = 0}}};
  if (::utimensat(AT_FDCWD, path.c_str(), times.data(), AT_SYMLINK_NOFOLLOW) != 0) return system_error(path, errno);
  return {};
}

Result<FileStatus> LinuxDisk::status(const std::string& path) {
  struct stat s {};
  if (::lstat(path.c_str(), &s) != 0) return system_error(path, errno);
  return status_of(s);
}

Result<std::vector<std::string>> LinuxDisk::list(const std::string& folder) {
  DIR* dir = ::opendir(folder.c_str());
  if (dir == nullptr) return system_error(folder, errno);
  std::vector<std::string> names;
  errno = 0;
  while (const dirent* entry = ::readdir(dir)) {
    const std::string name = entry->d_name;
    if (name != "." && name != "..") names.push_back(name);
  }
  const int number = errno;
  ::closedir(dir);
  if (number != 0) return system_error(folder, number);
  std::sort(names.begin(), names.end());
  return names;
}

Result<> LinuxDisk::make_folder(const std::string& path) {
  if (::mkdir(path.c_str(), 0700) == 0) return {};
  const int number = errno;
  struct stat s {};
  if (number == EEXIST) {
    if (::stat(path.c_str(), &s) == 0 && S_ISDIR(s.st_mode)) return {};
    return Error{Code::kIo, path + ": is not a folder"};
  }
  const size_t slash = path.find_last_of('/');
  if (number != ENOENT || slash == std::string::npos || slash == 0) return system_error(path, number);
  DI_TRY(make_folder(path.substr(0, slash)));
  if (::mkdir(path.c_str(), 0700) == 0 || errno == EEXIST) return {};
  return system_error(path, errno);
}

Result<> LinuxDisk::sync_folder(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return system_error(path, errno);
  const int rc = ::fsync(fd), number = errno;
  ::close(fd);
  // Some network file systems have nothing to sync here, and say so.
  if (rc != 0 && number != EINVAL) return system_error(path, number);
  return {};
}

Result<std::unique_ptr<File>> LinuxDisk::lock(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) return system_error(path, errno);
  if (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
    const int number = errno;
    ::close(fd);
    return system_error(path, number);
  }
  return std::unique_ptr<File>(new LinuxFile(path, fd, -1));
}

}  // namespace deepinfer::io
