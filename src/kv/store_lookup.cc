// What SegmentStore has from a shared index, and tells it: where blocks lie that other processes wrote since we looked at the directory.
#include <algorithm>
#include <array>

#include "kv/store_core.h"

namespace deepinfer::kv {

std::shared_ptr<LookupJob> SegmentStore::Core::look_up(std::vector<BlockKey> keys, std::function<void()> wake) {
  if (index_ == nullptr || keys.empty()) return nullptr;
  std::shared_ptr<LookupJob> job = index_->ask(std::move(keys), std::move(wake));
  if (!options_.background) index_->work([this](std::span<const IndexClient::Found> found) { return take_places(found); });
  return job;
}

void SegmentStore::Core::tell_index(const Active& active, std::span<const FooterEntry> entries, int64_t now) {
  if (index_ == nullptr) return;
  const std::string tenant = folder_name(active.header.tenant), name = segment_name(active.header);
  for (const FooterEntry& entry : entries) {
    index_->tell(entry.key, {.tenant = tenant, .name = name, .page = entry.page, .length = entry.length, .written_after_s = entry.written_after_s}, active.header.expires_unix_s - now);
  }
}

// On the index's thread, as what follows.
size_t SegmentStore::Core::take_places(std::span<const IndexClient::Found> found) {
  size_t num_wrong = 0;
  for (const auto& [key, place] : found) num_wrong += take_place(key, place) ? 0 : 1;
  return num_wrong;
}

// Puts a place into the catalog, unless we know better. False: it cannot be right.
bool SegmentStore::Core::take_place(const BlockKey& key, const BlockPlace& place) {
  if (place.length != block_length()) return false;
  const SegmentPath where{.model = folder_name(options_.model), .tenant = place.tenant, .name = place.name};
  const std::string path = where.path(options_.dir);
  bool is_new;
  {
    const MutexLock lock(mu_);
    if (catalog_.index().find(key) != StoreIndex::kNone) return true;  // found by looking, meanwhile
    is_new = catalog_.find_path(path) == kNoSegment;
  }
  if (is_new && !meet_segment(where)) return false;
  const MutexLock lock(mu_);
  const SegmentId id = catalog_.find_path(path);
  if (id == kNoSegment || catalog_.index().find(key) != StoreIndex::kNone) return true;  // others were faster
  const Segment& segment = catalog_.at(id);
  // What we wrote or read ourselves up to there holds no such block, or one that turned out bad.
  if (!is_serving(segment, now_s()) || segment.state == Segment::State::kActive || place.page < segment.end_page) return false;
  catalog_.add_block(id, {.key = key, .page = place.page, .length = place.length, .written_after_s = place.written_after_s}, segment.last_use_s);
  return true;
}

// A file that the last look at the directory did not show: its header alone is read now, its records when it is looked at next.
bool SegmentStore::Core::meet_segment(const SegmentPath& where) {
  const std::string path = where.path(options_.dir);
  const Result<std::unique_ptr<io::File>> file = disk_->open(path, io::Disk::Mode::kRead);
  if (!file) return false;
  std::array<std::byte, kSegmentHeaderBytes> head;
  const Result<size_t> n = (*file)->read(0, head);
  const Result<io::FileStatus> status = (*file)->status();
  if (!n || !status) return false;
  const Result<SegmentHeader> header = decode_segment_header(std::span(head).first(*n));
  if (!header || !could_serve(*header) || !where.holds(*header)) return false;
  const MutexLock lock(mu_);
  if (catalog_.find_path(path) != kNoSegment) return true;
  const int64_t now = now_s();
  catalog_.add({.file = std::make_shared<SegmentFile>(path), .header = *header, .state = Segment::State::kGrowing, .indexed = true, .shared = counts_as_shared(true),
                .allocated_bytes = status->allocated_bytes, .expires_s = expiry_of(*header, now), .last_use_s = std::min(now, status->changed_unix_s),
                .touched_s = now});
  return true;
}

}  // namespace deepinfer::kv
