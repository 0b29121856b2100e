// A file mapped read-only: weights are used in place and paged in as they are touched. Reads of a mapping cannot report errors (a
// disk fault or a file cut short by someone else is SIGBUS), so files that are written while they are read do not belong here.
// Parts can be copied into memory of their own instead, which is read faster: in pages of 2 MiB, where files have 4 KiB.
// Movable; the bytes stay where they are. Any thread may read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"

namespace deepinfer::io {

class MappedFile {
 public:
  // Errors: kNotFound, kIo (the operating system's reason; not a regular file). An empty file is an empty span.
  static Result<MappedFile> open(const std::string& path);

  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return bytes_; }
  const std::string& path() const { return path_; }
  int descriptor() const { return fd_; }  // -1: an empty file
  // Drops the pages that lie wholly inside `range` (a part of bytes()) from this process: they no longer count as resident, and
  // are read from the file again if touched.
  void release(std::span<const std::byte> range) const;

  // Puts a copy of the pages that lie wholly inside `range` in their place, in memory of this process, and lets go of the file's: no
  // release() or evict() may touch them from then on. Nobody reads meanwhile. Errors: kIo (the disk), kCorruption (the file has become
  // shorter), kResourceExhausted (no memory); the range is then not to be read.
  Result<> load(std::span<const std::byte> range);
  uint64_t loaded_bytes() const;

  // For files larger than memory; all in whole pages, those that `range` touches in part included.
  void read_ahead(std::span<const std::byte> range) const;   // starts reading; returns at once
  void evict(std::span<const std::byte> range) const;        // out of this process and out of the system's cache, unless another maps them
  void expect_random(std::span<const std::byte> range) const;  // a page that is touched is read alone, without its neighbours
  int64_t resident_bytes(std::span<const std::byte> range) const;  // in the system's cache; slow, for tests and measurements
  int64_t resident_bytes_inside(std::span<const std::byte> range) const;  // likewise, but of pages that hold nothing else

 private:
  struct Part {
    size_t begin = 0, end = 0;  // of bytes_
  };
  MappedFile(std::string path, std::span<const std::byte> bytes, int fd) : path_(std::move(path)), bytes_(bytes), fd_(fd) {}
  std::span<const std::byte> whole_pages(std::span<const std::byte> range) const;
  Part pages_inside(std::span<const std::byte> range) const;
  void give_back(Part pages) const;

  std::string path_;  // for messages
  std::span<const std::byte> bytes_;
  int fd_ = -1;
  std::vector<Part> loaded_;
};

constexpr size_t kPageBytes = 4096;  // of memory; the unit of the above
constexpr size_t pages_down(size_t bytes) { return bytes / kPageBytes * kPageBytes; }
constexpr size_t pages_up(size_t bytes) { return pages_down(bytes + kPageBytes - 1); }

// Of memory that begins at a page, mapped from a file or not. Slow, for tests and measurements.
int64_t resident_bytes(std::span<const std::byte> pages);

// The whole of a small file. Errors: as open(), and kResourceExhausted if it is longer than max_bytes.
Result<std::string> read_small_file(const std::string& path, size_t max_bytes);

}  // namespace deepinfer::io
