#include "apps/signals.h"

#include <cstdlib>
#include <utility>

namespace deepinfer::apps {

SignalWatch::SignalWatch() {
  sigemptyset(&signals_);
  sigaddset(&signals_, SIGTERM);
  sigaddset(&signals_, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals_, nullptr);
  thread_ = std::thread([this] { watch(); });
}

SignalWatch::~SignalWatch() {
  done();
  pthread_kill(thread_.native_handle(), SIGTERM);  // wakes sigwait()
  thread_.join();
}

void SignalWatch::ready(std::function<void()> on_second) {
  const MutexLock lock(mu_);
  on_second_ = std::move(on_second);
  state_ = State::kReady;
}

void SignalWatch::wait_for_first() { first_.get_future().wait(); }

void SignalWatch::done() {
  const MutexLock lock(mu_);
  state_ = State::kClosing;
}

void SignalWatch::watch() {
  for (int count = 1;; ++count) {
    int signal = 0;
    sigwait(&signals_, &signal);
    const MutexLock lock(mu_);
    if (state_ == State::kClosing) return;
    if (state_ == State::kStarting) std::_Exit(128 + signal);  // as if nobody had blocked it
    if (count == 1) first_.set_value();
    if (count == 2) on_second_();
  }
}

}  // namespace deepinfer::apps
