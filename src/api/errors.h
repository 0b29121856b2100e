// What a client is told when something is wrong: the HTTP status, and a body in the shape that the clients of a protocol read.
// The only place that turns Codes into statuses.
#pragma once

#include <boost/json/object.hpp>
#include <cstdint>
#include <optional>
#include <string>

#include "base/result.h"
#include "recipe/fields.h"

namespace deepinfer::api {

struct ApiError {
  int status = 500;
  std::string type = "internal_error", code = "internal_error";
  std::string message;
  std::string param;                            // empty: null
  std::optional<int64_t> retry_after_s;         // 429 and 503: tells clients when
  bool may_pass = false;                        // 500: another try may go better
  std::optional<int64_t> num_prompt_tokens, num_tokens, max_context;  // context_length_exceeded; num_tokens: prompt and answer
};

// Clients of Messages read {"type":"error","error":{"type","message"},"request_id"}; all others {"error":{"message","type","param","code"}}.
enum class ErrorShape : uint8_t { kOpenAi, kAnthropic };

boost::json::object error_json(const ApiError& error, ErrorShape shape, std::string_view request_id);
// The status with which a shape says this; they differ for an overloaded server.
int error_status(const ApiError& error, ErrorShape shape);

ApiError bad_request(std::string message, std::string param = "");
ApiError bad_field(const recipe::FieldProblem& problem);
ApiError not_found(std::string message);
ApiError queue_full(int64_t retry_after_s);
ApiError draining();
ApiError overloaded(std::string message);
ApiError internal_error(std::string message);
ApiError missing_key(bool one_was_sent);

struct LengthProblem {
  int64_t num_prompt_tokens, max_tokens, max_context;  // max_tokens 0: none was asked for
  std::string_view param;                              // "messages", "input" or "prompt"
};
ApiError context_exceeded(const LengthProblem& problem);

// An error from below the waist.
ApiError from_error(const Error& error, double estimated_queue_seconds);
int64_t retry_after_seconds(double estimated_queue_seconds);  // at least 1

}  // namespace deepinfer::api
