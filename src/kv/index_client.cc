#include "kv/index_client.h"

#include <algorithm>
#include <chrono>
#include <pthread.h>

namespace deepinfer::kv {

void LookupJob::finish() {
  const MutexLock lock(mu);
  done = true;
  if (wake) wake();
}

IndexClient::IndexClient(std::shared_ptr<io::KeyValues> values, std::shared_ptr<const TimeSource> time, std::function<void(const std::string&)> log)
    : values_(std::move(values)), time_(std::move(time)), log_(std::move(log)) {
  stats_.present = true;
}

bool IndexClient::pausing() const { return pause_ns_ > 0 && time_->boot_ns() < resume_ns_; }

void IndexClient::tell(const BlockKey& key, const BlockPlace& place, int64_t seconds) {
  if (seconds < 1) return;
  {
    const MutexLock lock(mu_);
    if (told_.size() >= kMaxTold) {
      stats_.dropped_blocks += 1;
      return;
    }
    told_.push_back({.key = index_key(key), .value = encode_place(place), .seconds = seconds});
  }
  changed_.notify_all();
}

std::shared_ptr<LookupJob> IndexClient::ask(std::vector<BlockKey> keys, std::function<void()> wake) {
  auto job = std::make_shared<LookupJob>();
  job->keys = std::move(keys);
  {
    const MutexLock lock(job->mu);
    job->wake = std::move(wake);
  }
  {
    const MutexLock lock(mu_);
    const int64_t busy_since = busy_since_ns_;
    const bool stuck = busy_since != 0 && time_->boot_ns() - busy_since > kStuckNs;
    if (stopping_ || stuck || pausing() || questions_.size() >= kMaxQuestions) return nullptr;
    questions_.push_back(job);
    stats_.lookups += 1;
  }
  changed_.notify_all();
  return job;
}

void IndexClient::run(const Take& take) {
  pthread_setname_np(pthread_self(), "cache-index");
  for (bool stopping = false; !stopping;) {
    {
      MutexLock lock(mu_);
      // What is told during a pause waits for its end.
      while (!stopping_ && questions_.empty() && (told_.empty() || pausing())) {
        if (told_.empty()) {
          changed_.wait(mu_);
        } else {
          changed_.wait_for(mu_, std::chrono::nanoseconds(std::max<int64_t>(1, resume_ns_ - time_->boot_ns())));
        }
      }
      stopping = stopping_;
    }
    work(take);
  }
}

void IndexClient::work(const Take& take) {
  for (;;) {
    std::shared_ptr<LookupJob> job;
    std::vector<io::KeyValues::Item> batch;
    {
      const MutexLock lock(mu_);
      busy_since_ns_ = 0;
      if (!questions_.empty()) {  // first: somebody waits
        job = std::move(questions_.front());
        questions_.pop_front();
      } else if (!told_.empty() && !pausing()) {
        const auto end = told_.begin() + static_cast<ptrdiff_t>(std::min(told_.size(), io::KeyValues::kMaxItems));
        batch.assign(std::make_move_iterator(told_.begin()), std::make_move_iterator(end));
        told_.erase(told_.begin(), end);
      } else {
        return;
      }
      busy_since_ns_ = time_->boot_ns();
    }
    if (job != nullptr) {
      answer(*job, take);
      job->finish();
    } else {
      tell_batch(std::move(batch));
    }
  }
}

void IndexClient::answer(LookupJob& job, const Take& take) {
  for (size_t first = 0; first < job.keys.size(); first += io::KeyValues::kMaxItems) {
    {
      const MutexLock lock(mu_);
      if (pausing()) return;  // it failed since this was asked
    }
    const std::span<const BlockKey> keys = std::span(job.keys).subspan(first, std::min(io::KeyValues::kMaxItems, job.keys.size() - first));
    std::vector<std::string> names;
    for (const BlockKey& key : keys) names.push_back(index_key(key));
    const Result<std::vector<std::string>> values = values_->get(names);
    note(values ? Result<>() : values.error());
    if (!values) return;
    std::vector<Found> found;
    size_t num_wrong = 0;
    for (size_t i = 0; i < keys.size(); ++i) {
      if ((*values)[i].empty()) continue;
      if (Result<BlockPlace> place = decode_place((*values)[i]); place) {
        found.emplace_back(keys[i], std::move(*place));
      } else {
        num_wrong += 1;
      }
    }
    const size_t num_unusable = take(found);
    const MutexLock lock(mu_);
    stats_.found_blocks += found.size() - num_unusable;
    stats_.wrong_places += num_wrong + num_unusable;
    if (found.empty()) return;  // so many of a chain, and nobody has one: nor will they have what follows
  }
}

void IndexClient::tell_batch(std::vector<io::KeyValues::Item> batch) {
  const Result<> done = values_->put(batch);
  note(done);
  const MutexLock lock(mu_);
  (done ? stats_.told_blocks : stats_.dropped_blocks) += batch.size();
}

// The index answered, or did not: then nobody is asked for a while. One that is only full, or may not be written to, is still worth asking.
void IndexClient::note(const Result<>& done) {
  std::string line;
  {
    const MutexLock lock(mu_);
    stats_.errors += done ? 0 : 1;
    if (done || done.error().code == Code::kResourceExhausted) {
      if (pause_ns_ > 0) line = "the shared index answers again";
      pause_ns_ = 0;
    } else {
      if (pause_ns_ == 0) line = "goes on without the shared index: " + done.error().message;
      pause_ns_ = std::clamp(2 * pause_ns_, kFirstPauseNs, kLongestPauseNs);
      resume_ns_ = time_->boot_ns() + pause_ns_;
    }
  }
  if (log_ && !line.empty()) log_(line);
}

void IndexClient::stop() {
  {
    const MutexLock lock(mu_);
    stopping_ = true;
  }
  changed_.notify_all();
}

void IndexClient::add_to(CacheStats& stats) const {
  const MutexLock lock(mu_);
  stats.index = stats_;
  stats.index.off = pausing();
}

}  // namespace deepinfer::kv
