// kv/index_client.h: what this process tells a shared index about the blocks it wrote, and asks it about those it does not know. All that takes
// time happens on the one thread that calls run(): what is told waits in a queue, what is asked is answered later. The index may be down, slow,
// emptied or full of rubbish: then what is told is dropped and counted, what is asked stays unknown, and after an error nobody is asked for a
// pause that doubles from kFirstPauseNs to kLongestPauseNs. Thread-safe.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/thread_annotations.h"
#include "core/cache_stats.h"
#include "io/key_values.h"
#include "kv/block_place.h"
#include "kv/store_clock.h"

namespace deepinfer::kv {

// A question, shared by who asked and the thread that answers it.
struct LookupJob {
  std::vector<BlockKey> keys;
  Mutex mu;
  bool done GUARDED_BY(mu) = false;
  std::function<void()> wake GUARDED_BY(mu);  // null once abandoned

  void finish();
};

class IndexClient {
 public:
  static constexpr size_t kMaxTold = 16'384;    // blocks that wait to be told; beyond: dropped
  static constexpr size_t kMaxQuestions = 256;  // that wait for an answer; beyond: refused
  static constexpr int64_t kFirstPauseNs = 100'000'000, kLongestPauseNs = 30'000'000'000;
  static constexpr int64_t kStuckNs = 1'000'000'000;  // busy with one thing for longer: no more questions until it is through

  using Found = std::pair<BlockKey, BlockPlace>;
  // Called on the thread of run(), with what an answer holds, before the one who asked hears of it. Returns how many of the places are
  // wrong: no file of ours, or nothing that this store could use.
  using Take = std::function<size_t(std::span<const Found>)>;

  IndexClient(std::shared_ptr<io::KeyValues> values, std::shared_ptr<const TimeSource> time, std::function<void(const std::string&)> log);

  // seconds: until the block expires.
  void tell(const BlockKey& key, const BlockPlace& place, int64_t seconds);
  // Null: nobody can be asked now. `wake`: as for BlockStore::fetch.
  std::shared_ptr<LookupJob> ask(std::vector<BlockKey> keys, std::function<void()> wake);

  void run(const Take& take);   // until stop(); then tells what is queued, if the index answers
  void work(const Take& take);  // all that waits now; what run() does again and again
  void stop();
  void add_to(CacheStats& stats) const;

 private:
  bool pausing() const REQUIRES(mu_);
  void answer(LookupJob& job, const Take& take);
  void tell_batch(std::vector<io::KeyValues::Item> batch);
  void note(const Result<>& done);

  const std::shared_ptr<io::KeyValues> values_;  // used by the thread of run() alone
  const std::shared_ptr<const TimeSource> time_;
  const std::function<void(const std::string&)> log_;

  mutable Mutex mu_;
  std::condition_variable_any changed_;
  std::deque<io::KeyValues::Item> told_ GUARDED_BY(mu_);
  std::deque<std::shared_ptr<LookupJob>> questions_ GUARDED_BY(mu_);
  bool stopping_ GUARDED_BY(mu_) = false;
  int64_t pause_ns_ GUARDED_BY(mu_) = 0;   // the last one; 0: it answered
  int64_t resume_ns_ GUARDED_BY(mu_) = 0;  // of the clock since boot
  CacheStats::Index stats_ GUARDED_BY(mu_);
  std::atomic<int64_t> busy_since_ns_{0};  // 0: waiting for work
};

}  // namespace deepinfer::kv
