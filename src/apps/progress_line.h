// How far a long command is, on stderr: a line that is written over for a person, plain lines for a log.
#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>

namespace deepinfer::apps {

class ProgressLine {
 public:
  enum class Shown : uint8_t { kNever, kOnTerminal, kAlways };

  explicit ProgressLine(Shown shown);
  ~ProgressLine();  // takes the terminal's line away

  // position of total bytes; total 0: not known. From any thread, as often as you like.
  void operator()(uint64_t position, uint64_t total);

 private:
  const bool terminal_, shown_;
  std::mutex mu_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::chrono::steady_clock::time_point last_{};  // none yet; the first comes at once
  int percent_ = -1;                              // of the last plain line
};

}  // namespace deepinfer::apps
