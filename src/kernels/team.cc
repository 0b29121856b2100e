// Workers over std::thread: an epoch counter starts a run, a counter of arrivals ends it. The barrier is one of signals between pairs: in
// round k every thread tells the one 2^k places on that all it has heard of are there, and after log2(size) rounds each has heard of all.
// A signal is one cache line that goes from one core to another; a common counter is passed round by all of them, and its news once more.
// Every wait spins first, since a wake-up costs hundreds of barriers, and sleeps once spinning has lasted longer than any kernel should: the
// machine may be shared, or there may be fewer cores than threads.
#include "kernels/team.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <chrono>
#include <climits>
#include <ctime>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "base/check.h"

namespace deepinfer {
namespace {

inline void pause_cpu() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  std::this_thread::yield();
#endif
}

// A pause is 40 to 140 cycles: about 50 us of spinning before the processor is left to others.
constexpr int kSpinsBeforeSleep = 1500;
// How long workers wait awake for the next run: decode steps follow each other within this, so they need no wake-up.
constexpr std::chrono::microseconds kAwake{100};

cpu_set_t initial_affinity() {
  // Read once, before a caller is pinned: Workers made later must see the processors of the process.
  static const cpu_set_t set = [] {
    cpu_set_t s;
    CPU_ZERO(&s);
    CHECK(sched_getaffinity(0, sizeof s, &s) == 0);
    return s;
  }();
  return set;
}

// The processors this process may use, one of each physical core first, then their siblings.
std::vector<int> processors(int& num_cores) {
  const cpu_set_t allowed = initial_affinity();
  std::vector<int> first, second;
  cpu_set_t taken;
  CPU_ZERO(&taken);
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &allowed)) continue;
    if (CPU_ISSET(cpu, &taken)) {
      second.push_back(cpu);
      continue;
    }
    first.push_back(cpu);
    // "0,64" or "0-1": the other threads of this core come after all cores have one.
    std::ifstream file("/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/thread_siblings_list");
    for (int low; file >> low;) {
      int high = low;
      if (file.peek() == '-') file.get(), file >> high;
      for (int sibling = low; sibling <= high && sibling >= 0 && sibling < CPU_SETSIZE; ++sibling) CPU_SET(sibling, &taken);
      if (file.peek() == ',') file.get();
    }
  }
  num_cores = static_cast<int>(first.size());
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

// Whole processors that the control group's quota pays for; a large number when there is no quota.
int quota_processors() {
  std::string folder;
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);)
    if (line.starts_with("0::")) folder = line.substr(3);
  for (const std::string& path : {"/sys/fs/cgroup" + folder + "/cpu.max", std::string("/sys/fs/cgroup/cpu.max")}) {
    std::ifstream file(path);
    int64_t quota = 0, period = 0;
    if (file >> quota >> period && period > 0) return static_cast<int>(std::max<int64_t>(1, quota / period));
  }
  return CPU_SETSIZE;
}

void pin_to(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  // A refusal (a sandbox) costs speed only.
  (void)pthread_setaffinity_np(pthread_self(), sizeof set, &set);
}

// A number that one thread writes and others wait for. Who waits long sleeps; it does not yield: since Linux 6.6 a thread that yields again
// and again puts its own turn off further each time, and is then left out for seconds where others want the processor.
struct alignas(64) Signal {
  std::atomic<uint32_t> value{0};
  std::atomic<uint32_t> sleepers{0};  // on value's line, which its writer has at hand

  // Whether it came while the caller stayed awake.
  template <class Done>
  bool spin(int spins, Done done) const {
    for (int i = 0; i < spins; ++i) {
      if (done(value.load(std::memory_order_acquire))) return true;
      pause_cpu();
    }
    return false;
  }
  template <class Done>
  void sleep(Done done, const timespec* longest_sleep = nullptr) {
    sleepers.fetch_add(1, std::memory_order_seq_cst);
    for (uint32_t seen; !done(seen = value.load(std::memory_order_seq_cst));) syscall(SYS_futex, &value, FUTEX_WAIT_PRIVATE, seen, longest_sleep, nullptr, 0);
    sleepers.fetch_sub(1, std::memory_order_relaxed);
  }
  // After a write of value: in the order of all sequentially consistent operations, or a sleeper may miss it.
  void wake() {
    if (sleepers.load(std::memory_order_seq_cst) != 0) syscall(SYS_futex, &value, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
  }
};
// A barrier's signals are written without a fence, which would cost as much again as the barrier. A sleeper that misses one looks again.
constexpr timespec kLongestSleep{.tv_sec = 0, .tv_nsec = 1'000'000};

// What all threads of a team touch; each hot word on its own cache line.
struct Shared {
  explicit Shared(int n, bool oversubscribed)
      : size(n), rounds(std::bit_width(static_cast<unsigned>(n - 1))), spins(oversubscribed ? 0 : kSpinsBeforeSleep), signals(static_cast<size_t>(n * rounds)) {}
  Signal& signal(int to, int round) { return signals[static_cast<size_t>(to * rounds + round)]; }

  const int size, rounds, spins;
  std::vector<Signal> signals;  // [size, rounds]: barriers passed, as one thread tells another
  Signal epoch;    // one more for each run
  Signal running;  // workers that have not finished the current run
  alignas(64) std::atomic<int64_t> ticket{0};
  // Written by the caller before epoch, read by workers after it.
  alignas(64) void (*fn)(void*, Team&) = nullptr;
  void* context = nullptr;
  bool stop = false;
};

class ThreadTeam final : public Team {
 public:
  ThreadTeam(int index, Shared& shared) : Team(index, shared.size), shared_(shared) {}

  void barrier() override {
    ++phase_;
    for (int round = 0; round < shared_.rounds; ++round) {
      Signal& told = shared_.signal((index_ + (1 << round)) % size_, round);
      told.value.store(phase_, std::memory_order_release);
      Signal& heard = shared_.signal(index_, round);
      // Who signals may be a barrier ahead, and no more.
      const auto came = [&](uint32_t phase) { return static_cast<int32_t>(phase - phase_) >= 0; };
      const bool is_here = heard.spin(shared_.spins, came);
      told.wake();  // not before: it waits for the line that the store has sent for
      if (!is_here) heard.sleep(came, &kLongestSleep);
    }
  }
  int64_t next_ticket() override { return shared_.ticket.fetch_add(1, std::memory_order_relaxed); }
  void reset_tickets() override {
    barrier();
    if (index_ == 0) shared_.ticket.store(0, std::memory_order_relaxed);
    barrier();
  }

 private:
  Shared& shared_;
  uint32_t phase_ = 0;  // barriers begun
};

class ThreadWorkers final : public Workers {
 public:
  ThreadWorkers(int num_threads, bool pin) {
    int num_cores = 0;
    processors_ = processors(num_cores);
    num_available_ = std::min(static_cast<int>(processors_.size()), quota_processors());
    const int size = num_threads > 0 ? num_threads : std::max(1, std::min(num_cores, quota_processors()));
    // More threads than processors cannot be pinned one to one, and must not spin against each other.
    const bool oversubscribed = size > num_available_;
    pin_ = pin && size > 1 && !oversubscribed;
    shared_ = std::make_unique<Shared>(size, oversubscribed);
    caller_team_ = std::make_unique<ThreadTeam>(0, *shared_);
    for (int index = 1; index < size; ++index) threads_.emplace_back([this, index] { work(index); });
  }

  ~ThreadWorkers() override {
    if (!threads_.empty()) {
      shared_->stop = true;
      start();
      for (std::thread& thread : threads_) thread.join();
    }
    if (caller_pinned_ && pthread_equal(caller_, pthread_self())) {
      (void)pthread_setaffinity_np(caller_, sizeof caller_affinity_, &caller_affinity_);
    }
  }

  int size() const override { return shared_->size; }
  bool leave_processor() const override { return size() < num_available_; }

  void pin_caller() override {
    if (!pin_ || (caller_pinned_ && pthread_equal(caller_, pthread_self()))) return;
    caller_ = pthread_self();
    caller_pinned_ = pthread_getaffinity_np(caller_, sizeof caller_affinity_, &caller_affinity_) == 0;
    pin_to(processors_[0]);
  }

 private:
  void run_erased(void (*fn)(void*, Team&), void* context) override {
    if (shared_->size == 1) {
      fn(context, *caller_team_);
      return;
    }
    shared_->fn = fn;
    shared_->context = context;
    start();
    fn(context, *caller_team_);
    const auto all_done = [](uint32_t running) { return running == 0; };
    if (!shared_->running.spin(shared_->spins, all_done)) shared_->running.sleep(all_done);
  }

  void start() {
    shared_->running.value.store(static_cast<uint32_t>(shared_->size - 1), std::memory_order_relaxed);
    shared_->epoch.value.fetch_add(1, std::memory_order_seq_cst);
    shared_->epoch.wake();
  }

  void work(int index) {
    if (pin_) pin_to(processors_[index]);
    ThreadTeam team(index, *shared_);
    for (uint32_t seen = 0;;) {
      await_epoch(seen);
      ++seen;
      if (shared_->stop) return;
      shared_->fn(shared_->context, team);
      shared_->running.value.fetch_sub(1, std::memory_order_seq_cst);
      shared_->running.wake();
    }
  }

  // Returns when the epoch is no longer `seen`: awake for a while, then asleep.
  void await_epoch(uint32_t seen) {
    const auto changed = [&](uint32_t epoch) { return epoch != seen; };
    if (shared_->spins > 0) {
      for (const auto sleep_at = std::chrono::steady_clock::now() + kAwake; std::chrono::steady_clock::now() < sleep_at;) {
        for (int i = 0; i < 16; ++i) {
          if (changed(shared_->epoch.value.load(std::memory_order_acquire))) return;
          pause_cpu();
        }
      }
    }
    shared_->epoch.sleep(changed);
  }

  std::vector<int> processors_;
  int num_available_ = 0;
  bool pin_ = false;
  std::unique_ptr<Shared> shared_;
  std::unique_ptr<ThreadTeam> caller_team_;
  std::vector<std::thread> threads_;
  bool caller_pinned_ = false;
  pthread_t caller_{};
  cpu_set_t caller_affinity_{};
};

}  // namespace

std::unique_ptr<Workers> Workers::create(int num_threads, bool pin) {
  CHECK(num_threads >= 0);
  return std::make_unique<ThreadWorkers>(num_threads, pin);
}

}  // namespace deepinfer
