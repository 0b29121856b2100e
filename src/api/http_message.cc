#include "api/http_message.h"

#include <fmt/format.h>

#include <boost/beast/http/status.hpp>
#include <boost/json/serialize.hpp>
#include <chrono>
#include <ctime>

namespace deepinfer::api {
namespace {

std::tm utc(int64_t unix_s) {
  std::tm out{};
  const std::time_t time = unix_s;
  gmtime_r(&time, &out);
  return out;
}

int64_t unix_now() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string head(const Response& response, bool keep_alive, int version) {
  const auto reason = boost::beast::http::obsolete_reason(static_cast<boost::beast::http::status>(response.status));
  std::string out = fmt::format("HTTP/1.1 {} {}\r\nServer: deepinfer\r\nDate: {}\r\n", response.status,
                                std::string_view(reason.data(), reason.size()), http_date(unix_now()));
  if (!response.content_type.empty()) out += fmt::format("Content-Type: {}\r\n", response.content_type);
  for (const auto& [name, value] : response.headers) out += fmt::format("{}: {}\r\n", name, value);
  if (!keep_alive) {
    out += "Connection: close\r\n";
  } else if (version == 10) {
    out += "Connection: keep-alive\r\n";
  }
  return out;
}

}  // namespace

std::string http_date(int64_t unix_s) {
  constexpr std::string_view kDays[] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
  constexpr std::string_view kMonths[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  const std::tm t = utc(unix_s);
  return fmt::format("{}, {:02} {} {} {:02}:{:02}:{:02} GMT", kDays[t.tm_wday], t.tm_mday, kMonths[t.tm_mon], t.tm_year + 1900,
                     t.tm_hour, t.tm_min, t.tm_sec);
}

std::string iso_time(int64_t unix_ms) {
  const std::tm t = utc(unix_ms / 1000);
  return fmt::format("{}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z", t.tm_year + 1900, t.tm_mon + 1, t.tm_mday, t.tm_hour, t.tm_min, t.tm_sec,
                     unix_ms % 1000);
}

Response error_response(const ApiError& error, ErrorShape shape, std::string_view request_id) {
  Response out{.status = error_status(error, shape), .body = boost::json::serialize(error_json(error, shape, request_id)), .error = error.message};
  if (error.retry_after_s) out.headers.emplace_back("Retry-After", std::to_string(*error.retry_after_s));
  // Client libraries retry every 5xx; most faults would only repeat.
  if (error.status == 500 && !error.may_pass) out.headers.emplace_back("x-should-retry", "false");
  if (error.status == 401) out.headers.emplace_back("WWW-Authenticate", "Bearer");
  return out;
}

std::string format_response(const Response& response, const Framing& framing) {
  std::string out = head(response, framing.keep_alive, framing.version);
  if (response.status != 204) out += fmt::format("Content-Length: {}\r\n", response.body.size());
  out += "\r\n";
  if (!framing.head_only) out += response.body;
  return out;
}

std::string format_stream_head(const Response& response, const Framing& framing) {
  std::string out = head(response, framing.keep_alive && framing.version == 11, framing.version);
  if (framing.version == 11) out += "Transfer-Encoding: chunked\r\n";
  out += "\r\n";
  return out;
}

void append_chunk(std::string_view data, const Framing& framing, std::string& out) {
  if (data.empty()) return;  // an empty chunk would end the stream
  if (framing.version == 10) {
    out += data;
  } else {
    out += fmt::format("{:x}\r\n{}\r\n", data.size(), data);
  }
}

void append_last_chunk(const Framing& framing, std::string& out) {
  if (framing.version == 11) out += "0\r\n\r\n";
}

}  // namespace deepinfer::api
