// What SegmentStore does beside reading and writing: knows the directory's files, whoever wrote them; keeps to budget and retention.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <fmt/format.h>
#include <set>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/units.h"
#include "kv/store_core.h"

namespace deepinfer::kv {
namespace {

constexpr int64_t kMarkSeconds = 60, kTouchSeconds = 60;
constexpr int64_t kIdleSeconds = 60;  // a segment whose time bucket is over is sealed when nothing came for so long
constexpr size_t kMaxOpenFiles = 256;
constexpr uint64_t kSpareBytes = 4 * kPage;  // a new segment's header, footer and trailer; a mark being replaced

// Files are looked at by several threads when there are many: over a network, or after a boot, each costs a round trip or a seek. A few are
// looked at in order, so that tests of few repeat exactly.
int num_scan_threads(size_t num_files) { return num_files < 64 ? 1 : 8; }

// work(0) … work(count - 1), on so many threads.
template <class Work>
void for_each(size_t count, int num_threads, const Work& work) {
  std::atomic<size_t> next{0};
  const auto run = [&] {
    for (size_t i = next++; i < count; i = next++) work(i);
  };
  std::vector<std::thread> threads;
  for (int i = 1; i < num_threads; ++i) threads.emplace_back(run);
  run();
  for (std::thread& thread : threads) thread.join();
}

}  // namespace

Result<> SegmentStore::Core::open() {
  const MutexLock writing(write_mu_);
  take_writer();
  if (const Result<std::vector<std::string>> names = disk_->list(options_.dir); !names && !options_.may_be_away) return names.error();
  load_segments();
  expire();
  make_room(0);
  update_used();
  report_open();
  return {};
}

// What earlier processes left: who finds a cache that is empty where it should not be, or full of what nobody can use, hears of it here.
void SegmentStore::Core::report_open() {
  std::string line;
  {
    const MutexLock lock(mu_);
    uint64_t usable_bytes = 0;
    for (const SegmentId id : catalog_.ids()) usable_bytes += is_serving(catalog_.at(id), now_s()) ? catalog_.at(id).allocated_bytes : 0;
    const uint64_t other_bytes = catalog_.used_bytes() - usable_bytes;
    if (catalog_.num_segments() + stats_.expired_segments + stats_.evicted_segments == 0) return;
    line = fmt::format("{} blocks found, {}", catalog_.index().size(), format_size(usable_bytes));
    if (other_bytes > 0) line += fmt::format("; {} of no use here (other models, settings or keys, damaged, or too old)", format_size(other_bytes));
    if (stats_.expired_segments > 0) line += fmt::format("; {} files removed that were past their time", stats_.expired_segments);
    if (stats_.evicted_segments > 0) line += fmt::format("; {} removed to keep to the budget", stats_.evicted_segments);
  }
  log(line);
}

void SegmentStore::Core::maintain() {
  const MutexLock writing(write_mu_);
  upkeep();
}

void SegmentStore::Core::upkeep() {
  int64_t now;
  bool write_mark_now = false;
  std::vector<std::shared_ptr<SegmentFile>> unused;
  {
    const MutexLock lock(mu_);
    if (clock_.check()) {
      stats_.clock_jumps += 1;
      log(clock_.in_doubt() ? "the wall clock jumped after a start that looked like a jump: what looks too old is kept, and not served before the next start"
                            : "the wall clock jumped; retention goes on with the clock since boot");
    }
    now = now_s();
    write_mark_now = !clock_.in_doubt() && now >= mark_written_s_ + kMarkSeconds && !stats_.read_only;
    if (stats_.read_only && now >= retry_s_) stats_.read_only = false;  // the next batch says whether it works; one failure is enough
    while (open_files_.size() > kMaxOpenFiles) {
      unused.push_back(std::move(open_files_.front()));
      open_files_.pop_front();
    }
  }
  for (const std::shared_ptr<SegmentFile>& file : unused) file->close();
  std::vector<ActiveKey> over;
  for (const auto& [key, active] : active_) {
    const auto& retention = std::find_if(options_.classes.begin(), options_.classes.end(), [&](const RetentionClass& c) { return c.name == active.header.retention_class; });
    const int64_t bucket_end = active.header.expires_unix_s - (retention == options_.classes.end() ? 0 : retention->seconds);
    const MutexLock lock(mu_);
    // Copies of older blocks come in ones and twos: their segment waits for more.
    const bool is_over = now >= std::max(bucket_end, active.written_s + kIdleSeconds);
    if (is_over || catalog_.at(active.id).expires_s <= now) over.push_back(key);
  }
  for (const ActiveKey& key : over) seal(key);
  load_segments();
  expire();
  make_room(0);
  touch_files();
  update_used();
  if (write_mark_now && write_mark(*disk_, options_.dir, now)) mark_written_s_ = now;
}

// Brings the catalog to what the directory holds: new files are read, those that are gone are forgotten.
void SegmentStore::Core::load_segments() {
  alive_.clear();
  std::vector<std::string> known;  // before looking: one that comes meanwhile is not gone because it was not seen
  {
    const MutexLock lock(mu_);
    for (const SegmentId id : catalog_.ids()) known.push_back(catalog_.at(id).file->path());
  }
  std::vector<std::string> folders;
  Result<std::vector<SegmentPath>> listed = list_segments(*disk_, options_.dir, &folders);
  if (!listed && listed.error().code != Code::kNotFound) return;  // not seen is not gone
  const std::vector<SegmentPath> segments = listed ? std::move(*listed) : std::vector<SegmentPath>();
  std::vector<Result<io::FileStatus>> statuses(segments.size(), Error{Code::kNotFound, ""});
  for_each(segments.size(), num_scan_threads(segments.size()), [&](size_t i) { statuses[i] = disk_->status(segments[i].path(options_.dir)); });
  std::set<std::string> seen;
  uint64_t new_bytes = 0;
  std::vector<const SegmentPath*> fresh;
  for (size_t i = 0; i < segments.size(); ++i) {
    const std::string path = segments[i].path(options_.dir);
    if (statuses[i] || statuses[i].error().code != Code::kNotFound) seen.insert(path);
    if (!statuses[i]) continue;
    bool is_known;
    {
      const MutexLock lock(mu_);
      is_known = catalog_.find_path(path) != kNoSegment;
    }
    if (is_known) {
      refresh(path, *statuses[i]);
      continue;
    }
    fresh.push_back(&segments[i]);
    if (segments[i].model == folder_name(options_.model)) new_bytes += statuses[i]->size;
  }
  {
    const MutexLock lock(mu_);
    catalog_.index().reserve(catalog_.index().size() + new_bytes / record_bytes_);
  }
  std::vector<char> alive;
  for (const SegmentPath* where : fresh) alive.push_back(is_alive(writer_in_name(where->name)));
  for_each(fresh.size(), num_scan_threads(fresh.size()), [&](size_t i) { load_segment(*fresh[i], alive[i] != 0); });

  std::erase_if(known, [&](const std::string& path) { return seen.contains(path); });
  std::erase_if(active_, [&](const auto& one) { return std::find(known.begin(), known.end(), one.second.path) != known.end(); });
  for (const std::string& path : known) drop_segment(path, /*delete_file=*/false);
  {
    const MutexLock lock(mu_);
    stats_.vanished_segments += known.size();
  }
  measure_others(std::move(folders));
}

void SegmentStore::Core::load_segment(const SegmentPath& where, bool writer_alive) {
  const std::string path = where.path(options_.dir);
  const bool ours = where.model == folder_name(options_.model);
  Result<std::unique_ptr<io::File>> file = disk_->open(path, io::Disk::Mode::kRead);
  if (!file) return;
  Result<SegmentContents> read = Error{Code::kUnsupported, ""};
  if (ours) {
    read = read_segment(**file);
  } else {  // another model's: only who and until when
    std::array<std::byte, kSegmentHeaderBytes> head;
    const Result<size_t> n = (*file)->read(0, head);
    if (n) {
      if (Result<SegmentHeader> header = decode_segment_header(std::span(head).first(*n)); header) read = SegmentContents{.header = std::move(*header)};
    }
  }
  const Result<io::FileStatus> status = (*file)->status();
  if (!status) return;
  SegmentContents contents;
  if (read) contents = std::move(*read);
  const bool filed_right = read.has_value() && where.holds(contents.header);
  const bool others = ours && filed_right && writer_alive;
  Segment segment{.file = std::make_shared<SegmentFile>(path),
                  .header = contents.header,
                  .state = others && !contents.sealed ? Segment::State::kGrowing : Segment::State::kSealed,
                  .indexed = ours && filed_right && could_serve(contents.header),
                  .shared = counts_as_shared(others),
                  .allocated_bytes = status->allocated_bytes,
                  .size = status->size,
                  .expires_s = INT64_MAX,
                  .end_page = contents.end_page};
  const MutexLock lock(mu_);
  const int64_t now = now_s();
  if (filed_right) segment.expires_s = expiry_of(contents.header, now);
  segment.last_use_s = segment.touched_s = std::min(now, status->changed_unix_s);
  if (!filed_right) stats_.rejected_segments += 1;
  add_segment(std::move(segment), contents.entries);
}

void SegmentStore::Core::add_segment(Segment segment, std::span<const FooterEntry> entries) {
  if (catalog_.find_path(segment.file->path()) != kNoSegment) return;  // the shared index told of it meanwhile
  const bool indexed = segment.indexed;
  const int64_t expires_s = segment.expires_s, last_use_s = segment.last_use_s;
  const SegmentId id = catalog_.add(std::move(segment));
  if (!indexed) return;
  // Millions of keys at a start, each somewhere else in memory: without looking ahead, most of the time is spent waiting for it.
  constexpr size_t kSlotsAhead = 24, kEntriesAhead = 12;
  const StoreIndex& index = catalog_.index();
  for (size_t i = 0; i < entries.size(); ++i) {
    if (i + kSlotsAhead < entries.size()) index.prefetch_slot(entries[i + kSlotsAhead].key);
    if (i + kEntriesAhead < entries.size()) index.prefetch_entry(entries[i + kEntriesAhead].key);
    // What is here already stays: it was compared before, or will go later.
    const uint32_t known = index.find(entries[i].key);
    if (known != StoreIndex::kNone && catalog_.at(index.at(known).segment).expires_s >= expires_s) continue;
    if (has_our_length(entries[i])) catalog_.add_block(id, entries[i], last_use_s);
  }
}

// A file that is known: what it takes, when it was last used by others, and what was added to it.
void SegmentStore::Core::refresh(const std::string& path, const io::FileStatus& status) {
  SegmentContents contents;
  bool grew;
  {
    const MutexLock lock(mu_);
    const SegmentId id = catalog_.find_path(path);
    if (id == kNoSegment) return;
    Segment& segment = catalog_.at(id);
    if (segment.state == Segment::State::kActive) return;
    catalog_.set_allocated(id, status.allocated_bytes);
    segment.last_use_s = std::max(segment.last_use_s, std::min(now_s(), status.changed_unix_s));
    grew = segment.indexed && segment.size != status.size;
    if (!grew && segment.state != Segment::State::kGrowing) return;
    contents.header = segment.header;
    contents.end_page = segment.end_page;
  }
  if (grew) {
    const Result<std::unique_ptr<io::File>> file = disk_->open(path, io::Disk::Mode::kRead);
    if (!file || !read_more(**file, contents)) return;
  }
  const bool alive = is_alive(writer_in_name(path.substr(path.find_last_of('/') + 1)));
  const MutexLock lock(mu_);
  const SegmentId id = catalog_.find_path(path);
  if (id == kNoSegment) return;  // a fetch found it gone meanwhile
  Segment& segment = catalog_.at(id);
  segment.size = status.size;
  segment.end_page = contents.end_page;
  segment.state = alive && !contents.sealed ? Segment::State::kGrowing : Segment::State::kSealed;
  for (const FooterEntry& entry : contents.entries) {
    if (catalog_.index().find(entry.key) == StoreIndex::kNone && has_our_length(entry)) catalog_.add_block(id, entry, segment.last_use_s);
  }
}

// The few files of the directory that are no segments, and its folders: each takes its room too, and there may be many tenants.
// folders: the models' and the tenants'.
void SegmentStore::Core::measure_others(std::vector<std::string> folders) {
  other_bytes_ = 0;
  const std::string quarantine = quarantine_folder(options_.dir);
  for (const std::string& folder : {options_.dir, writers_folder(options_.dir), quarantine}) {
    const Result<std::vector<std::string>> names = disk_->list(folder);
    const uint64_t before = other_bytes_;
    for (const std::string& name : names ? *names : std::vector<std::string>()) {
      const Result<io::FileStatus> status = disk_->status(folder + "/" + name);
      if (status && !status->is_directory) other_bytes_ += status->allocated_bytes;
    }
    quarantine_bytes_ = other_bytes_ - before;  // the last one's
    folders.push_back(folder);
  }
  if (options_.whole_segments) return;  // object storage has no folders
  for (const std::string& folder : folders) {
    const Result<io::FileStatus> status = disk_->status(folder);
    if (status) other_bytes_ += status->allocated_bytes;
  }
}

// Whether another process with this writer's number runs. Locks of dead ones are removed along the way.
bool SegmentStore::Core::is_alive(uint64_t writer) {
  if (writer == 0 || (writer == writer_ && writer_lock_ != nullptr)) return false;
  const auto known = alive_.find(writer);
  if (known != alive_.end()) return known->second;
  const std::string path = writer_lock_path(options_.dir, writer);
  bool alive = false;
  if (disk_->status(path)) {
    const Result<std::unique_ptr<io::File>> lock = disk_->lock(path);
    alive = !lock && lock.error().code == Code::kUnavailable;
    if (lock) (void)disk_->remove(path);
  }
  alive_.emplace(writer, alive);
  return alive;
}

bool SegmentStore::Core::make_room(uint64_t bytes) {
  for (;;) {
    uint64_t footers = 0;
    for (const auto& [key, active] : active_) footers += (to_pages(active.footer.size() * kFooterEntryBytes) + 2) * kPage;
    {
      const MutexLock lock(mu_);
      if (catalog_.used_bytes() + other_bytes_ + footers + bytes + kSpareBytes <= options_.budget_bytes) return true;
    }
    if (drop_quarantined()) continue;
    if (!evict_one()) return false;
  }
}

// What is damaged goes before what is good.
bool SegmentStore::Core::drop_quarantined() {
  if (quarantine_bytes_ == 0) return false;
  const std::string folder = quarantine_folder(options_.dir);
  const Result<std::vector<std::string>> names = disk_->list(folder);
  size_t num_removed = 0;
  for (const std::string& name : names ? *names : std::vector<std::string>()) num_removed += disk_->remove(folder + "/" + name) ? 1 : 0;
  other_bytes_ -= std::exchange(quarantine_bytes_, 0);  // what could not be removed is counted with the next look
  if (num_removed > 0) log("the budget is used up: removed " + std::to_string(num_removed) + " files from quarantine");
  return num_removed > 0;
}

// Removes the least valuable segment, after those that are past their time. Those that are being fetched from go last: a request has matched them.
bool SegmentStore::Core::evict_one() {
  std::vector<SegmentId> ids, in_use;
  std::vector<EvictionCandidate> candidates;
  SegmentId victim = kNoSegment;
  std::string path;
  size_t num_blocks = 0;
  int64_t hot_s = 0;
  bool saves = false;
  {
    const MutexLock lock(mu_);
    const int64_t now = now_s();
    for (const SegmentId id : catalog_.ids()) {
      const Segment& segment = catalog_.at(id);
      if (segment.state != Segment::State::kSealed) continue;
      if (segment.expires_s <= now) victim = id;
      (is_fetched_from(segment) ? in_use : ids).push_back(id);
    }
    if (ids.empty()) ids = std::move(in_use);
    for (const SegmentId id : ids) {
      const Segment& segment = catalog_.at(id);
      candidates.push_back({.bytes = segment.allocated_bytes, .last_use_s = segment.last_use_s, .mean_use_s = mean_use_s(segment)});
    }
    if (victim == kNoSegment && !ids.empty()) {
      victim = ids[choose_victim(candidates, now, options_.policy)];
      saves = options_.policy == EvictionPolicy::kValue;
      hot_s = hot_since(candidates);
    }
    if (victim != kNoSegment) {
      path = catalog_.at(victim).file->path();
      num_blocks = catalog_.at(victim).num_blocks;
    }
  }
  if (victim == kNoSegment) return seal_least_used();
  std::vector<Group> saved = saves ? save_hot(path, hot_s) : std::vector<Group>();
  if (!drop_segment(path, /*delete_file=*/true)) return false;
  size_t num_saved = 0;
  for (Group& group : saved) {
    if (append(group)) num_saved += group.records.size();
  }
  const MutexLock lock(mu_);
  stats_.evicted_segments += 1;
  stats_.evicted_blocks += num_blocks - std::min(num_blocks, num_saved);
  stats_.copied_blocks += num_saved;
  return true;
}

// Reads the victim's blocks that were hit since then, the latest first, up to kMaxCopiedShare of it. They stay in their time bucket: to be
// used does not make a block younger.
std::vector<SegmentStore::Core::Group> SegmentStore::Core::save_hot(const std::string& victim, int64_t hot_since_s) {
  struct Hot {
    uint32_t last_use;
    FooterEntry block;
  };
  std::vector<Hot> hot;
  SegmentHeader header;
  std::shared_ptr<SegmentFile> segment_file;
  uint64_t allowed;
  {
    const MutexLock lock(mu_);
    const SegmentId id = catalog_.find_path(victim);
    if (id == kNoSegment || !catalog_.at(id).indexed) return {};
    const Segment& segment = catalog_.at(id);
    header = segment.header;
    segment_file = segment.file;
    allowed = static_cast<uint64_t>(static_cast<double>(segment.allocated_bytes) * kMaxCopiedShare);
    for (uint32_t i = segment.head; i != StoreIndex::kNone; i = catalog_.index().at(i).next) {
      const StoreIndex::Entry& entry = catalog_.index().at(i);
      if (!entry.was_hit || entry.last_use <= hot_since_s || catalog_.index().find(entry.key) != i) continue;
      hot.push_back({entry.last_use, {.key = entry.key, .page = entry.page, .length = block_length(), .written_after_s = entry.written_after_s}});
    }
  }
  std::sort(hot.begin(), hot.end(), [](const Hot& a, const Hot& b) { return std::pair(b.last_use, a.block.page) < std::pair(a.last_use, b.block.page); });
  if (hot.empty()) return {};
  const Result<std::shared_ptr<io::File>> file = segment_file->open(*disk_);
  if (!file) return {};
  note_open(segment_file);
  std::vector<Group> groups(1);
  groups[0].header = header;
  for (const auto& [last_use, block] : hot) {
    if (groups[0].num_bytes + record_bytes_ > allowed) break;
    PageBuffer buffer(record_bytes_);
    const Result<size_t> n = (*file)->read(block.page * kPage, buffer.bytes());
    if (!n || !check_record(buffer.bytes().first(*n), block.key, block.length)) continue;
    std::memset(buffer.bytes().data() + *n, 0, buffer.bytes().size() - *n);
    groups[0].add(buffer.bytes(), block);
    groups[0].last_uses.push_back(last_use);
    groups[0].storage.push_back(std::move(buffer));
  }
  return groups[0].records.empty() ? std::vector<Group>() : std::move(groups);
}

bool SegmentStore::Core::drop_segment(const std::string& path, bool delete_file) {
  if (delete_file) {
    const Result<> removed = disk_->remove(path);
    if (!removed && removed.error().code != Code::kNotFound) return false;
    (void)disk_->remove(path.substr(0, path.find_last_of('/')));  // the folder, if that was its last file
  }
  std::shared_ptr<SegmentFile> gone;
  const MutexLock lock(mu_);
  if (const SegmentId id = catalog_.find_path(path); id != kNoSegment) gone = forget_segment(id);  // else a fetch found it gone meanwhile
  return true;
}

void SegmentStore::Core::expire() {
  std::vector<std::string> old;
  {
    const MutexLock lock(mu_);
    const int64_t now = clock_.in_doubt() ? 0 : now_s();  // in doubt: not served, but kept, unless retracted
    for (const SegmentId id : catalog_.ids()) {
      if (catalog_.at(id).expires_s <= now && catalog_.at(id).state != Segment::State::kActive) old.push_back(catalog_.at(id).file->path());
    }
  }
  uint64_t num_dropped = 0;
  for (const std::string& path : old) num_dropped += drop_segment(path, /*delete_file=*/true);
  const MutexLock lock(mu_);
  stats_.expired_segments += num_dropped;
}

// The time of last use goes into the file's time of change, where the next start and other processes find it.
void SegmentStore::Core::touch_files() {
  std::vector<std::pair<std::string, int64_t>> due;
  {
    const MutexLock lock(mu_);
    for (const SegmentId id : catalog_.ids()) {
      Segment& segment = catalog_.at(id);
      if (segment.state != Segment::State::kSealed || segment.last_use_s < segment.touched_s + kTouchSeconds) continue;
      segment.touched_s = segment.last_use_s;
      due.emplace_back(segment.file->path(), segment.last_use_s);
    }
  }
  for (const auto& [path, last_use_s] : due) (void)disk_->touch(path, last_use_s);  // a hint, no more
}

void SegmentStore::Core::update_used() {
  const MutexLock lock(mu_);
  stats_.used_bytes = catalog_.used_bytes() + other_bytes_;
}

}  // namespace deepinfer::kv
