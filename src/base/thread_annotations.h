// GUARDED_BY and its kin: which mutex guards which member, checked by clang's thread-safety analysis in the lint build.
#pragma once

#include <mutex>

#if defined(__clang__)
#define DI_TSA(x) __attribute__((x))
#else
#define DI_TSA(x)
#endif

#define GUARDED_BY(mu) DI_TSA(guarded_by(mu))
#define REQUIRES(mu) DI_TSA(requires_capability(mu))

namespace deepinfer {

// std::mutex with the annotations that the analysis needs (libstdc++ has none).
class DI_TSA(capability("mutex")) Mutex {
 public:
  void lock() DI_TSA(acquire_capability()) { mu_.lock(); }
  void unlock() DI_TSA(release_capability()) { mu_.unlock(); }
  std::mutex& native() { return mu_; }

 private:
  std::mutex mu_;
};

class DI_TSA(scoped_lockable) MutexLock {
 public:
  explicit MutexLock(Mutex& mu) DI_TSA(acquire_capability(mu)) : mu_(mu) { mu_.lock(); }
  ~MutexLock() DI_TSA(release_capability()) { mu_.unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mu_;
};

}  // namespace deepinfer
