// What is kept of requests of which only lengths are known: sums, however many there are. Nothing in them depends on the order, so
// that logs of several machines are joined by adding.
#pragma once

#include <boost/json/object.hpp>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "trace/log_record.h"

namespace deepinfer::trace {

// Token counts of one model's requests.
struct UsageSums {
  int64_t num_requests = 0, num_with_input = 0, num_with_cached = 0, num_with_output = 0;  // with_…: whose log says it
  int64_t counted = 0;            // input as counted here, of all
  int64_t counted_of_logged = 0;  // of those whose log says it too
  int64_t input = 0, cached = 0, written = 0, written_1h = 0, output = 0;  // as logged; input counts those between too

  void add(int64_t counted_input, const LoggedUsage& usage);
  void append(const UsageSums& other);
};

// Tokens over time in at most kMaxBuckets buckets. Their width is the least power of two (µs) with which that many reach from the first
// time to the last, so it follows from the times alone.
class TimeBuckets {
 public:
  static constexpr int64_t kMaxBuckets = 48;

  void add(int64_t time_us, int64_t tokens);  // time_us: 0 or more
  void append(const TimeBuckets& other);

  bool empty() const { return tokens_.empty(); }
  int64_t first_us() const { return first_us_; }
  int64_t last_us() const { return last_us_; }
  int64_t width_us() const { return int64_t{1} << shift_; }
  const std::map<int64_t, int64_t>& tokens() const { return tokens_; }  // by time / width_us

  boost::json::object encode() const;
  static std::optional<TimeBuckets> decode(const boost::json::value& from);

 private:
  void widen(int shift);

  int shift_ = 0;
  int64_t first_us_ = 0, last_us_ = 0;
  std::map<int64_t, int64_t> tokens_;
};

class LengthLog {
 public:
  // usage.input is known.
  void add(const std::string& model, std::optional<int64_t> time_us, const LoggedUsage& usage);
  void append(const LengthLog& other);

  int64_t num_requests() const;
  UsageSums all() const;
  const std::map<std::string, UsageSums>& by_model() const { return by_model_; }
  // Clocks if there are any; else times since the beginning of a trace.
  const TimeBuckets& times() const { return clock_.empty() ? relative_ : clock_; }
  int64_t num_wrong_clock() const { return num_impossible_ + (clock_.empty() ? 0 : num_relative_); }
  int64_t num_without_time() const { return num_without_time_; }

  // For shards of a report, and back. Errors: nullopt (damaged).
  boost::json::object encode() const;
  static std::optional<LengthLog> decode(const boost::json::value& from);

 private:
  std::map<std::string, UsageSums> by_model_;
  TimeBuckets clock_, relative_;
  int64_t num_relative_ = 0, num_impossible_ = 0, num_without_time_ = 0;
};

}  // namespace deepinfer::trace
