#include "kv/segment_catalog.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace deepinfer::kv {

Result<std::shared_ptr<io::File>> SegmentFile::open(io::Disk& disk) {
  {
    const std::lock_guard lock(mu_);
    if (file_ != nullptr) return file_;
  }
  // Without the lock: a medium that hangs must hold up this reader only.
  DI_TRY(std::unique_ptr<io::File> opened, disk.open(path_, io::Disk::Mode::kReadDirect));
  const std::lock_guard lock(mu_);
  if (file_ == nullptr) file_ = std::move(opened);
  return file_;
}

void SegmentFile::close() {
  std::shared_ptr<io::File> file;  // closed without the lock
  const std::lock_guard lock(mu_);
  file = std::move(file_);
}

SegmentId SegmentCatalog::add(Segment segment) {
  SegmentId id = static_cast<SegmentId>(segments_.size());
  if (free_.empty()) {
    segments_.emplace_back();
  } else {
    id = free_.back();
    free_.pop_back();
  }
  used_bytes_ += segment.allocated_bytes;
  const bool is_new = by_path_.emplace(segment.file->path(), id).second;
  CHECK(is_new);
  segments_[id] = std::make_unique<Segment>(std::move(segment));
  return id;
}

SegmentId SegmentCatalog::find_path(const std::string& path) const {
  const auto it = by_path_.find(path);
  return it == by_path_.end() ? kNoSegment : it->second;
}

std::vector<SegmentId> SegmentCatalog::ids() const {
  std::vector<SegmentId> out;
  for (SegmentId id = 0; id < segments_.size(); ++id) {
    if (segments_[id] != nullptr) out.push_back(id);
  }
  return out;
}

void SegmentCatalog::add_block(SegmentId id, const FooterEntry& block, int64_t last_use_s) {
  Segment& segment = at(id);
  segment.head = index_.insert({.key = block.key, .segment = id, .page = block.page, .written_after_s = block.written_after_s, .last_use = static_cast<uint32_t>(last_use_s)},
                               segment.head);
  segment.num_blocks += 1;
  segment.use_sum_s += static_cast<double>(last_use_s);
}

void SegmentCatalog::touch(uint32_t entry, int64_t now_s) {
  StoreIndex::Entry& block = index_.at(entry);
  Segment& segment = at(block.segment);
  segment.last_use_s = std::max(segment.last_use_s, now_s);
  segment.use_sum_s += static_cast<double>(now_s) - block.last_use;
  block.last_use = static_cast<uint32_t>(now_s);
  block.was_hit = 1;
}

size_t SegmentCatalog::remove(SegmentId id) {
  Segment& segment = at(id);
  const size_t num_found = index_.remove_list(segment.head);
  used_bytes_ -= segment.allocated_bytes;
  by_path_.erase(segment.file->path());
  segments_[id].reset();
  free_.push_back(id);
  return num_found;
}

void SegmentCatalog::set_allocated(SegmentId id, uint64_t bytes) {
  Segment& segment = at(id);
  used_bytes_ += bytes - segment.allocated_bytes;
  segment.allocated_bytes = bytes;
}

}  // namespace deepinfer::kv
