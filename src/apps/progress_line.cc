#include "apps/progress_line.h"

#include <algorithm>
#include <cstdio>
#include <fmt/format.h>
#include <unistd.h>
#include <utility>

#include "base/units.h"

namespace deepinfer::apps {
namespace {

constexpr std::chrono::milliseconds kRedraw{200};
constexpr int kPlainStep = 10;  // percent

}  // namespace

ProgressLine::ProgressLine(Shown shown, std::string unit)
    : terminal_(::isatty(STDERR_FILENO) == 1), shown_(shown == Shown::kAlways || (shown == Shown::kOnTerminal && terminal_)), unit_(std::move(unit)) {}

std::string ProgressLine::amount(uint64_t count) const { return unit_.empty() ? format_size(count) : fmt::format("{} {}", count, unit_); }

ProgressLine::~ProgressLine() {
  if (terminal_ && last_ != std::chrono::steady_clock::time_point{}) fmt::print(stderr, "\r\x1b[K");
}

void ProgressLine::operator()(uint64_t position, uint64_t total) {
  if (!shown_) return;
  const std::lock_guard lock(mu_);
  const double done = total == 0 ? 1 : std::min(1.0, static_cast<double>(position) / static_cast<double>(total));
  if (!terminal_) {
    const int percent = static_cast<int>(done * 100);
    if (percent == percent_ || (percent < percent_ + kPlainStep && percent < 100)) return;
    percent_ = percent;
    fmt::print(stderr, "{} % of {}\n", percent, amount(total));
    return;
  }
  const auto now = std::chrono::steady_clock::now();
  if (now - last_ < kRedraw) return;
  last_ = now;
  const double seconds = std::chrono::duration<double>(now - start_).count(), rate = static_cast<double>(position) / seconds;
  std::string line = fmt::format("{} done, {}/s", amount(position), amount(static_cast<uint64_t>(rate)));
  if (total > 0) {
    const int filled = static_cast<int>(done * 24);
    line = fmt::format("[{:#<{}}{:.<{}}] {:3.0f} %, {}, {:.0f} s left", "", filled, "", 24 - filled, done * 100, line,
                       rate > 0 ? static_cast<double>(total - std::min(position, total)) / rate : 0);
  }
  fmt::print(stderr, "\r{}\x1b[K", line);
}

}  // namespace deepinfer::apps
