// Token events on their way from the engine's thread to the thread of one connection. The engine side never blocks: it appends under
// a lock that is held for a copy, and wakes the other side once per batch. Bounded: when the connection does not keep up (its client
// reads too slowly) the mailbox overflows, which ends the request; it never grows with the slowest reader.
#pragma once

#include <functional>
#include <vector>

#include "base/clock.h"
#include "base/thread_annotations.h"
#include "core/inference.h"

namespace deepinfer::api {

struct TimedEvent {
  TokenEvent event;
  int64_t at_ns;  // when the engine handed it over
};

class Mailbox final : public EventSink {
 public:
  // wake: called with the lock held, at most once between two take()s; must only post.
  Mailbox(size_t max_events, const Clock& clock, std::function<void()> wake)
      : max_events_(max_events), clock_(clock), wake_(std::move(wake)) {}

  void on_event(const TokenEvent& event) override {
    MutexLock lock(mu_);
    if (!wake_) return;  // closed
    // End events always fit: there is one a choice, and the connection counts them.
    if (events_.size() >= max_events_ && !event.finished) {
      overflowed_ = true;
    } else {
      events_.push_back({event, clock_.now_ns()});
    }
    if (woken_) return;
    woken_ = true;
    wake_();
  }

  // Moves all waiting events into `out`, whose capacity is reused. False: events were lost since the limit was reached.
  bool take(std::vector<TimedEvent>& out) {
    out.clear();
    MutexLock lock(mu_);
    events_.swap(out);
    woken_ = false;
    return !overflowed_;
  }

  // Nobody takes any more: later events are dropped, and wake is not called again once this returned.
  void close() {
    MutexLock lock(mu_);
    wake_ = nullptr;
    events_.clear();
  }

 private:
  const size_t max_events_;
  const Clock& clock_;
  Mutex mu_;
  std::function<void()> wake_ GUARDED_BY(mu_);
  std::vector<TimedEvent> events_ GUARDED_BY(mu_);
  bool woken_ GUARDED_BY(mu_) = false;
  bool overflowed_ GUARDED_BY(mu_) = false;
};

}  // namespace deepinfer::api
