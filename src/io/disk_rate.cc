#include "io/disk_rate.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <thread>
#include <vector>

namespace deepinfer::io {
namespace {

constexpr int64_t kReadBytes = 2 << 20;
constexpr int kReadsUnderWay = 4;
constexpr size_t kAlignment = 4096;  // of buffer and offset, which direct reads ask for

struct Freed {
  void operator()(void* p) const { std::free(p); }
};

// Reads every block whose number comes up, until there are none; the first error ends it.
void read_blocks(int fd, int64_t num_blocks, std::atomic<int64_t>& next, std::atomic<int64_t>& read, std::atomic<int>& error) {
  const std::unique_ptr<void, Freed> buffer(std::aligned_alloc(kAlignment, kReadBytes));
  for (int64_t block; error == 0 && (block = next++) < num_blocks;) {
    const ssize_t n = ::pread(fd, buffer.get(), kReadBytes, block * kReadBytes);
    if (n < 0) error = errno;
    else read += n;
  }
}

}  // namespace

Result<double> measure_disk_rate(const std::string& path, int64_t max_bytes) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECT | O_CLOEXEC);
  if (fd < 0) return Error{errno == ENOENT ? Code::kNotFound : Code::kIo, path + ": " + std::strerror(errno)};
  struct stat status {};
  ::fstat(fd, &status);
  const int64_t num_blocks = (std::min<int64_t>(max_bytes, status.st_size) + kReadBytes - 1) / kReadBytes;
  std::atomic<int64_t> next = 0, read = 0;
  std::atomic<int> error = 0;
  const auto begin = std::chrono::steady_clock::now();
  std::vector<std::thread> threads;
  for (int i = 0; i < kReadsUnderWay; ++i) threads.emplace_back([&] { read_blocks(fd, num_blocks, next, read, error); });
  for (std::thread& thread : threads) thread.join();
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  ::close(fd);
  if (error != 0) return Error{Code::kIo, path + ": " + std::strerror(error)};
  if (read == 0) return Error{Code::kInvalidArgument, path + ": empty"};
  return static_cast<double>(read) / seconds;
}

int64_t bytes_read_from_disk() {
  std::ifstream io("/proc/self/io");
  int64_t bytes = 0;
  for (std::string key; io >> key >> bytes;)
    if (key == "read_bytes:") return bytes;
  return 0;
}

}  // namespace deepinfer::io
