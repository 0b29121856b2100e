// gate.h: threads that a test stops where it wants them, and lets go.
#pragma once

#include <condition_variable>
#include <mutex>
#include <utility>

namespace deepinfer {

// Outlives the threads that may still wait at it.
class Gate {
 public:
  // Stops the calling thread until open(); not at all afterwards.
  void wait() {
    std::unique_lock lock(mu_);
    if (open_) return;
    num_stopped_ += 1;
    opened_.wait(lock, [&] { return open_; });
  }
  // Stops the first thread that comes; all others pass.
  void stop_first() {
    {
      const std::lock_guard lock(mu_);
      if (std::exchange(taken_, true)) return;
    }
    wait();
  }
  void open() {
    {
      const std::lock_guard lock(mu_);
      open_ = true;
    }
    opened_.notify_all();
  }
  // Threads stopped so far, those that went on included.
  int num_stopped() const {
    const std::lock_guard lock(mu_);
    return num_stopped_;
  }

 private:
  mutable std::mutex mu_;
  std::condition_variable opened_;
  bool open_ = false, taken_ = false;
  int num_stopped_ = 0;
};

}  // namespace deepinfer
