#include "api/request_log.h"

#include <fmt/format.h>
#include <unistd.h>

#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>
#include <cmath>

#include "api/http_message.h"

namespace deepinfer::api {
namespace {

double rounded(double x) { return std::round(x * 100) / 100; }

}  // namespace

std::string json_line(const RequestRecord& record) {
  boost::json::object out;
  out["time"] = iso_time(record.unix_ms);
  out["id"] = record.id;
  out["endpoint"] = record.endpoint;
  out["model"] = record.model;
  out["status"] = record.status;
  if (!record.finish.empty()) out["finish"] = record.finish;
  if (!record.error.empty()) out["error"] = record.error;
  if (record.stream) out["stream"] = true;
  out["prompt_tokens"] = record.usage.prompt_tokens;
  out["cached_tokens"] = record.usage.cached_tokens;
  out["completion_tokens"] = record.usage.completion_tokens;
  if (record.ttft_ms) out["ttft_ms"] = rounded(*record.ttft_ms);
  if (record.tpot_ms) out["tpot_ms"] = rounded(*record.tpot_ms);
  out["e2e_ms"] = rounded(record.e2e_ms);
  if (!record.body.empty()) out["request"] = record.body;
  return boost::json::serialize(out) + "\n";
}

std::string human_line(const RequestRecord& record) {
  std::string out = fmt::format("{} {:<11} {}", iso_time(record.unix_ms).substr(11, 8), record.endpoint, record.status);
  if (!record.finish.empty()) {
    out += fmt::format(" {:<6} {} tokens in ({} cached), {} out", record.finish, record.usage.prompt_tokens, record.usage.cached_tokens,
                       record.usage.completion_tokens);
  }
  if (record.ttft_ms) out += fmt::format(", first after {:.0f} ms", *record.ttft_ms);
  if (record.tpot_ms && *record.tpot_ms > 0) out += fmt::format(", {:.1f} tokens/s", 1000 / *record.tpot_ms);
  out += fmt::format(", {:.0f} ms in all", record.e2e_ms);
  if (!record.error.empty()) out += ": " + record.error;
  for (char& c : out) {
    if (static_cast<unsigned char>(c) < ' ' || c == 0x7f) c = ' ';  // a client's text must not move the cursor
  }
  if (!record.body.empty()) out += "\n  " + boost::json::serialize(boost::json::value(record.body));
  return out + "\n";
}

std::string json_line(const HitRateFall& fall) {
  boost::json::object out;
  out["time"] = iso_time(fall.unix_ms);
  out["event"] = "hit_rate_fell";
  out["tenant"] = fall.tenant;
  out["usual_hit_rate"] = rounded(fall.usual);
  out["hit_rate"] = rounded(fall.late);
  return boost::json::serialize(out) + "\n";
}

std::string human_line(const HitRateFall& fall) {
  return fmt::format("{} prompts of tenant {} are found in cache to {:.0f} %, usually to {:.0f} %: something at their beginning has changed\n",
                     iso_time(fall.unix_ms).substr(11, 8), fall.tenant, fall.late * 100, fall.usual * 100);
}

RequestLog log_to_fd(int fd) {
  return {.human = isatty(fd) == 1, .write = [fd](std::string_view line) {
            // A log that cannot be written has nobody to be told.
            [[maybe_unused]] const ssize_t written = ::write(fd, line.data(), line.size());
          }};
}

}  // namespace deepinfer::api
