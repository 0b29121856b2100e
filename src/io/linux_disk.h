// io/linux_disk.h: Disk over the file system of the machine. Direct modes use O_DIRECT where the file system has it and the request is
// aligned, else the page cache. pread and pwritev: the store reads and writes megabytes at a time from a few threads, where io_uring
// gains nothing (docs/decisions/store-io.md), and a thread that a dead medium holds is one thread.
#pragma once

#include "io/disk.h"

namespace deepinfer::io {

class LinuxDisk final : public Disk {
 public:
  Result<std::unique_ptr<File>> open(const std::string& path, Mode mode) override;
  Result<> rename(const std::string& from, const std::string& to) override;
  Result<> remove(const std::string& path) override;
  Result<> touch(const std::string& path, int64_t unix_s) override;
  Result<FileStatus> status(const std::string& path) override;
  Result<std::vector<std::string>> list(const std::string& folder) override;
  Result<> make_folder(const std::string& path) override;
  Result<> sync_folder(const std::string& path) override;
  Result<std::unique_ptr<File>> lock(const std::string& path) override;
};

}  // namespace deepinfer::io
