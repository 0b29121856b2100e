// Bytes of HTTP/1.1 answers: heads, chunks, whole responses. Requests are parsed by Beast; answers are few and simple enough to be
// written here, as one buffer and thus one system call.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "api/errors.h"

namespace deepinfer::api {

using Headers = std::vector<std::pair<std::string, std::string>>;

struct Response {
  int status = 200;
  std::string content_type = "application/json";
  std::string body;
  Headers headers;     // besides those that every answer has
  bool close = false;  // end the connection after this answer
  std::string error;   // not sent: what the log says went wrong
};

// request_id: repeated in the bodies of the shape that has one.
Response error_response(const ApiError& error, ErrorShape shape = ErrorShape::kOpenAi, std::string_view request_id = "");

// How the answer is framed, which depends on the request it answers.
struct Framing {
  int version = 11;         // of the request: 10 or 11
  bool keep_alive = true;
  bool head_only = false;   // HEAD: the body is not sent
};

// The whole answer.
std::string format_response(const Response& response, const Framing& framing);
// The head of a stream of unknown length: chunked for HTTP/1.1, ended by closing for HTTP/1.0.
std::string format_stream_head(const Response& response, const Framing& framing);
// Appends `data` as one chunk (or as it is, for HTTP/1.0); the last chunk ends the stream.
void append_chunk(std::string_view data, const Framing& framing, std::string& out);
void append_last_chunk(const Framing& framing, std::string& out);

// "Sun, 06 Nov 1994 08:49:37 GMT".
std::string http_date(int64_t unix_s);
// "2026-01-31T08:49:37.123Z".
std::string iso_time(int64_t unix_ms);

}  // namespace deepinfer::api
