// The compute threads of one engine. A step is one call of Workers::run: every thread executes the same function over its Team
// view (SPMD) and meets the others at barriers; work is cut by shape (Team::range over units that the shape gives), and no
// result may depend on the cut. Threads are pinned, the caller's where it asks for that, spin only inside run(), and sleep between calls.
//
// Kernels are free functions that all threads of a team call together: rms_norm(params, team). A kernel does not end with a
// barrier: the caller, who knows what reads the result, calls team.barrier().
// The alternative that lost: a task queue. A sleeping thread takes 25 us to wake, 400 spin barriers' worth.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

namespace deepinfer {

class Team {
 public:
  virtual ~Team() = default;
  int index() const { return index_; }  // 0..size()-1; the thread that called run() is 0
  int size() const { return size_; }
  // All threads arrive before any leaves. Cheap (about 0.1 us) while the team spins.
  virtual void barrier() = 0;
  // This thread's share of [0, n) in units: contiguous, sizes differ by at most one.
  std::pair<int64_t, int64_t> range(int64_t n) const {
    return {n * index_ / size_, n * (index_ + 1) / size_};
  }
  // A shared counter for uneven work: each call hands out the next number, to one thread. Reset by reset_tickets(), which all
  // threads call together (it contains a barrier on each side).
  virtual int64_t next_ticket() = 0;
  virtual void reset_tickets() = 0;

 protected:
  Team(int index, int size) : index_(index), size_(size) {}
  int index_, size_;
};

class Workers {
 public:
  // num_threads 0: one a physical core that this process may use. Threads start here and sleep.
  static std::unique_ptr<Workers> create(int num_threads, bool pin = true);
  virtual ~Workers() = default;
  virtual int size() const = 0;
  // Whether this process may use a processor that none of these threads needs.
  virtual bool leave_processor() const = 0;
  // The calling thread, which makes the runs from now on, gets the first processor until the Workers end. Threads that it starts
  // afterwards inherit that. A thread that only loads a model does not ask, or a server would live on one processor.
  virtual void pin_caller() = 0;
  // Runs fn(team) on every thread, the caller's included; returns when all have. One caller at a time. Allocates nothing.
  template <class F>
  void run(F&& fn) {
    run_erased([](void* f, Team& team) { (*static_cast<std::remove_reference_t<F>*>(f))(team); }, &fn);
  }

 protected:
  virtual void run_erased(void (*fn)(void*, Team&), void* context) = 0;
};

}  // namespace deepinfer
