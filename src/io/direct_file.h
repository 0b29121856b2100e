// A file that is read around the system's cache, whole pages into memory of our own: at the disk's rate, and nothing of it stays anywhere else.
// Where the file system has no direct reads (some of networks, of memory, of FUSE), or refuses one, the cache serves and gives the pages back at once.
// Movable; any thread may read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/result.h"
#include "io/mapped_file.h"

namespace deepinfer::io {

class DirectFile {
 public:
  enum class Way : uint8_t { kDirect, kCached };  // kCached: as where direct reads are refused
  // The file that is mapped, whatever its name stands for by now. Errors: kIo, kNotFound (no /proc).
  static Result<DirectFile> open(const MappedFile& file, Way way = Way::kDirect);

  DirectFile(DirectFile&& other) noexcept;
  DirectFile& operator=(DirectFile&& other) noexcept;
  DirectFile(const DirectFile&) = delete;
  DirectFile& operator=(const DirectFile&) = delete;
  ~DirectFile();

  // Fills out[0, needed) from `offset` on; what comes after it in the file may fill the rest. offset, the address and the size of `out` are
  // multiples of kPageBytes. Errors: kIo (the disk), kCorruption (the file has become shorter); `out` then holds anything.
  Result<> read(uint64_t offset, size_t needed, std::span<std::byte> out) const;

 private:
  DirectFile(std::string path, int cached, int direct) : path_(std::move(path)), cached_(cached), direct_(direct) {}
  Result<> read_cached(uint64_t offset, std::span<std::byte> out) const;

  std::string path_;  // for messages
  int cached_ = -1, direct_ = -1;  // direct_: -1 where it is refused
};

}  // namespace deepinfer::io
