// One line a request: JSON for machines, aligned words for a terminal. Prompts are never in it unless the operator asks.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "core/inference.h"

namespace deepinfer::api {

struct RequestRecord {
  int64_t unix_ms = 0;           // when it arrived
  std::string id;                // x-request-id
  std::string_view endpoint;     // "chat", …
  std::string model;
  int status = 0;                // 499: the client went away
  std::string finish;            // of the first choice; empty: no answer
  std::string error;             // message of an error that the client was told
  bool stream = false;
  Usage usage;
  std::optional<double> ttft_ms, tpot_ms;
  double e2e_ms = 0;
  std::string body;              // the request as received, only if asked
};

// That a tenant's prompts are found in cache less than they used to be (HitRates).
struct HitRateFall {
  int64_t unix_ms = 0;
  std::string tenant;  // as the operator named it
  double usual = 0, late = 0;  // 0 to 1
};

std::string json_line(const RequestRecord& record);
std::string human_line(const RequestRecord& record);
std::string json_line(const HitRateFall& fall);
std::string human_line(const HitRateFall& fall);

// Where lines go. Called from every io thread; must be thread-safe and take whole lines.
struct RequestLog {
  bool human = false;
  bool with_bodies = false;
  std::function<void(std::string_view)> write;  // empty: no log

  template <class Record>
  void add(const Record& record) const {
    if (write) write(human ? human_line(record) : json_line(record));
  }
};

// To a file descriptor, one write() a line; human lines if it is a terminal.
RequestLog log_to_fd(int fd);

}  // namespace deepinfer::api
