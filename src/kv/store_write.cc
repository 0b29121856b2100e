// The writing side of SegmentStore: from rows to durable records, one segment a (tenant, class, time bucket) at a time. Two threads, so that
// checksums and encryption of the next records cost no time of the disk (docs/decisions/store-io.md).
#include <algorithm>
#include <array>
#include <cstring>
#include <fmt/format.h>
#include <pthread.h>

#include "base/check.h"
#include "kv/store_core.h"

namespace deepinfer::kv {
namespace {

constexpr size_t kMaxActive = 64;       // files that are appended to at a time
constexpr size_t kBatchBytes = size_t{16} << 20;   // of records written and made durable together: so much memory comes free at a time
constexpr size_t kEnoughBytes = size_t{4} << 20;   // not worth waiting for more
constexpr size_t kFinishBytes = size_t{2} << 20;   // of records finished at a time
constexpr int32_t kMaxFailures = 3;     // in a row, before the store is read-only
constexpr int64_t kRetrySeconds = 30;   // for that long

// A class is cut into about 24 buckets: a segment goes at most a 24th later than it could.
int64_t bucket_seconds(int64_t retention_s) { return std::clamp<int64_t>(retention_s / 24, 60, 6 * 3600); }

std::string folder_of(const std::string& path) { return path.substr(0, path.find_last_of('/')); }

}  // namespace

void SegmentStore::Core::Group::add(std::span<const std::byte> record, const FooterEntry& block) {
  records.push_back(record);
  entries.push_back(block);
  num_bytes += record.size();
}

// Those of `queue_` that are in state `from`, in order of arrival.
void SegmentStore::Core::take(Slot::State from, Slot::State to, size_t max_blocks, std::vector<Taken>& out) {
  out.clear();
  for (auto it = queue_.begin(); it != queue_.end() && out.size() < max_blocks && count(from) > 0; ++it) {
    const Slot& slot = slots_[*it];
    if (slot.state != from) continue;
    set_state(*it, to);
    out.push_back({.slot = *it, .tag = slot.tag, .key = slot.key, .written_s = slot.written_s});
  }
}

bool SegmentStore::Core::finish_records(std::vector<Taken>& room) {
  int64_t now;
  {
    const MutexLock lock(mu_);
    take(Slot::State::kFull, Slot::State::kFinishing, std::max<size_t>(1, kFinishBytes / record_bytes_), room);
    now = now_s();
  }
  if (room.empty()) return false;
  for (const Taken& block : room) finish_record(block, now);
  {
    const MutexLock lock(mu_);
    for (const Taken& block : room) {
      slots_[block.slot].written_s = now - block.tag.age_s;
      set_state(block.slot, Slot::State::kFinished);
    }
  }
  finished_.notify_one();
  return true;
}

void SegmentStore::Core::finish_record(const Taken& block, int64_t now) const {
  const std::span<std::byte> record = slot_bytes(block.slot);
  const auto length = static_cast<size_t>(options_.block_bytes);
  const std::span<std::byte> rows = record.subspan(kRecordHeaderBytes, length), tail = record.subspan(kRecordHeaderBytes + length);
  RecordHeader header{.key = block.key, .length = block_length(), .num_tokens = static_cast<uint32_t>(options_.block_tokens), .written_unix_s = now - block.tag.age_s};
  if (options_.cipher) options_.cipher->encrypt(header, rows);
  encode_record(header, rows, record.first<kRecordHeaderBytes>());
  std::memset(tail.data(), 0, tail.size());
}

bool SegmentStore::Core::write_batch() {
  {
    const MutexLock lock(mu_);
    take(Slot::State::kFinished, Slot::State::kWriting, std::max<size_t>(1, (options_.whole_segments ? slot_memory_.bytes().size() : kBatchBytes) / record_bytes_), batch_);
    if (batch_.empty()) return false;
    const auto unwanted = std::stable_partition(batch_.begin(), batch_.end(), [&](const Taken& block) REQUIRES(mu_) { return !slots_[block.slot].retracted; });
    give_back(std::span(unwanted, batch_.end()));
    batch_.erase(unwanted, batch_.end());
  }
  for (Group& group : make_groups()) {
    const Result<> written = write_group(group);
    if (written) {
      note_success(group.num_bytes, group.records.size());
    } else {
      note_failure(written.error(), group.records.size());
    }
  }
  update_used();
  const MutexLock lock(mu_);
  for (const Taken& block : batch_) {
    if (slots_[block.slot].retracted) distrust_segment(block.key);  // meanwhile
  }
  give_back(batch_);
  return true;
}

void SegmentStore::Core::give_back(std::span<const Taken> blocks) {
  for (const Taken& block : blocks) {
    set_state(block.slot, Slot::State::kFree);
    free_slots_.push_back(block.slot);
  }
  std::erase_if(queue_, [&](uint32_t slot) REQUIRES(mu_) { return slots_[slot].state == Slot::State::kFree; });
  written_.notify_all();
}

SegmentHeader SegmentStore::Core::header_for(const StoreTag& tag, int64_t now) const {
  const RetentionClass& retention = options_.classes[tag.retention];
  const int64_t width = bucket_seconds(retention.seconds), bucket = now / width * width;
  SegmentHeader header{.model = options_.model, .tenant = tag.tenant, .retention_class = retention.name, .bucket_unix_s = bucket,
                       .expires_unix_s = bucket + width + retention.seconds, .block_tokens = static_cast<uint32_t>(options_.block_tokens)};
  if (options_.cipher) header.cipher_id = options_.cipher->id();
  return header;
}

// The batch's records by segment, in order of arrival.
std::vector<SegmentStore::Core::Group> SegmentStore::Core::make_groups() {
  const uint64_t max_group_bytes = std::max<uint64_t>(options_.whole_segments ? segment_bytes_ : segment_bytes_ / 2, record_bytes_);
  std::vector<Group> groups;
  for (const Taken& block : batch_) {
    SegmentHeader segment = header_for(block.tag, block.written_s);
    auto group = std::find_if(groups.begin(), groups.end(), [&](const Group& g) { return g.header == segment && g.num_bytes < max_group_bytes; });
    if (group == groups.end()) {
      groups.push_back({.header = std::move(segment)});
      group = groups.end() - 1;
    }
    group->add(slot_bytes(block.slot), {.key = block.key, .length = block_length(), .written_after_s = written_after(group->header, block.written_s)});
  }
  return groups;
}

Result<> SegmentStore::Core::write_group(Group& group) {
  const auto full = [&] { return Error{Code::kResourceExhausted, fmt::format("no room for {} bytes within the budget", group.num_bytes)}; };
  {
    const MutexLock lock(mu_);
    if (stats_.read_only) return Error{Code::kUnavailable, "read-only"};
  }
  if (!make_room(group.num_bytes)) return full();
  Result<> done = append(group);
  if (done || done.error().code != Code::kResourceExhausted) return done;
  // The disk is fuller than the budget knows: others use it too. Once more, with less of ours.
  if (!evict_one()) return done;
  return append(group);
}

Result<> SegmentStore::Core::append(Group& group) {
  DI_TRY(Active* const active, active_for(group));
  uint64_t page = active->next_page;
  for (size_t i = 0; i < group.records.size(); ++i) {
    group.entries[i].page = static_cast<uint32_t>(page);
    page += group.records[i].size() / kPage;
  }
  Result<> done = active->file->write(active->next_page * kPage, group.records);
  if (done && options_.whole_segments) done = write_footer(*active, group.entries, page);
  if (done) done = active->file->sync();
  // A new file's name has to survive too, before anybody relies on its blocks.
  if (done && active->footer.empty()) done = disk_->sync_folder(folder_of(active->path));
  if (!done) {
    abandon(group.key());
    return done;
  }
  active->footer.insert(active->footer.end(), group.entries.begin(), group.entries.end());
  active->next_page = page;
  const Result<io::FileStatus> status = active->file->status();
  int64_t now;
  {
    const MutexLock lock(mu_);
    Segment& segment = catalog_.at(active->id);
    now = now_s();
    active->written_s = now;
    segment.last_use_s = std::max(segment.last_use_s, now);
    catalog_.set_allocated(active->id, status ? status->allocated_bytes : page * kPage);
    for (size_t i = 0; i < group.entries.size(); ++i) {
      catalog_.add_block(active->id, group.entries[i], group.last_uses.empty() ? now : group.last_uses[i]);
      if (!group.last_uses.empty()) catalog_.index().at(segment.head).was_hit = 1;
    }
  }
  tell_index(*active, group.entries, now);
  if (page * kPage >= segment_bytes_ || options_.whole_segments) seal(group.key());
  return {};
}

Result<SegmentStore::Core::Active*> SegmentStore::Core::active_for(const Group& group) {
  const auto found = active_.find(group.key());
  if (found != active_.end()) {
    found->second.last_use = ++use_counter_;
    return &found->second;
  }
  if (active_.size() >= kMaxActive) seal_least_used();
  Active active{.header = group.header, .last_use = ++use_counter_};
  DI_TRY(create_segment(active));
  return &active_.emplace(group.key(), std::move(active)).first->second;
}

Result<> SegmentStore::Core::create_segment(Active& active) {
  if (writer_lock_ == nullptr) take_writer();
  Result<> opened = open_new_file(active);
  if (!opened && opened.error().code == Code::kIo) {  // the name may be taken: another process with our number
    writer_lock_.reset();
    take_writer();
    opened = open_new_file(active);
  }
  DI_TRY(std::move(opened));
  PageBuffer page(kPage);
  std::memset(page.bytes().data(), 0, kPage);
  encode_segment_header(active.header, page.bytes().first<kSegmentHeaderBytes>());
  const std::span<const std::byte> piece = page.bytes();
  if (Result<> written = active.file->write(0, {&piece, 1}); !written) {
    active.file.reset();
    (void)disk_->remove(active.path);
    return written;
  }
  const MutexLock lock(mu_);
  const int64_t now = now_s();
  active.id = catalog_.add({.file = std::make_shared<SegmentFile>(active.path), .header = active.header, .state = Segment::State::kActive,
                            .indexed = true, .shared = counts_as_shared(false), .allocated_bytes = kPage, .expires_s = active.header.expires_unix_s, .last_use_s = now, .touched_s = now});
  return {};
}

Result<> SegmentStore::Core::open_new_file(Active& active) {
  active.header.writer = writer_;
  active.header.sequence = next_sequence_++;
  const std::string folder = options_.dir + "/" + folder_name(options_.model) + "/" + folder_name(active.header.tenant);
  active.path = folder + "/" + segment_name(active.header);
  Result<std::unique_ptr<io::File>> file = disk_->open(active.path, io::Disk::Mode::kCreateDirect);
  if (!file && file.error().code == Code::kNotFound) {
    // The tenant's first block, or somebody removed the directory under us: what marks it is then made again with our secret.
    DI_TRY(restore_store_folder(*disk_, options_.dir, options_.folder.secret));
    DI_TRY(disk_->make_folder(folder));
    DI_TRY(disk_->sync_folder(options_.dir));
    file = disk_->open(active.path, io::Disk::Mode::kCreateDirect);
    // Once more: removed in between, the directory was made anew without its marks, and no write into it would ever fail.
    if (file) DI_TRY(restore_store_folder(*disk_, options_.dir, options_.folder.secret));
  }
  if (!file) return file.error();
  active.file = std::move(*file);
  return {};
}

// A number that nobody uses, with its lock. Where locks do not work the number alone has to do: it is 64 random bits.
void SegmentStore::Core::take_writer() {
  uint64_t wanted = writer_ == 0 ? options_.writer : 0;
  for (int i = 0; i < 8; ++i, wanted = 0) {
    if (wanted == 0) std::memcpy(&wanted, random_256().bytes.data(), sizeof wanted);
    writer_ = wanted;
    Result<std::unique_ptr<io::File>> lock = disk_->lock(writer_lock_path(options_.dir, writer_));
    if (lock) {
      writer_lock_ = std::move(*lock);
      return;
    }
    if (lock.error().code != Code::kUnavailable) return;
  }
}

Result<> SegmentStore::Core::write_footer(Active& active, std::span<const FooterEntry> entries, uint64_t page) {
  const std::vector<std::byte> footer = encode_footer(entries, page);
  PageBuffer aligned(footer.size());
  std::memcpy(aligned.bytes().data(), footer.data(), footer.size());
  const std::span<const std::byte> piece = aligned.bytes();
  active.has_footer = true;
  return active.file->write(page * kPage, {&piece, 1});
}

void SegmentStore::Core::seal(const ActiveKey& key) {
  Active& active = active_.at(key);
  if (!active.footer.empty() && !active.has_footer) {
    // Without a footer the file is as good, only slower to open.
    if (!write_footer(active, active.footer, active.next_page) || !active.file->sync()) (void)active.file->truncate(active.next_page * kPage);
  }
  retire(key);
}

void SegmentStore::Core::abandon(const ActiveKey& key) {
  const auto it = active_.find(key);
  if (it == active_.end()) return;
  (void)it->second.file->truncate(it->second.next_page * kPage);
  retire(key);
}

void SegmentStore::Core::retire(const ActiveKey& key) {
  const auto it = active_.find(key);
  const Active active = std::move(it->second);
  active_.erase(it);
  const Result<io::FileStatus> status = active.file->status();
  {
    const MutexLock lock(mu_);
    Segment& segment = catalog_.at(active.id);
    segment.state = Segment::State::kSealed;
    segment.end_page = active.next_page;
    if (status) {
      segment.size = status->size;
      catalog_.set_allocated(active.id, status->allocated_bytes);
    }
  }
  if (active.footer.empty()) drop_segment(active.path, /*delete_file=*/true);
}

bool SegmentStore::Core::seal_least_used() {
  if (active_.empty()) return false;
  const auto least = std::min_element(active_.begin(), active_.end(), [](const auto& a, const auto& b) { return a.second.last_use < b.second.last_use; });
  seal(ActiveKey(least->first));
  return true;
}

void SegmentStore::Core::note_failure(const Error& error, size_t num_blocks) {
  const MutexLock lock(mu_);
  stats_.dropped_blocks += num_blocks;
  if (stats_.read_only) return;
  stats_.write_errors += 1;
  num_failures_ += 1;
  if (num_failures_ < kMaxFailures && error.code != Code::kUnavailable) return;
  num_failures_ = std::max(num_failures_, kMaxFailures);  // a file system that is read-only says so the first time
  stats_.read_only = true;
  retry_s_ = now_s() + kRetrySeconds;
  log(fmt::format("read-only for {} s: {}", kRetrySeconds, error.message));
}

void SegmentStore::Core::note_success(uint64_t num_bytes, size_t num_blocks) {
  const MutexLock lock(mu_);
  stats_.written_bytes += num_bytes;
  stats_.written_blocks += num_blocks;
  if (num_failures_ >= kMaxFailures) log("writes again");
  num_failures_ = 0;
}

void SegmentStore::Core::flush() {
  if (options_.background) {
    MutexLock lock(mu_);
    const uint64_t end = next_ticket_;
    const auto before = [&](uint32_t slot) REQUIRES(mu_) { return slots_[slot].ticket < end; };
    num_flushing_ += 1;
    finished_.notify_one();
    while (std::any_of(queue_.begin(), queue_.end(), before)) written_.wait(mu_);
    num_flushing_ -= 1;
    return;
  }
  std::vector<Taken> room;
  while (finish_records(room)) continue;
  const MutexLock writing(write_mu_);
  while (write_batch()) continue;
  if (index_ != nullptr) index_->work([this](std::span<const IndexClient::Found> found) { return take_places(found); });
}

void SegmentStore::Core::finish_loop() {
  pthread_setname_np(pthread_self(), "cache-finish");
  std::vector<Taken> room;
  for (;;) {
    {
      MutexLock lock(mu_);
      while (count(Slot::State::kFull) == 0 && !(stopping_ && count(Slot::State::kFilling) == 0)) came_.wait(mu_);
      if (count(Slot::State::kFull) == 0) return;
    }
    while (finish_records(room)) continue;
  }
}

// Until there is something to write, or upkeep is due. Blocks of one step come together, and so do those of one object: it waits a little for more.
// False: that was all, the store ends.
bool SegmentStore::Core::wait_for_records(std::chrono::steady_clock::time_point upkeep) {
  using std::chrono::steady_clock;
  const uint64_t enough_bytes = options_.whole_segments ? segment_bytes_ : kEnoughBytes;
  MutexLock lock(mu_);
  const auto hurry = [&]() REQUIRES(mu_) { return stopping_ || num_flushing_ > 0; };
  const auto ended = [&]() REQUIRES(mu_) { return stopping_ && queue_.empty(); };
  while (count(Slot::State::kFinished) == 0 && !ended() && steady_clock::now() < upkeep) finished_.wait_until(mu_, upkeep);
  if (count(Slot::State::kFinished) == 0) return !ended();
  const auto deadline = steady_clock::now() + std::chrono::milliseconds(options_.whole_segments ? 2000 : 5);
  // Not with less than half of the buffers free: there have to be some while those are on their way.
  const auto enough = [&]() REQUIRES(mu_) { return hurry() || count(Slot::State::kFinished) * record_bytes_ >= enough_bytes || free_slots_.size() <= queue_.size(); };
  while (!enough() && finished_.wait_until(mu_, deadline) != std::cv_status::timeout) continue;
  return true;
}

void SegmentStore::Core::write_loop() {
  using Clock = std::chrono::steady_clock;
  pthread_setname_np(pthread_self(), "cache-write");
  const auto kUpkeep = std::chrono::seconds(options_.whole_segments ? 30 : 2);
  auto next_upkeep = Clock::now() + kUpkeep;
  for (bool go_on = true; go_on;) {
    go_on = wait_for_records(next_upkeep);
    const MutexLock writing(write_mu_);
    write_batch();
    if (Clock::now() >= next_upkeep) {
      upkeep();
      next_upkeep = Clock::now() + kUpkeep;
    }
    if (!go_on) seal_all();
  }
  if (index_ != nullptr) index_->stop();  // not before it was told of the last blocks
}

// The end of writing: segments get their footers, the writer's number is free again.
void SegmentStore::Core::seal_all() {
  while (!active_.empty()) seal(ActiveKey(active_.begin()->first));
  update_used();
  if (std::exchange(writer_lock_, nullptr) != nullptr) (void)disk_->remove(writer_lock_path(options_.dir, writer_));
}

}  // namespace deepinfer::kv
