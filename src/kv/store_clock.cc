#include "kv/store_clock.h"

#include <ctime>

namespace deepinfer::kv {
namespace {

timespec read(clockid_t id) {
  timespec now{};
  ::clock_gettime(id, &now);
  return now;
}

}  // namespace

int64_t SystemTime::wall_s() const { return read(CLOCK_REALTIME).tv_sec; }

int64_t SystemTime::boot_ns() const {
  const timespec now = read(CLOCK_BOOTTIME);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

}  // namespace deepinfer::kv
