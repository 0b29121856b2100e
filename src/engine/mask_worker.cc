#include "engine/mask_worker.h"

#include <pthread.h>

#include "base/check.h"

namespace deepinfer::engine {

MaskWorker::MaskWorker(int32_t max_rows, int32_t vocab_size, bool beside)
    : num_words_((static_cast<size_t>(vocab_size) + 31) / 32),
      rows_(static_cast<size_t>(max_rows)),
      bits_(std::make_unique_for_overwrite<uint32_t[]>(rows_.size() * num_words_)) {
  if (beside) thread_ = std::thread([this] { run(); });
}

MaskWorker::~MaskWorker() {
  stop_.store(true, std::memory_order_relaxed);
  if (!thread_.joinable()) return;
  start();
  thread_.join();
}

void MaskWorker::offer(int32_t row, grammar::Matcher& matcher) {
  Row& offered = rows_[static_cast<size_t>(row)];
  DCHECK(offered.state.load(std::memory_order_relaxed) != State::kOffered);
  offered.matcher = &matcher;
  offered.state.store(State::kOffered, std::memory_order_release);
}

void MaskWorker::start() {
  epoch_.fetch_add(1, std::memory_order_release);
  epoch_.notify_one();
}

// Whoever moves the state from kOffered to kRunning has the row. Nothing else says that there is work, so a thread that comes late, even a step
// late, takes only what is offered now.
bool MaskWorker::compute(size_t row) {
  Row& r = rows_[row];
  State offered = State::kOffered;
  if (!r.state.compare_exchange_strong(offered, State::kRunning, std::memory_order_acquire, std::memory_order_relaxed)) return false;
  const bool done = r.matcher->mask(bits(row)).has_value();
  r.state.store(done ? State::kReady : State::kFailed, std::memory_order_release);
  return true;
}

std::optional<std::span<const uint32_t>> MaskWorker::take(int32_t row) {
  const auto i = static_cast<size_t>(row);
  Row& taken = rows_[i];
  if (!compute(i)) taken.state.wait(State::kRunning, std::memory_order_acquire);
  const State state = taken.state.load(std::memory_order_acquire);
  CHECK(state == State::kReady || state == State::kFailed);
  if (state == State::kFailed) return std::nullopt;
  return bits(i);
}

void MaskWorker::run() {
  pthread_setname_np(pthread_self(), "masks");
  for (uint32_t seen = 0;;) {
    epoch_.wait(seen, std::memory_order_acquire);
    seen = epoch_.load(std::memory_order_acquire);
    if (stop_.load(std::memory_order_relaxed)) return;
    for (size_t row = 0; row < rows_.size(); ++row) {
      if (compute(row)) rows_[row].state.notify_all();
    }
  }
}

}  // namespace deepinfer::engine
