// kv/store_core.h: the inside of SegmentStore, shared with its threads so that one which a dead medium holds can outlive the store. Three
// mutexes, taken in this order: write_mu_ (files being written; held over I/O), those of single fetches, mu_ (catalog, queue, counters;
// never held over I/O).
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <thread>
#include <tuple>
#include <vector>

#include "base/clock.h"
#include "base/thread_annotations.h"
#include "kv/index_client.h"
#include "kv/segment_catalog.h"
#include "kv/segment_reader.h"
#include "kv/segment_store.h"

namespace deepinfer::kv {

// Memory of whole pages, aligned to one.
class PageBuffer {
 public:
  explicit PageBuffer(size_t num_bytes);
  std::span<std::byte> bytes() const { return {data_.get(), size_}; }

 private:
  struct Free {
    void operator()(std::byte* data) const;
  };
  std::unique_ptr<std::byte, Free> data_;
  size_t size_;
};

struct FetchItem {
  BlockKey key;
  std::shared_ptr<SegmentFile> file;
  uint32_t page = 0;
  Tier tier = Tier::kDisk;
  int64_t age_s = 0, remaining_s = 0;
};

// A fetch, shared by its consumer and the few threads that work on it, so that one reads while another checks what it has read.
// Each claims the next run of records; they are handed over in order.
struct FetchJob {
  std::vector<FetchItem> items;
  size_t num_asked = 0;
  int64_t begin_ns = 0;
  std::atomic<bool> abandoned{false};
  struct Chunk {
    std::shared_ptr<PageBuffer> buffer;
    std::vector<std::span<const std::byte>> rows;  // in the buffer
    size_t first = 0;                              // item of rows[0]
  };
  Mutex mu;
  std::condition_variable_any turn;
  size_t next_claim GUARDED_BY(mu) = 0;     // first item that nobody reads yet
  size_t num_delivered GUARDED_BY(mu) = 0;  // items that were handed over
  std::deque<Chunk> ready GUARDED_BY(mu);
  bool ended GUARDED_BY(mu) = false;
  CacheMiss miss GUARDED_BY(mu) = CacheMiss::kAbsent;  // when it ended early
  std::function<void()> wake GUARDED_BY(mu);  // null once abandoned

  void call_wake();
};

class SegmentStore::Core : public std::enable_shared_from_this<SegmentStore::Core> {
 public:
  Core(std::shared_ptr<io::Disk> disk, std::shared_ptr<const TimeSource> time, StoreOptions options);
  Result<> open();  // takes the writer's lock, indexes what is there
  void start_threads();
  void stop();

  Known find(std::span<const BlockKey> chain);
  bool can_look_up() const { return index_ != nullptr; }
  std::shared_ptr<LookupJob> look_up(std::vector<BlockKey> keys, std::function<void()> wake);
  std::shared_ptr<FetchJob> fetch(std::span<const BlockKey> chain, std::function<void()> wake);
  bool publish(const StoreTag& tag, const BlockKey& key, std::span<const std::byte> rows);
  void retract(std::span<const BlockKey> keys);
  void count_missed(CacheMiss cause, int64_t num_blocks);
  CacheStats stats() const;
  void flush();
  void maintain();

 private:
  // A block on its way to disk, in a record's room of memory. What comes after its state is fixed while a thread works on it.
  struct Slot {
    enum class State : uint8_t {
      kFree,
      kFilling,    // publish() copies
      kFull,       // rows alone
      kFinishing,  // being encrypted, and its header made
      kFinished,   // a record
      kWriting,
    };
    State state = State::kFree;
    bool retracted = false;  // nobody may find it any more
    uint64_t ticket = 0;     // in order of arrival
    StoreTag tag;
    BlockKey key;
    int64_t written_s = 0;   // as its header says; of a finished one
  };
  // What a thread that works on one has to know of it.
  struct Taken {
    uint32_t slot;
    StoreTag tag;
    BlockKey key;
    int64_t written_s;
  };
  // A segment that is appended to. write_mu_.
  struct Active {
    SegmentId id = kNoSegment;
    SegmentHeader header;
    std::string path;
    std::unique_ptr<io::File> file;
    std::vector<FooterEntry> footer;
    uint64_t next_page = 1;
    uint64_t last_use = 0;  // of use_counter_
    int64_t written_s = 0;  // when it was added to last
    bool has_footer = false;
  };
  using ActiveKey = std::tuple<Digest256, std::string, int64_t>;  // tenant, class, bucket

  // Records that go to one segment together.
  struct Group {
    SegmentHeader header;                             // of the segment: what does not depend on the writer
    std::vector<std::span<const std::byte>> records;  // whole pages each
    std::vector<FooterEntry> entries;                 // page is set when they are placed
    std::vector<uint32_t> last_uses;                  // of copied blocks; else empty
    std::vector<PageBuffer> storage;                  // of copied blocks
    uint64_t num_bytes = 0;

    ActiveKey key() const { return {header.tenant, header.retention_class, header.bucket_unix_s}; }
    void add(std::span<const std::byte> record, const FooterEntry& block);  // its page is not known yet
  };

  // store_core.cc
  std::span<std::byte> slot_bytes(uint32_t slot) const;
  void set_state(uint32_t slot, Slot::State state) REQUIRES(mu_);
  size_t count(Slot::State state) const REQUIRES(mu_) { return num_in_state_[static_cast<size_t>(state)]; }
  int64_t now_s() const REQUIRES(mu_);
  void distrust_segment(const BlockKey& key) REQUIRES(mu_);
  [[nodiscard]] std::shared_ptr<SegmentFile> forget_segment(SegmentId id) REQUIRES(mu_);
  void note_open(const std::shared_ptr<SegmentFile>& file);
  bool is_fetched_from(const Segment& segment) const REQUIRES(mu_);
  bool is_serving(const Segment& segment, int64_t now) const REQUIRES(mu_);
  int64_t age_s(const StoreIndex::Entry& entry, int64_t now) const REQUIRES(mu_);
  double read_rate(int64_t now) const REQUIRES(mu_);
  static Tier tier_of(const Segment& segment) { return segment.shared ? Tier::kShared : Tier::kDisk; }
  bool counts_as_shared(bool by_another) const { return options_.tier ? *options_.tier == Tier::kShared : by_another; }
  bool could_serve(const SegmentHeader& header) const;  // our model, format and cipher
  uint32_t block_length() const { return static_cast<uint32_t>(options_.block_bytes); }
  bool has_our_length(const FooterEntry& entry) const { return entry.length == block_length(); }  // else it is damaged: the format fixes it
  void log(const std::string& line) const;

  // store_write.cc
  void take(Slot::State from, Slot::State to, size_t max_blocks, std::vector<Taken>& out) REQUIRES(mu_);
  void give_back(std::span<const Taken> blocks) REQUIRES(mu_);
  bool finish_records(std::vector<Taken>& room);  // false: there was nothing to finish
  void finish_record(const Taken& block, int64_t now) const;
  bool write_batch() REQUIRES(write_mu_);  // false: there was nothing to write
  std::vector<Group> make_groups() REQUIRES(write_mu_);
  SegmentHeader header_for(const StoreTag& tag, int64_t now) const;
  Result<> write_group(Group& group) REQUIRES(write_mu_);  // with room made for it
  Result<> append(Group& group) REQUIRES(write_mu_);
  Result<> write_footer(Active& active, std::span<const FooterEntry> entries, uint64_t page) REQUIRES(write_mu_);
  bool wait_for_records(std::chrono::steady_clock::time_point upkeep);
  Result<Active*> active_for(const Group& group) REQUIRES(write_mu_);
  Result<> create_segment(Active& active) REQUIRES(write_mu_);
  Result<> open_new_file(Active& active) REQUIRES(write_mu_);
  void take_writer() REQUIRES(write_mu_);
  void seal(const ActiveKey& key) REQUIRES(write_mu_);
  void abandon(const ActiveKey& key) REQUIRES(write_mu_);  // after an error: what is durable stays, nothing is added
  void retire(const ActiveKey& key) REQUIRES(write_mu_);   // the end of seal() and abandon()
  bool seal_least_used() REQUIRES(write_mu_);
  void seal_all() REQUIRES(write_mu_);
  void note_failure(const Error& error, size_t num_blocks) REQUIRES(write_mu_);
  void note_success(uint64_t num_bytes, size_t num_blocks) REQUIRES(write_mu_);

  // store_upkeep.cc
  void load_segments() REQUIRES(write_mu_);
  void load_segment(const SegmentPath& where, bool writer_alive);  // any number of threads at a time
  void add_segment(Segment segment, std::span<const FooterEntry> entries) REQUIRES(mu_);
  void refresh(const std::string& path, const io::FileStatus& status) REQUIRES(write_mu_);
  void measure_others(std::vector<std::string> folders) REQUIRES(write_mu_);
  bool is_alive(uint64_t writer) REQUIRES(write_mu_);
  bool make_room(uint64_t bytes) REQUIRES(write_mu_);
  bool drop_quarantined() REQUIRES(write_mu_);
  bool evict_one() REQUIRES(write_mu_);
  bool drop_segment(const std::string& path, bool delete_file) REQUIRES(write_mu_);  // false: the file could not be deleted
  std::vector<Group> save_hot(const std::string& victim, int64_t hot_since_s) REQUIRES(write_mu_);
  void expire() REQUIRES(write_mu_);
  void upkeep() REQUIRES(write_mu_);
  void report_open();
  void touch_files() REQUIRES(write_mu_);
  void update_used() REQUIRES(write_mu_);

  // store_lookup.cc
  void tell_index(const Active& active, std::span<const FooterEntry> entries, int64_t now);
  size_t take_places(std::span<const IndexClient::Found> found);
  bool take_place(const BlockKey& key, const BlockPlace& place);
  bool meet_segment(const SegmentPath& where);

  // store_fetch.cc
  void run_fetch(FetchJob& job, std::atomic<int64_t>* reading_since_ns);
  bool deliver(FetchJob& job, FetchJob::Chunk chunk, std::optional<CacheMiss> cause);
  size_t run_length(const FetchJob& job, size_t first) const;
  std::optional<CacheMiss> read_run(const FetchJob& job, size_t count, FetchJob::Chunk& chunk, std::atomic<int64_t>* reading_since_ns);
  std::shared_ptr<PageBuffer> take_buffer(FetchJob& job);
  size_t max_buffers() const;
  bool is_stopping() const;
  void count_fetch(const FetchJob& job);
  void distrust(const FetchItem& item, CacheMiss cause);
  bool reads_hang() const;
  bool reads_are_off();
  void fetch_loop(size_t thread);
  void finish_loop();
  void write_loop();

  const std::shared_ptr<io::Disk> disk_;
  const std::shared_ptr<const TimeSource> time_;
  const StoreOptions options_;
  const uint64_t segment_bytes_;
  const size_t record_bytes_;  // of a full block, in whole pages
  const std::unique_ptr<IndexClient> index_;  // null: none

  Mutex write_mu_;
  std::map<ActiveKey, Active> active_ GUARDED_BY(write_mu_);
  std::unique_ptr<io::File> writer_lock_ GUARDED_BY(write_mu_);
  uint64_t writer_ GUARDED_BY(write_mu_) = 0;
  uint32_t next_sequence_ GUARDED_BY(write_mu_) = 1;
  uint64_t use_counter_ GUARDED_BY(write_mu_) = 0;
  std::vector<Taken> batch_ GUARDED_BY(write_mu_);
  int32_t num_failures_ GUARDED_BY(write_mu_) = 0;  // in a row
  int64_t retry_s_ GUARDED_BY(write_mu_) = 0;       // read-only until then
  int64_t mark_written_s_ GUARDED_BY(write_mu_) = 0;
  std::map<uint64_t, bool> alive_ GUARDED_BY(write_mu_);  // writers, as of this look at the directory
  uint64_t other_bytes_ GUARDED_BY(write_mu_) = 0;  // of the directory's folders, and of files that are no segments
  uint64_t quarantine_bytes_ GUARDED_BY(write_mu_) = 0;  // of these, in quarantine

  mutable Mutex mu_;
  StoreClock clock_ GUARDED_BY(mu_);
  SegmentCatalog catalog_ GUARDED_BY(mu_);
  std::vector<Slot> slots_ GUARDED_BY(mu_);
  std::vector<uint32_t> free_slots_ GUARDED_BY(mu_);
  std::vector<uint32_t> queue_ GUARDED_BY(mu_);  // all others, in order of arrival; reserved for all
  std::array<size_t, 6> num_in_state_ GUARDED_BY(mu_){};
  uint64_t next_ticket_ GUARDED_BY(mu_) = 0;
  int32_t num_flushing_ GUARDED_BY(mu_) = 0;     // who wait for all that was published
  std::condition_variable_any came_, finished_, written_;  // rows; records; their end
  CacheStats stats_ GUARDED_BY(mu_);
  double read_bytes_per_s_ GUARDED_BY(mu_) = 0;
  int64_t rate_measured_s_ GUARDED_BY(mu_) = 0;
  bool reads_off_ GUARDED_BY(mu_) = false;        // as it was said last
  bool stopping_ GUARDED_BY(mu_) = false;
  int32_t num_threads_ GUARDED_BY(mu_) = 0;       // that have not ended
  std::condition_variable_any ended_;

  std::condition_variable_any jobs_changed_;
  std::deque<std::shared_ptr<FetchJob>> jobs_ GUARDED_BY(mu_);
  std::vector<std::shared_ptr<PageBuffer>> buffers_ GUARDED_BY(mu_);  // free ones
  size_t num_buffers_ GUARDED_BY(mu_) = 0;                            // ever made
  std::condition_variable_any buffers_changed_;
  std::deque<std::shared_ptr<SegmentFile>> open_files_ GUARDED_BY(mu_);  // of segments in the catalog; oldest first
  std::vector<std::atomic<int64_t>> reading_since_ns_;                   // a fetch thread; 0: not in a read

  PageBuffer slot_memory_;
};

}  // namespace deepinfer::kv
