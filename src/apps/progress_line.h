// How far a long command is, on stderr: a line that is written over for a person, plain lines for a log. In bytes, or in what else it counts.
#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>

namespace deepinfer::apps {

class ProgressLine {
 public:
  enum class Shown : uint8_t { kNever, kOnTerminal, kAlways };

  explicit ProgressLine(Shown shown, std::string unit = "");  // empty: bytes
  ~ProgressLine();  // takes the terminal's line away

  // position of total; total 0: not known. From any thread, as often as you like.
  void operator()(uint64_t position, uint64_t total);

 private:
  std::string amount(uint64_t count) const;

  const bool terminal_, shown_;
  const std::string unit_;
  std::mutex mu_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::chrono::steady_clock::time_point last_{};  // none yet; the first comes at once
  int percent_ = -1;                              // of the last plain line
};

}  // namespace deepinfer::apps
