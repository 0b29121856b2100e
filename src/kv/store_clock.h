// kv/store_clock.h: what time it is for retention. The wall clock says when the store opens; from then on time advances with the clock that
// counts since boot (suspended hours included), so a wall clock that is set while the server runs neither wipes blocks nor brings
// expired ones back. Over a restart a mark on disk keeps time from going backwards. A wall clock that is far ahead of the mark may be
// an honest pause or a mistake: expired blocks are then not served, but their files stay, and the mark does not move, for kGraceSeconds; and if the wall
// clock is set back meanwhile it was a mistake, and they stay until the next start, which has the right time from the beginning.
// One owner; not thread-safe.
#pragma once

#include <algorithm>
#include <cstdint>

namespace deepinfer::kv {

// Where the two times come from; tests bring their own.
class TimeSource {
 public:
  virtual ~TimeSource() = default;
  virtual int64_t wall_s() const = 0;   // Unix time
  virtual int64_t boot_ns() const = 0;  // since boot
};

class SystemTime final : public TimeSource {
 public:
  int64_t wall_s() const override;
  int64_t boot_ns() const override;
};

class StoreClock {
 public:
  static constexpr int64_t kGraceSeconds = 3600;     // a person notices a wrong clock in an hour
  static constexpr int64_t kHonestPauseSeconds = 86'400;
  static constexpr int64_t kSlewSeconds = 60;        // what NTP corrects along the way

  // mark_s: now_s() as it was last written down; 0: never.
  StoreClock(const TimeSource& source, int64_t mark_s)
      : source_(&source), start_boot_ns_(source.boot_ns()), base_boot_ns_(start_boot_ns_), base_s_(std::max(source.wall_s(), mark_s)),
        in_doubt_(mark_s != 0 && base_s_ - mark_s > kHonestPauseSeconds) {}

  int64_t now_s() const { return base_s_ + (source_->boot_ns() - base_boot_ns_) / 1'000'000'000; }
  // True while the start looked like a jump: nothing is deleted for its age, and no mark is written.
  bool in_doubt() const { return in_doubt_ && (set_back_ || source_->boot_ns() - start_boot_ns_ < kGraceSeconds * 1'000'000'000); }

  // Follows the wall clock where it moved a little; returns true when it has jumped since the last call (which changes nothing).
  bool check() {
    const int64_t difference = source_->wall_s() - now_s();
    const bool far = difference > kSlewSeconds || difference < -kSlewSeconds;
    if (!far && difference > 0) {
      base_s_ += difference;  // never backwards: what has expired stays expired
    }
    const bool jumped = far && !was_far_;
    was_far_ = far;
    set_back_ = in_doubt() && far && difference < 0;
    return jumped;
  }

 private:
  const TimeSource* source_;
  int64_t start_boot_ns_, base_boot_ns_, base_s_;
  bool in_doubt_, was_far_ = false, set_back_ = false;
};

}  // namespace deepinfer::kv
