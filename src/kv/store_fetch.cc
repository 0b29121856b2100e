// The reading side of SegmentStore: chains of blocks, several records a read, each checked before anybody sees it.
#include <algorithm>
#include <pthread.h>
#include <utility>

#include "base/check.h"
#include "kv/store_core.h"

namespace deepinfer::kv {
namespace {

constexpr size_t kReadBytes = size_t{4} << 20;   // of one read: enough to keep a fast disk busy
constexpr size_t kMaxJobs = 1024;                // fetches that wait for a thread

int64_t steady_ns() { return SteadyClock().now_ns(); }

// Says for as long as it lives that a thread is busy with the medium.
class Reading {
 public:
  explicit Reading(std::atomic<int64_t>* since) : since_(since) {
    if (since_ != nullptr) *since_ = steady_ns();
  }
  ~Reading() {
    if (since_ != nullptr) *since_ = 0;
  }
  Reading(const Reading&) = delete;
  Reading& operator=(const Reading&) = delete;

 private:
  std::atomic<int64_t>* const since_;
};

}  // namespace

std::shared_ptr<FetchJob> SegmentStore::Core::fetch(std::span<const BlockKey> chain, std::function<void()> wake) {
  const auto job = std::make_shared<FetchJob>();
  job->begin_ns = steady_ns();
  job->num_asked = chain.size();
  std::optional<CacheMiss> refused;
  {
    const MutexLock lock(mu_);
    const int64_t now = now_s();
    for (const BlockKey& key : chain) {
      const uint32_t i = catalog_.index().find(key);
      if (i == StoreIndex::kNone) break;
      const StoreIndex::Entry& entry = catalog_.index().at(i);
      const Segment& segment = catalog_.at(entry.segment);
      if (!is_serving(segment, now)) break;
      catalog_.touch(i, now);
      job->items.push_back({.key = key, .file = segment.file, .page = entry.page, .tier = tier_of(segment),
                            .age_s = age_s(entry, now), .remaining_s = segment.expires_s - now});
    }
    stats_.num_fetches += 1;
    if (stopping_ || jobs_.size() >= kMaxJobs) refused = CacheMiss::kBusy;
  }
  if (refused || job->items.empty()) {
    count_fetch(*job);
    const MutexLock lock(job->mu);
    job->ended = true;
    job->miss = refused.value_or(CacheMiss::kAbsent);
    return job;
  }
  {
    const MutexLock lock(job->mu);
    job->wake = std::move(wake);
  }
  if (!options_.background) {
    run_fetch(*job, nullptr);
    return job;
  }
  const MutexLock lock(mu_);
  const int num_threads = options_.cipher ? 3 : 2;  // what is read has to be decrypted too
  for (int i = 0; i < num_threads && (i == 0 || run_length(*job, 0) < job->items.size()); ++i) {
    jobs_.push_back(job);
    jobs_changed_.notify_one();
  }
  return job;
}

void SegmentStore::Core::fetch_loop(size_t thread) {
  pthread_setname_np(pthread_self(), "cache-fetch");
  for (;;) {
    std::shared_ptr<FetchJob> job;
    {
      MutexLock lock(mu_);
      while (jobs_.empty() && !stopping_) jobs_changed_.wait(mu_);
      if (stopping_) return;
      job = std::move(jobs_.front());
      jobs_.pop_front();
    }
    if (!job->abandoned) run_fetch(*job, &reading_since_ns_[thread]);
  }
}

void SegmentStore::Core::run_fetch(FetchJob& job, std::atomic<int64_t>* reading_since_ns) {
  for (;;) {
    FetchJob::Chunk chunk;
    size_t count;
    {
      const MutexLock lock(job.mu);
      if (job.ended || job.abandoned || job.next_claim == job.items.size()) return;
      chunk.first = job.next_claim;
      count = run_length(job, chunk.first);
      job.next_claim += count;
    }
    chunk.buffer = take_buffer(job);
    if (chunk.buffer == nullptr) return;  // abandoned or stopping
    const std::optional<CacheMiss> cause = read_run(job, count, chunk, reading_since_ns);
    if (!deliver(job, std::move(chunk), cause)) return;
  }
}

// Hands a chunk over when those before it are. False: the fetch is at its end.
bool SegmentStore::Core::deliver(FetchJob& job, FetchJob::Chunk chunk, std::optional<CacheMiss> cause) {
  {
    MutexLock lock(job.mu);
    while (job.num_delivered != chunk.first && !job.ended && !job.abandoned && !is_stopping()) job.turn.wait_for(job.mu, std::chrono::milliseconds(50));
    if (job.num_delivered != chunk.first || job.ended || job.abandoned) return false;
    job.num_delivered += chunk.rows.size();
    if (!chunk.rows.empty()) job.ready.push_back(std::move(chunk));
    job.ended = cause || job.num_delivered == job.items.size();
    job.miss = cause.value_or(CacheMiss::kAbsent);
    if (job.ended) count_fetch(job);
    job.turn.notify_all();
  }
  job.call_wake();
  return true;
}

// How many records from `first` on lie one after the other in one file and fit a buffer.
size_t SegmentStore::Core::run_length(const FetchJob& job, size_t first) const {
  const size_t capacity = std::max(kReadBytes, record_bytes_) / record_bytes_;
  size_t count = 1;
  for (; first + count < job.items.size() && count < capacity; ++count) {
    const FetchItem& last = job.items[first + count - 1];
    const FetchItem& next = job.items[first + count];
    if (next.file != last.file || next.page != last.page + record_bytes_ / kPage) break;
  }
  return count;
}

// Reads `count` records into the chunk's buffer and appends the rows of those that are right; a cause if one is not.
std::optional<CacheMiss> SegmentStore::Core::read_run(const FetchJob& job, size_t count, FetchJob::Chunk& chunk, std::atomic<int64_t>* reading_since_ns) {
  const size_t first = chunk.first;
  const FetchItem& begin = job.items[first];
  std::optional<Reading> reading(std::in_place, reading_since_ns);
  const Result<std::shared_ptr<io::File>> file = begin.file->open(*disk_);
  if (!file) {
    const CacheMiss cause = file.error().code == Code::kNotFound ? CacheMiss::kAbsent : CacheMiss::kIo;
    distrust(begin, cause);
    return cause;
  }
  note_open(begin.file);
  const int64_t begin_ns = steady_ns();
  const Result<size_t> n = (*file)->read(begin.page * kPage, chunk.buffer->bytes().first(count * record_bytes_));
  const double seconds = static_cast<double>(std::max<int64_t>(1, steady_ns() - begin_ns)) * 1e-9;
  reading.reset();
  if (!n) {
    distrust(begin, CacheMiss::kIo);
    return CacheMiss::kIo;
  }
  {
    const MutexLock lock(mu_);
    stats_.read_bytes += *n;
    const double rate = static_cast<double>(*n) / seconds;
    const int64_t now = now_s();
    read_bytes_per_s_ += (rate - read_bytes_per_s_) * (read_rate(now) == 0 ? 1 : 1.0 / 8);  // a mean over about the last 8 reads
    rate_measured_s_ = now;
  }
  size_t offset = 0;
  for (size_t i = first; i < first + count; ++i) {
    const FetchItem& item = job.items[i];
    const bool there = offset + kRecordHeaderBytes + block_length() <= *n;
    const std::span<std::byte> record = chunk.buffer->bytes().subspan(offset, std::min(record_bytes_, *n - std::min(*n, offset)));
    CacheMiss cause = CacheMiss::kShort;
    if (there) {
      cause = CacheMiss::kCorrupt;
      const Result<RecordView> view = check_record(record, item.key, block_length());
      const bool opens = view && view->header.encrypted == options_.cipher.has_value() &&
                         (!options_.cipher || options_.cipher->decrypt(view->header, view->rows));
      if (opens) {
        chunk.rows.push_back(view->rows);
        offset += record_bytes_;
        const MutexLock lock(mu_);
        (item.tier == Tier::kShared ? stats_.hit_blocks_shared : stats_.hit_blocks_disk) += 1;
        continue;
      }
    }
    distrust(item, cause);
    return cause;
  }
  return std::nullopt;
}

// A buffer from the stock, waiting for one as long as somebody waits for us. Null: nobody does.
std::shared_ptr<PageBuffer> SegmentStore::Core::take_buffer(FetchJob& job) {
  const size_t size = std::max(kReadBytes, record_bytes_);
  if (!options_.background) return std::make_shared<PageBuffer>(size);
  std::shared_ptr<PageBuffer> buffer;
  {
    MutexLock lock(mu_);
    while (buffers_.empty() && num_buffers_ >= max_buffers() && !stopping_ && !job.abandoned) buffers_changed_.wait_for(mu_, std::chrono::milliseconds(50));
    if (stopping_ || job.abandoned) return nullptr;
    if (!buffers_.empty()) {
      buffer = std::move(buffers_.back());
      buffers_.pop_back();
    } else {
      num_buffers_ += 1;
    }
  }
  if (buffer == nullptr) buffer = std::make_shared<PageBuffer>(size);
  // Goes back to the stock when the consumer is through with it, on whatever thread.
  PageBuffer* const raw = buffer.get();
  return std::shared_ptr<PageBuffer>(raw, [self = weak_from_this(), owner = std::move(buffer)](PageBuffer*) mutable {
    if (const std::shared_ptr<Core> core = self.lock()) {
      const MutexLock lock(core->mu_);
      core->buffers_.push_back(std::move(owner));
      core->buffers_changed_.notify_one();
    }
  });
}

size_t SegmentStore::Core::max_buffers() const {
  return std::max<size_t>(options_.staging_bytes / std::max(kReadBytes, record_bytes_), reading_since_ns_.size() + 1);
}

bool SegmentStore::Core::is_stopping() const {
  const MutexLock lock(mu_);
  return stopping_;
}

void SegmentStore::Core::count_fetch(const FetchJob& job) {
  const MutexLock lock(mu_);
  stats_.fetch_seconds += static_cast<double>(steady_ns() - job.begin_ns) * 1e-9;
}

// What failed once is not promised again: the block is computed and written anew. A file that is gone takes all its blocks along.
void SegmentStore::Core::distrust(const FetchItem& item, CacheMiss cause) {
  std::shared_ptr<SegmentFile> gone;
  const MutexLock lock(mu_);
  const SegmentId id = catalog_.find_path(item.file->path());
  if (id == kNoSegment) return;
  if (cause == CacheMiss::kAbsent && catalog_.at(id).state != Segment::State::kActive) {
    gone = forget_segment(id);
    stats_.vanished_segments += 1;
    return;
  }
  if (cause == CacheMiss::kShort) {  // what lies behind is not there either
    for (uint32_t i = catalog_.at(id).head; i != StoreIndex::kNone; i = catalog_.index().at(i).next) {
      if (catalog_.index().at(i).page >= item.page) catalog_.index().forget(i);
    }
    return;
  }
  const uint32_t entry = catalog_.index().find(item.key);
  if (entry != StoreIndex::kNone && catalog_.index().at(entry).segment == id && catalog_.index().at(entry).page == item.page) {
    catalog_.index().forget(entry);
  }
}

// Says so whenever it changes.
bool SegmentStore::Core::reads_are_off() {
  const bool hang = reads_hang();
  const MutexLock lock(mu_);
  if (std::exchange(reads_off_, hang) != hang) log(hang ? "reads do not return; nothing is looked for until one does" : "reads again");
  return hang;
}

bool SegmentStore::Core::reads_hang() const {
  const int64_t begun_before = steady_ns() - options_.hang_ms * 1'000'000;
  return std::all_of(reading_since_ns_.begin(), reading_since_ns_.end(),
                     [=](const std::atomic<int64_t>& since) { return since != 0 && since < begun_before; });
}

}  // namespace deepinfer::kv
