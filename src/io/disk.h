// io/disk.h: the file system as the block store sees it: files that are appended to, read at offsets and made durable; folders that are
// listed. Small, so that tests put faults, crashes and clocks of their own behind it; io/linux_disk.h is the real one.
// Thread-safe: any call from any thread, also on one File. A call may block as long as the medium does.
//
// Errors: kNotFound (the path), kResourceExhausted (no space, quota), kUnavailable (read-only), kIo (everything else the system says).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"

namespace deepinfer::io {

// Offsets, lengths and addresses that are multiples of this can bypass the page cache (O_DIRECT).
constexpr size_t kDiskPage = 4096;

struct FileStatus {
  uint64_t size = 0;             // bytes
  uint64_t allocated_bytes = 0;  // what it takes on the medium (st_blocks)
  int64_t changed_unix_s = 0;    // last write or touch()
  bool is_directory = false;
};

class File {
 public:
  virtual ~File() = default;
  // Fills `out` from `offset`; returns how much there was: less only at the end of the file.
  virtual Result<size_t> read(uint64_t offset, std::span<std::byte> out) = 0;
  // Writes the pieces one after the other. All or an error; after an error any part of it may be there.
  virtual Result<> write(uint64_t offset, std::span<const std::span<const std::byte>> pieces) = 0;
  virtual Result<> sync() = 0;  // what was written survives a crash when this returns
  virtual Result<FileStatus> status() = 0;
  virtual Result<> truncate(uint64_t size) = 0;
};

class Disk {
 public:
  enum class Mode : uint8_t {
    kRead,
    kReadDirect,  // past the page cache where that works
    kCreate,      // new, for reading and writing, 0600; an existing file is kIo
    kCreateDirect,
  };

  virtual ~Disk() = default;
  virtual Result<std::unique_ptr<File>> open(const std::string& path, Mode mode) = 0;
  virtual Result<> rename(const std::string& from, const std::string& to) = 0;  // replaces `to`
  virtual Result<> remove(const std::string& path) = 0;                         // a file or an empty folder
  virtual Result<> touch(const std::string& path, int64_t unix_s) = 0;          // sets changed_unix_s
  virtual Result<FileStatus> status(const std::string& path) = 0;
  virtual Result<std::vector<std::string>> list(const std::string& folder) = 0;  // names, sorted, without . and ..
  virtual Result<> make_folder(const std::string& path) = 0;                     // with its parents, 0700; fine if it is there
  virtual Result<> sync_folder(const std::string& path) = 0;                     // names made or removed in it survive a crash
  // Holds a lock on a file (made if absent) until the handle goes. kUnavailable: another process, or another handle, has it.
  virtual Result<std::unique_ptr<File>> lock(const std::string& path) = 0;
};

// A small file, whole. Errors: kCorruption if it is longer than max_bytes.
Result<std::string> read_file(Disk& disk, const std::string& path, size_t max_bytes);
// Replaces a small file so that a reader, and a start after a crash, finds the old or the new content and never a mixture.
Result<> replace_file(Disk& disk, const std::string& path, std::string_view content);

}  // namespace deepinfer::io
