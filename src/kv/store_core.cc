#include "kv/store_core.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>
#include <sys/mman.h>
#include <utility>

#include "base/check.h"

namespace deepinfer::kv {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr size_t kLargePage = 2 * kMiB;
constexpr int64_t kRateSeconds = 60;  // for so long a measured rate is believed: what was slow once is tried again

uint64_t default_segment_bytes(const StoreOptions& options) {
  return options.segment_bytes > 0 ? options.segment_bytes : std::clamp<uint64_t>(options.budget_bytes / 32, kMiB, 64 * kMiB);
}

// At least a few; the queue is searched one by one, so not many thousands either.
std::unique_ptr<IndexClient> index_client(const StoreOptions& options, std::shared_ptr<const TimeSource> time, std::function<void(const std::string&)> log) {
  return options.index == nullptr ? nullptr : std::make_unique<IndexClient>(options.index, std::move(time), std::move(log));
}

uint32_t num_slots(const StoreOptions& options, size_t record_bytes) {
  return static_cast<uint32_t>(std::clamp<uint64_t>(options.backlog_bytes / record_bytes, 4, 2048));
}

Result<> check_options(const StoreOptions& o) {
  if (o.budget_bytes == 0) return Error{Code::kInvalidArgument, "the cache directory needs a budget (--cache-budget)"};
  if (o.block_bytes < 1 || o.block_bytes > kMaxRowBytes) return Error{Code::kInvalidArgument, "a block of " + std::to_string(o.block_bytes) + " bytes cannot be stored"};
  DI_TRY(check_retention(o.classes));
  const uint64_t record = record_pages(static_cast<uint64_t>(o.block_bytes)) * kPage;
  if (o.budget_bytes < 8 * record) return Error{Code::kInvalidArgument, "a budget of " + std::to_string(o.budget_bytes) + " bytes holds not eight blocks of " + std::to_string(record)};
  return {};
}

class Lookup final : public BlockLookup {
 public:
  explicit Lookup(std::shared_ptr<LookupJob> job) : job_(std::move(job)) {}
  ~Lookup() override {
    const MutexLock lock(job_->mu);
    job_->wake = nullptr;
  }
  bool done() override {
    const MutexLock lock(job_->mu);
    return job_->done;
  }

 private:
  const std::shared_ptr<LookupJob> job_;
};

class Fetch final : public BlockFetch {
 public:
  Fetch(std::shared_ptr<FetchJob> job, std::shared_ptr<SegmentStore::Core> core) : job_(std::move(job)), core_(std::move(core)) {}
  ~Fetch() override {
    job_->abandoned = true;
    const MutexLock lock(job_->mu);
    job_->wake = nullptr;
    job_->ready.clear();
  }

  State state() override {
    const MutexLock lock(job_->mu);
    if (gave_up_) return State::kEnded;
    if (!job_->ready.empty()) return State::kReady;
    return job_->ended ? State::kEnded : State::kPending;
  }
  Block front() override {
    const MutexLock lock(job_->mu);
    CHECK(!job_->ready.empty());
    const FetchJob::Chunk& chunk = job_->ready.front();
    const FetchItem& item = job_->items[chunk.first + at_];
    return {.rows = chunk.rows[at_], .tier = item.tier, .age_s = item.age_s, .remaining_s = item.remaining_s};
  }
  void pop() override {
    const MutexLock lock(job_->mu);
    CHECK(!job_->ready.empty());
    num_popped_ += 1;
    if (++at_ < job_->ready.front().rows.size()) return;
    job_->ready.pop_front();  // gives its buffer back
    at_ = 0;
  }
  int32_t num_blocks() const override { return static_cast<int32_t>(job_->num_asked); }
  CacheMiss miss() const override {
    const MutexLock lock(job_->mu);
    return gave_up_ ? miss_ : job_->miss;
  }
  void give_up() override {
    if (std::exchange(gave_up_, true)) return;
    {
      const MutexLock lock(job_->mu);
      if (job_->ended && job_->ready.empty()) miss_ = job_->miss;
      job_->wake = nullptr;
      job_->ready.clear();
    }
    job_->abandoned = true;
    if (num_popped_ < job_->num_asked) core_->count_missed(miss_, static_cast<int64_t>(job_->num_asked - num_popped_));
  }

 private:
  const std::shared_ptr<FetchJob> job_;
  const std::shared_ptr<SegmentStore::Core> core_;
  size_t at_ = 0;  // in the first chunk
  size_t num_popped_ = 0;
  bool gave_up_ = false;
  CacheMiss miss_ = CacheMiss::kLate;
};

}  // namespace

PageBuffer::PageBuffer(size_t num_bytes) : size_(to_pages(num_bytes) * kPage) {
  const size_t alignment = size_ >= kLargePage ? kLargePage : kPage;
  data_.reset(static_cast<std::byte*>(std::aligned_alloc(alignment, (size_ + alignment - 1) / alignment * alignment)));
  CHECK(data_ != nullptr);
  // Small pages would be made one by one at their first use, and looked up one by one for every request that bypasses the page cache.
  if (alignment == kLargePage) (void)::madvise(data_.get(), size_, MADV_HUGEPAGE);
}

void PageBuffer::Free::operator()(std::byte* data) const { std::free(data); }

void FetchJob::call_wake() {
  const MutexLock lock(mu);
  if (wake) wake();
}

SegmentStore::Core::Core(std::shared_ptr<io::Disk> disk, std::shared_ptr<const TimeSource> time, StoreOptions options)
    : disk_(std::move(disk)),
      time_(std::move(time)),
      options_(std::move(options)),
      segment_bytes_(default_segment_bytes(options_)),
      record_bytes_(static_cast<size_t>(record_pages(static_cast<uint64_t>(options_.block_bytes)) * kPage)),
      index_(index_client(options_, time_, [this](const std::string& line) { log(line); })),
      clock_(*time_, options_.folder.mark_s),
      reading_since_ns_(static_cast<size_t>(std::max(1, options_.num_fetch_threads))),
      slot_memory_(num_slots(options_, record_bytes_) * record_bytes_) {
  slots_.resize(num_slots(options_, record_bytes_));
  for (size_t slot = slots_.size(); slot > 0; --slot) free_slots_.push_back(static_cast<uint32_t>(slot - 1));
  num_in_state_[static_cast<size_t>(Slot::State::kFree)] = slots_.size();
  queue_.reserve(slots_.size());
  batch_.reserve(slots_.size());
  stats_.present = true;
  stats_.budget_bytes = options_.budget_bytes;
}

std::span<std::byte> SegmentStore::Core::slot_bytes(uint32_t slot) const { return slot_memory_.bytes().subspan(slot * record_bytes_, record_bytes_); }

void SegmentStore::Core::set_state(uint32_t slot, Slot::State state) {
  num_in_state_[static_cast<size_t>(slots_[slot].state)] -= 1;
  num_in_state_[static_cast<size_t>(state)] += 1;
  slots_[slot].state = state;
}

int64_t SegmentStore::Core::now_s() const { return clock_.now_s(); }

bool SegmentStore::Core::is_serving(const Segment& segment, int64_t now) const { return segment.indexed && now < segment.expires_s; }

int64_t SegmentStore::Core::age_s(const StoreIndex::Entry& entry, int64_t now) const {
  return std::max<int64_t>(0, now - catalog_.at(entry.segment).header.bucket_unix_s - entry.written_after_s);
}

bool SegmentStore::Core::could_serve(const SegmentHeader& header) const {
  return header.model == options_.model && header.block_tokens == static_cast<uint32_t>(options_.block_tokens) &&
         header.cipher_id == (options_.cipher ? options_.cipher->id() : std::array<uint8_t, 16>{});
}

void SegmentStore::Core::log(const std::string& line) const {
  if (options_.log) options_.log("cache " + options_.dir + ": " + line);
}

BlockStore::Known SegmentStore::Core::find(std::span<const BlockKey> chain) {
  Known known{.readable = !reads_are_off()};
  const MutexLock lock(mu_);
  const int64_t now = now_s();
  const double rate = read_rate(now);
  for (const BlockKey& key : chain) {
    const uint32_t i = catalog_.index().find(key);
    if (i == StoreIndex::kNone) break;
    const StoreIndex::Entry& entry = catalog_.index().at(i);
    if (!is_serving(catalog_.at(entry.segment), now)) break;
    catalog_.touch(i, now);
    known.num_blocks += 1;
    known.age_s = age_s(entry, now);
    known.tier = tier_of(catalog_.at(entry.segment));
    known.bytes_per_s = rate;
  }
  return known;
}

bool SegmentStore::Core::publish(const StoreTag& tag, const BlockKey& key, std::span<const std::byte> rows) {
  CHECK(rows.size() == static_cast<size_t>(options_.block_bytes));
  CHECK(tag.retention < options_.classes.size());
  if (tag.age_s >= options_.classes[tag.retention].seconds) return false;
  uint32_t slot;
  {
    const MutexLock lock(mu_);
    const uint32_t known = catalog_.index().find(key);
    const int64_t now = now_s();
    if (known != StoreIndex::kNone && is_serving(catalog_.at(catalog_.index().at(known).segment), now)) {
      catalog_.touch(known, now);
      return false;
    }
    const auto same = [&](uint32_t queued) REQUIRES(mu_) { return slots_[queued].key == key && !slots_[queued].retracted; };
    if (std::any_of(queue_.begin(), queue_.end(), same)) return false;
    if (stopping_ || stats_.read_only || free_slots_.empty()) {
      stats_.dropped_blocks += 1;
      return false;
    }
    slot = free_slots_.back();
    free_slots_.pop_back();
    queue_.push_back(slot);
    slots_[slot] = {.ticket = next_ticket_++, .tag = tag, .key = key};
    set_state(slot, Slot::State::kFilling);
  }
  std::memcpy(slot_bytes(slot).data() + kRecordHeaderBytes, rows.data(), rows.size());
  {
    const MutexLock lock(mu_);
    set_state(slot, Slot::State::kFull);
  }
  came_.notify_one();
  return true;
}

void SegmentStore::Core::retract(std::span<const BlockKey> keys) {
  const MutexLock lock(mu_);
  for (const BlockKey& key : keys) {
    for (const uint32_t slot : queue_) slots_[slot].retracted |= slots_[slot].key == key;
    distrust_segment(key);
  }
}

// The whole segment: a single record cannot be taken back without a trace that the next start could miss. Upkeep deletes the file.
void SegmentStore::Core::distrust_segment(const BlockKey& key) {
  const uint32_t entry = catalog_.index().find(key);
  if (entry != StoreIndex::kNone) catalog_.at(catalog_.index().at(entry).segment).expires_s = 0;
}

// Its file is closed with the last fetch that uses it: one that was removed and stays open takes its room on the medium all the same. Who calls this lets
// go of the file without the lock: to close one may take as long as the medium likes.
std::shared_ptr<SegmentFile> SegmentStore::Core::forget_segment(SegmentId id) {
  std::shared_ptr<SegmentFile> file = catalog_.at(id).file;
  std::erase(open_files_, file);
  catalog_.remove(id);
  return file;
}

void SegmentStore::Core::note_open(const std::shared_ptr<SegmentFile>& file) {
  const MutexLock lock(mu_);
  const SegmentId id = catalog_.find_path(file->path());
  const bool is_known = id != kNoSegment && catalog_.at(id).file == file;  // else it went meanwhile
  if (is_known && std::find(open_files_.begin(), open_files_.end(), file) == open_files_.end()) open_files_.push_back(file);
}

// Fetches have a share of each file that they read, beside the catalog's and that of the list of open ones.
bool SegmentStore::Core::is_fetched_from(const Segment& segment) const {
  const long num_shares = segment.file.use_count();
  return num_shares > 1 && num_shares > 1 + std::count(open_files_.begin(), open_files_.end(), segment.file);
}

double SegmentStore::Core::read_rate(int64_t now) const { return now < rate_measured_s_ + kRateSeconds ? read_bytes_per_s_ : 0; }

void SegmentStore::Core::count_missed(CacheMiss cause, int64_t num_blocks) {
  const MutexLock lock(mu_);
  stats_.missed_blocks[static_cast<size_t>(cause)] += static_cast<uint64_t>(num_blocks);
}

CacheStats SegmentStore::Core::stats() const {
  const bool hang = reads_hang();
  const MutexLock lock(mu_);
  CacheStats out = stats_;
  out.reads_off = hang;
  out.num_blocks = catalog_.index().size();
  out.num_segments = catalog_.num_segments();
  out.index_bytes = catalog_.index().memory_bytes();
  out.backlog_bytes = queue_.size() * record_bytes_;
  if (index_ != nullptr) index_->add_to(out);
  return out;
}

void SegmentStore::Core::start_threads() {
  if (!options_.background) return;
  const MutexLock lock(mu_);
  const int num_finish_threads = options_.cipher ? 2 : 1;  // a core encrypts about as fast as a disk writes
  num_threads_ = (index_ != nullptr ? 2 : 1) + num_finish_threads + static_cast<int32_t>(reading_since_ns_.size());
  // Detached, each with a share of this object: a thread that never comes back from the disk must not keep the process from ending.
  const auto run = [self = shared_from_this()](auto work) {
    std::thread([self, work] {
      work(*self);
      const MutexLock done(self->mu_);
      self->num_threads_ -= 1;
      self->ended_.notify_all();
    }).detach();
  };
  for (int i = 0; i < num_finish_threads; ++i) run([](Core& core) { core.finish_loop(); });
  run([](Core& core) { core.write_loop(); });
  if (index_ != nullptr) run([](Core& core) { core.index_->run([&core](std::span<const IndexClient::Found> found) { return core.take_places(found); }); });
  for (size_t i = 0; i < reading_since_ns_.size(); ++i) run([i](Core& core) { core.fetch_loop(i); });
}

void SegmentStore::Core::stop() {
  if (!options_.background) {
    flush();
    const MutexLock writing(write_mu_);
    seal_all();
    return;
  }
  MutexLock lock(mu_);
  stopping_ = true;
  came_.notify_all();
  finished_.notify_all();
  jobs_changed_.notify_all();
  buffers_changed_.notify_all();
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(kStopSeconds);
  while (num_threads_ > 0 && ended_.wait_until(mu_, deadline) != std::cv_status::timeout) continue;
  if (num_threads_ > 0) log("the disk does not answer; ending without it");
}

Result<std::unique_ptr<SegmentStore>> SegmentStore::open(std::shared_ptr<io::Disk> disk, std::shared_ptr<const TimeSource> time, StoreOptions options) {
  DI_TRY(check_options(options));
  auto core = std::make_shared<Core>(std::move(disk), std::move(time), std::move(options));
  DI_TRY(core->open());
  core->start_threads();
  return std::unique_ptr<SegmentStore>(new SegmentStore(std::move(core)));
}

SegmentStore::~SegmentStore() { core_->stop(); }

BlockStore::Known SegmentStore::find(std::span<const BlockKey> chain) { return core_->find(chain); }

bool SegmentStore::can_look_up() const { return core_->can_look_up(); }

std::unique_ptr<BlockLookup> SegmentStore::look_up(std::vector<BlockKey> keys, std::function<void()> wake) {
  std::shared_ptr<LookupJob> job = core_->look_up(std::move(keys), std::move(wake));
  return job == nullptr ? nullptr : std::make_unique<Lookup>(std::move(job));
}

std::unique_ptr<BlockFetch> SegmentStore::fetch(const StoreTag&, std::span<const BlockKey> chain, std::function<void()> wake) {
  return std::make_unique<Fetch>(core_->fetch(chain, std::move(wake)), core_);
}

bool SegmentStore::publish(const StoreTag& tag, const BlockKey& key, std::span<const std::byte> rows) { return core_->publish(tag, key, rows); }
void SegmentStore::count_missed(CacheMiss cause, Tier, int64_t num_blocks) { core_->count_missed(cause, num_blocks); }
CacheStats SegmentStore::stats() const { return core_->stats(); }
void SegmentStore::retract(std::span<const BlockKey> keys) { core_->retract(keys); }
void SegmentStore::flush() { core_->flush(); }
void SegmentStore::maintain() { core_->maintain(); }

}  // namespace deepinfer::kv
