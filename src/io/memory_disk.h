// io/memory_disk.h: a Disk in memory that can go wrong on request: for tests, replays and simulations. Pages are kept without their trailing
// zeros, so that sparse content costs little. Thread-safe. Paths are plain strings; folders are made and checked like a file system's.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "io/disk.h"

namespace deepinfer::io {

class MemoryDisk final : public Disk {
 public:
  MemoryDisk();

  Result<std::unique_ptr<File>> open(const std::string& path, Mode mode) override;
  Result<> rename(const std::string& from, const std::string& to) override;
  Result<> remove(const std::string& path) override;
  Result<> touch(const std::string& path, int64_t unix_s) override;
  Result<FileStatus> status(const std::string& path) override;
  Result<std::vector<std::string>> list(const std::string& folder) override;
  Result<> make_folder(const std::string& path) override;
  Result<> sync_folder(const std::string& path) override;
  Result<std::unique_ptr<File>> lock(const std::string& path) override;

  // What goes wrong. Asked before every operation, without a lock held, so it may block; a returned error is what the caller gets.
  enum class Op : uint8_t { kOpen, kCreate, kRead, kWrite, kSync, kRename, kRemove, kStatus, kList, kMakeFolder, kLock, kTouch };
  struct Access {
    Op op;
    const std::string& path;
    uint64_t offset = 0;
    size_t length = 0;
    size_t* torn = nullptr;  // kWrite: set to how many bytes get through before the error
  };
  using Fault = std::function<Result<>(const Access&)>;
  void set_fault(Fault fault);
  void set_capacity(uint64_t num_bytes);              // of all files; beyond: kResourceExhausted, with what fitted written
  void set_time(std::function<int64_t()> unix_s);     // changed_unix_s of writes; 0 without
  // Everything since the last sync of each file is undone, but `kept_bytes` of the oldest unsynced write of each; locks are free again.
  void crash(size_t kept_bytes = 0);

  // Behind the store's back.
  Result<> put(const std::string& path, std::string_view content);  // replaces or makes, with its folders
  std::string content(const std::string& path) const;               // empty if absent
  void flip_bit(const std::string& path, uint64_t bit);
  std::vector<std::string> files() const;                           // all paths, sorted
  uint64_t allocated_bytes() const;                                 // of all files

 private:
  struct Inode {
    struct Undo {
      uint64_t offset;
      std::string old_bytes;
      uint64_t old_size, new_length;
    };
    std::vector<std::string> pages;  // without trailing zeros
    uint64_t size = 0;
    int64_t changed_unix_s = 0;
    std::vector<Undo> unsynced;
    bool locked = false;
  };
  class MemoryFile;

  Result<> check(const Access& access) const;
  std::shared_ptr<Inode> find(const std::string& path) const;  // mu_ held
  static std::string read_range(const Inode& inode, uint64_t offset, size_t length);
  static void write_range(Inode& inode, uint64_t offset, std::string_view bytes);
  static uint64_t allocated_of(const Inode& inode);
  uint64_t allocated_locked() const;

  mutable std::mutex mu_;
  std::map<std::string, std::shared_ptr<Inode>> inodes_;
  std::set<std::string> folders_;
  Fault fault_;
  uint64_t capacity_ = UINT64_MAX;
  uint64_t used_ = 0;  // allocated, kept up to date by writes
  std::function<int64_t()> time_;
};

}  // namespace deepinfer::io
