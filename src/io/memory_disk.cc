#include "io/memory_disk.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace deepinfer::io {
namespace {

Error not_found(const std::string& path) { return {Code::kNotFound, path + ": No such file or directory"}; }

std::string parent_of(const std::string& path) {
  const size_t slash = path.find_last_of('/');
  return slash == std::string::npos ? "" : path.substr(0, slash);
}

}  // namespace

class MemoryDisk::MemoryFile final : public File {
 public:
  MemoryFile(MemoryDisk& disk, std::string path, std::shared_ptr<Inode> inode, bool writable, bool locks)
      : disk_(disk), path_(std::move(path)), inode_(std::move(inode)), writable_(writable), locks_(locks) {}
  ~MemoryFile() override {
    if (!locks_) return;
    const std::lock_guard lock(disk_.mu_);
    inode_->locked = false;
  }

  Result<size_t> read(uint64_t offset, std::span<std::byte> out) override {
    DI_TRY(disk_.check({.op = Op::kRead, .path = path_, .offset = offset, .length = out.size()}));
    const std::lock_guard lock(disk_.mu_);
    if (offset >= inode_->size) return size_t{0};
    const std::string bytes = read_range(*inode_, offset, std::min<uint64_t>(out.size(), inode_->size - offset));
    std::memcpy(out.data(), bytes.data(), bytes.size());
    return bytes.size();
  }

  Result<> write(uint64_t offset, std::span<const std::span<const std::byte>> pieces) override {
    if (!writable_) return Error{Code::kIo, path_ + ": opened for reading"};
    std::string bytes;
    for (const auto& piece : pieces) bytes.append(reinterpret_cast<const char*>(piece.data()), piece.size());
    size_t torn = 0;
    Result<> allowed = disk_.check({.op = Op::kWrite, .path = path_, .offset = offset, .length = bytes.size(), .torn = &torn});
    if (!allowed) bytes.resize(std::min(bytes.size(), torn));
    const std::lock_guard lock(disk_.mu_);
    const uint64_t before = allocated_of(*inode_);
    // What the new end would take; a capacity below that lets whole pages through as far as they fit.
    const uint64_t end_pages = (std::max(inode_->size, offset + bytes.size()) + kDiskPage - 1) / kDiskPage * kDiskPage;
    if (disk_.used_ - before + end_pages > disk_.capacity_) {
      const uint64_t room = disk_.capacity_ > disk_.used_ ? (disk_.capacity_ - disk_.used_) / kDiskPage * kDiskPage : 0;
      bytes.resize(std::min<size_t>(bytes.size(), room));
      if (allowed) allowed = Error{Code::kResourceExhausted, path_ + ": No space left on device"};
    }
    if (!bytes.empty()) {
      const uint64_t old_size = inode_->size;
      inode_->unsynced.push_back({offset, read_range(*inode_, offset, bytes.size()), old_size, bytes.size()});
      write_range(*inode_, offset, bytes);
      if (disk_.time_) inode_->changed_unix_s = disk_.time_();
    }
    disk_.used_ += allocated_of(*inode_) - before;
    return allowed;
  }

  Result<> sync() override {
    DI_TRY(disk_.check({.op = Op::kSync, .path = path_}));
    const std::lock_guard lock(disk_.mu_);
    inode_->unsynced.clear();
    return {};
  }
  Result<FileStatus> status() override {
    const std::lock_guard lock(disk_.mu_);
    return FileStatus{.size = inode_->size, .allocated_bytes = allocated_of(*inode_), .changed_unix_s = inode_->changed_unix_s};
  }
  Result<> truncate(uint64_t size) override {
    DI_TRY(disk_.check({.op = Op::kWrite, .path = path_, .offset = size}));
    const std::lock_guard lock(disk_.mu_);
    const uint64_t before = allocated_of(*inode_);
    if (size < inode_->size) {
      inode_->pages.resize((size + kDiskPage - 1) / kDiskPage);
      if (size % kDiskPage != 0 && inode_->pages.back().size() > size % kDiskPage) inode_->pages.back().resize(size % kDiskPage);
    }
    inode_->size = size;
    disk_.used_ += allocated_of(*inode_) - before;
    return {};
  }

 private:
  MemoryDisk& disk_;
  const std::string path_;
  const std::shared_ptr<Inode> inode_;
  const bool writable_, locks_;
};

MemoryDisk::MemoryDisk() { folders_.insert(""); }

Result<> MemoryDisk::check(const Access& access) const {
  Fault fault;
  {
    const std::lock_guard lock(mu_);
    fault = fault_;
  }
  return fault ? fault(access) : Result<>();
}

std::shared_ptr<MemoryDisk::Inode> MemoryDisk::find(const std::string& path) const {
  const auto it = inodes_.find(path);
  return it == inodes_.end() ? nullptr : it->second;
}

std::string MemoryDisk::read_range(const Inode& inode, uint64_t offset, size_t length) {
  std::string out(length, '\0');
  for (size_t done = 0; done < length;) {
    const uint64_t page = (offset + done) / kDiskPage, at = (offset + done) % kDiskPage;
    const size_t n = std::min<size_t>(length - done, kDiskPage - at);
    if (page < inode.pages.size() && at < inode.pages[page].size()) {
      std::memcpy(out.data() + done, inode.pages[page].data() + at, std::min<size_t>(n, inode.pages[page].size() - at));
    }
    done += n;
  }
  return out;
}

void MemoryDisk::write_range(Inode& inode, uint64_t offset, std::string_view bytes) {
  inode.size = std::max<uint64_t>(inode.size, offset + bytes.size());
  inode.pages.resize(std::max<size_t>(inode.pages.size(), (inode.size + kDiskPage - 1) / kDiskPage));
  for (size_t done = 0; done < bytes.size();) {
    std::string& page = inode.pages[(offset + done) / kDiskPage];
    const uint64_t at = (offset + done) % kDiskPage;
    const size_t n = std::min<size_t>(bytes.size() - done, kDiskPage - at);
    if (page.size() < at + n) page.resize(at + n, '\0');
    std::memcpy(page.data() + at, bytes.data() + done, n);
    page.resize(page.find_last_not_of('\0') + 1);  // npos + 1 is 0
    page.shrink_to_fit();
    done += n;
  }
}

uint64_t MemoryDisk::allocated_of(const Inode& inode) { return inode.pages.size() * kDiskPage; }

Result<std::unique_ptr<File>> MemoryDisk::open(const std::string& path, Mode mode) {
  const bool create = mode == Mode::kCreate || mode == Mode::kCreateDirect;
  DI_TRY(check({.op = create ? Op::kCreate : Op::kOpen, .path = path}));
  const std::lock_guard lock(mu_);
  std::shared_ptr<Inode> inode = find(path);
  if (create) {
    if (inode != nullptr) return Error{Code::kIo, path + ": File exists"};
    if (!folders_.contains(parent_of(path))) return not_found(path);
    inode = std::make_shared<Inode>();
    if (time_) inode->changed_unix_s = time_();
    inodes_[path] = inode;
  }
  if (inode == nullptr) return not_found(path);
  return std::unique_ptr<File>(new MemoryFile(*this, path, inode, create, false));
}

Result<std::unique_ptr<File>> MemoryDisk::lock(const std::string& path) {
  DI_TRY(check({.op = Op::kLock, .path = path}));
  const std::lock_guard lock(mu_);
  if (!folders_.contains(parent_of(path))) return not_found(path);
  std::shared_ptr<Inode>& inode = inodes_[path];
  if (inode == nullptr) inode = std::make_shared<Inode>();
  if (inode->locked) return Error{Code::kUnavailable, path + ": Resource temporarily unavailable"};
  inode->locked = true;
  return std::unique_ptr<File>(new MemoryFile(*this, path, inode, true, true));
}

Result<> MemoryDisk::rename(const std::string& from, const std::string& to) {
  DI_TRY(check({.op = Op::kRename, .path = from}));
  const std::lock_guard lock(mu_);
  const std::shared_ptr<Inode> inode = find(from);
  if (inode == nullptr || !folders_.contains(parent_of(to))) return not_found(from);
  if (const std::shared_ptr<Inode> old = find(to); old != nullptr) used_ -= allocated_of(*old);
  inodes_[to] = inode;
  inodes_.erase(from);
  return {};
}

Result<> MemoryDisk::remove(const std::string& path) {
  DI_TRY(check({.op = Op::kRemove, .path = path}));
  const std::lock_guard lock(mu_);
  if (const std::shared_ptr<Inode> inode = find(path); inode != nullptr) {
    used_ -= allocated_of(*inode);
    inodes_.erase(path);
    return {};
  }
  if (!folders_.contains(path)) return not_found(path);
  const auto below = [&](const std::string& other) { return other.size() > path.size() && other.starts_with(path + "/"); };
  const bool used = std::any_of(inodes_.lower_bound(path), inodes_.end(), [&](const auto& entry) { return below(entry.first); }) ||
                    std::any_of(folders_.begin(), folders_.end(), below);
  if (used) return Error{Code::kIo, path + ": Directory not empty"};
  folders_.erase(path);
  return {};
}

Result<> MemoryDisk::touch(const std::string& path, int64_t unix_s) {
  DI_TRY(check({.op = Op::kTouch, .path = path}));
  const std::lock_guard lock(mu_);
  const std::shared_ptr<Inode> inode = find(path);
  if (inode == nullptr) return not_found(path);
  inode->changed_unix_s = unix_s;
  return {};
}

Result<FileStatus> MemoryDisk::status(const std::string& path) {
  DI_TRY(check({.op = Op::kStatus, .path = path}));
  const std::lock_guard lock(mu_);
  if (folders_.contains(path)) return FileStatus{.is_directory = true};
  const std::shared_ptr<Inode> inode = find(path);
  if (inode == nullptr) return not_found(path);
  return FileStatus{.size = inode->size, .allocated_bytes = allocated_of(*inode), .changed_unix_s = inode->changed_unix_s};
}

Result<std::vector<std::string>> MemoryDisk::list(const std::string& folder) {
  DI_TRY(check({.op = Op::kList, .path = folder}));
  const std::lock_guard lock(mu_);
  if (!folders_.contains(folder)) return not_found(folder);
  std::set<std::string> names;
  const std::string prefix = folder + "/";
  const auto add = [&](const std::string& path) {
    if (!path.starts_with(prefix)) return false;
    names.insert(path.substr(prefix.size(), path.find('/', prefix.size()) - prefix.size()));
    return true;
  };
  for (auto it = inodes_.lower_bound(prefix); it != inodes_.end() && add(it->first); ++it) continue;
  for (auto it = folders_.lower_bound(prefix); it != folders_.end() && add(*it); ++it) continue;
  return std::vector<std::string>(names.begin(), names.end());
}

Result<> MemoryDisk::make_folder(const std::string& path) {
  DI_TRY(check({.op = Op::kMakeFolder, .path = path}));
  const std::lock_guard lock(mu_);
  for (std::string at = path; !at.empty(); at = parent_of(at)) {
    if (find(at) != nullptr) return Error{Code::kIo, at + ": is not a folder"};
    folders_.insert(at);
  }
  return {};
}

Result<> MemoryDisk::sync_folder(const std::string& path) {
  DI_TRY(check({.op = Op::kSync, .path = path}));
  const std::lock_guard lock(mu_);
  if (!folders_.contains(path)) return not_found(path);
  return {};
}

void MemoryDisk::set_fault(Fault fault) {
  const std::lock_guard lock(mu_);
  fault_ = std::move(fault);
}
void MemoryDisk::set_capacity(uint64_t num_bytes) {
  const std::lock_guard lock(mu_);
  capacity_ = num_bytes;
}
void MemoryDisk::set_time(std::function<int64_t()> unix_s) {
  const std::lock_guard lock(mu_);
  time_ = std::move(unix_s);
}

void MemoryDisk::crash(size_t kept_bytes) {
  const std::lock_guard lock(mu_);
  for (auto& [path, inode] : inodes_) {
    const uint64_t before = allocated_of(*inode);
    inode->locked = false;
    if (inode->unsynced.empty()) continue;
    const Inode::Undo oldest = inode->unsynced.front();
    const std::string kept = read_range(*inode, oldest.offset, std::min<size_t>(kept_bytes, oldest.new_length));
    for (; !inode->unsynced.empty(); inode->unsynced.pop_back()) {
      const Inode::Undo& undo = inode->unsynced.back();
      write_range(*inode, undo.offset, undo.old_bytes);
      inode->size = undo.old_size;
      inode->pages.resize((undo.old_size + kDiskPage - 1) / kDiskPage);
    }
    if (!kept.empty()) write_range(*inode, oldest.offset, kept);
    used_ += allocated_of(*inode) - before;
  }
}

Result<> MemoryDisk::put(const std::string& path, std::string_view content) {
  const std::lock_guard lock(mu_);
  for (std::string at = parent_of(path); !at.empty(); at = parent_of(at)) folders_.insert(at);
  std::shared_ptr<Inode>& inode = inodes_[path];
  if (inode != nullptr) used_ -= allocated_of(*inode);
  inode = std::make_shared<Inode>();
  write_range(*inode, 0, content);
  used_ += allocated_of(*inode);
  if (time_) inode->changed_unix_s = time_();
  return {};
}

std::string MemoryDisk::content(const std::string& path) const {
  const std::lock_guard lock(mu_);
  const std::shared_ptr<Inode> inode = find(path);
  return inode == nullptr ? "" : read_range(*inode, 0, inode->size);
}

void MemoryDisk::flip_bit(const std::string& path, uint64_t bit) {
  const std::lock_guard lock(mu_);
  const std::shared_ptr<Inode> inode = find(path);
  CHECK(inode != nullptr && bit / 8 < inode->size);
  std::string byte = read_range(*inode, bit / 8, 1);
  byte[0] = static_cast<char>(byte[0] ^ (1 << bit % 8));
  write_range(*inode, bit / 8, byte);
}

std::vector<std::string> MemoryDisk::files() const {
  const std::lock_guard lock(mu_);
  std::vector<std::string> out;
  for (const auto& [path, inode] : inodes_) out.push_back(path);
  return out;
}

uint64_t MemoryDisk::allocated_bytes() const {
  const std::lock_guard lock(mu_);
  return allocated_locked();
}

uint64_t MemoryDisk::allocated_locked() const {
  uint64_t total = 0;
  for (const auto& [path, inode] : inodes_) total += allocated_of(*inode);
  return total;
}

}  // namespace deepinfer::io
