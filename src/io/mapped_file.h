// A file mapped read-only: weights are used in place and paged in as they are touched. Reads of a mapping cannot report errors (a
// disk fault or a file cut short by someone else is SIGBUS), so files that are written while they are read do not belong here.
// Movable; the bytes stay where they are. Any thread may read.
#pragma once

#include <cstddef>
#include <span>
#include <string>

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
  // Drops the pages that lie wholly inside `range` (a part of bytes()) from this process: they no longer count as resident, and
  // are read from the file again if touched.
  void release(std::span<const std::byte> range) const;

 private:
  explicit MappedFile(std::span<const std::byte> bytes) : bytes_(bytes) {}
  std::span<const std::byte> bytes_;
};

// The whole of a small file. Errors: as open(), and kResourceExhausted if it is longer than max_bytes.
Result<std::string> read_small_file(const std::string& path, size_t max_bytes);

}  // namespace deepinfer::io
