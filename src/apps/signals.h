// SIGTERM and SIGINT of a server, on a thread of their own: before there is anything to drain they end the process, then the first
// asks for a drain and the second for the end. Made before any other thread, so that all inherit the blocked signals.
#pragma once

#include <csignal>
#include <functional>
#include <future>
#include <thread>

#include "base/thread_annotations.h"

namespace deepinfer::apps {

class SignalWatch {
 public:
  SignalWatch();
  ~SignalWatch();  // the thread ends; later signals stay blocked
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;

  // From here on signals are requests. `on_second` runs on the watching thread, is short, and is not called after done().
  void ready(std::function<void()> on_second);
  void wait_for_first();
  void done();

 private:
  void watch();

  enum class State : uint8_t { kStarting, kReady, kClosing };
  Mutex mu_;
  State state_ GUARDED_BY(mu_) = State::kStarting;
  std::function<void()> on_second_ GUARDED_BY(mu_);
  sigset_t signals_;
  std::promise<void> first_;
  std::thread thread_;
};

}  // namespace deepinfer::apps
