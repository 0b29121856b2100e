#include "api/errors.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "recipe/answer.h"

namespace deepinfer::api {
namespace {

constexpr int64_t kMaxRetryAfterSeconds = 3600;
constexpr int64_t kDrainingRetrySeconds = 5;  // another instance, or this one restarted
constexpr std::string_view kContextExceeded = "context_length_exceeded";

std::string sentence(std::string text) {
  if (!text.empty() && text.back() != '.') text += '.';
  return text;
}

ApiError make(int status, std::string_view type, std::string_view code, std::string message) {
  ApiError error;
  error.status = status;
  error.type = type;
  error.code = code;
  error.message = sentence(std::move(message));
  return error;
}

std::string_view anthropic_type(const ApiError& error) {
  switch (error.status) {
    case 401: return "authentication_error";
    case 402: return "billing_error";
    case 403: return "permission_error";
    case 404: return "not_found_error";
    case 413: return "request_too_large";
    case 429: return "rate_limit_error";
    case 503: return "overloaded_error";
    default: return error.status >= 500 ? "api_error" : "invalid_request_error";
  }
}

// Clients of Messages look for this beginning to know that they have to shorten the conversation.
std::string anthropic_message(const ApiError& error) {
  if (error.code != kContextExceeded) return error.message;
  return fmt::format("prompt is too long: {} tokens > {} maximum. {}", error.num_tokens.value_or(0), error.max_context.value_or(0), error.message);
}

boost::json::object anthropic_json(const ApiError& error, std::string_view request_id) {
  boost::json::object out = recipe::messages_error_json(anthropic_type(error), anthropic_message(error));
  // By this code clients know that they have to go on without one.
  if (error.param == "thread") out["error"].get_object()["details"] = boost::json::object{{"error_code", "thread_unsupported_request"}};
  out["request_id"] = request_id;
  return out;
}

}  // namespace

int error_status(const ApiError& error, ErrorShape shape) {
  return shape == ErrorShape::kAnthropic && error.status == 503 ? 529 : error.status;
}

boost::json::object error_json(const ApiError& error, ErrorShape shape, std::string_view request_id) {
  if (shape == ErrorShape::kAnthropic) return anthropic_json(error, request_id);
  boost::json::object out = recipe::openai_error_json(error.type, error.code, error.message, error.param);
  boost::json::object& inner = out["error"].get_object();
  if (error.num_prompt_tokens) inner["n_prompt_tokens"] = *error.num_prompt_tokens;
  if (error.max_context) inner["n_ctx"] = *error.max_context;
  return out;
}

ApiError bad_request(std::string message, std::string param) {
  ApiError error = make(400, "invalid_request_error", "invalid_request_error", std::move(message));
  error.param = std::move(param);
  return error;
}

ApiError bad_field(const recipe::FieldProblem& problem) { return bad_request(problem.message, problem.param); }

ApiError not_found(std::string message) { return make(404, "invalid_request_error", "not_found", std::move(message)); }

ApiError queue_full(int64_t retry_after_s) {
  ApiError error = make(429, "rate_limit_error", "rate_limit_exceeded", "the queue is full; try again later");
  error.retry_after_s = retry_after_s;
  return error;
}

ApiError overloaded(std::string message) {
  ApiError error = make(503, "server_error", "overloaded", std::move(message));
  error.retry_after_s = 1;
  return error;
}

ApiError draining() {
  ApiError error = overloaded("the server is shutting down");
  error.retry_after_s = kDrainingRetrySeconds;
  return error;
}

ApiError internal_error(std::string message) { return make(500, "internal_error", "internal_error", std::move(message)); }

ApiError missing_key(bool one_was_sent) {
  return make(401, "authentication_error", "invalid_api_key",
              one_was_sent ? "the API key is not valid" : "an API key is needed: send Authorization: Bearer KEY or x-api-key: KEY");
}

ApiError context_exceeded(const LengthProblem& problem) {
  // Clients read the numbers out of this text, in this order: the limit, the sum, its two parts.
  ApiError error = make(400, "invalid_request_error", kContextExceeded,
                        fmt::format("This model's maximum context length is {} tokens. However, you requested {} tokens ({} in the {}, {} in the "
                                    "completion). Please reduce the length of the {} or completion.",
                                    problem.max_context, problem.num_prompt_tokens + problem.max_tokens, problem.num_prompt_tokens,
                                    problem.param, problem.max_tokens, problem.param));
  error.param = problem.param;
  error.num_prompt_tokens = problem.num_prompt_tokens;
  error.num_tokens = problem.num_prompt_tokens + problem.max_tokens;
  error.max_context = problem.max_context;
  return error;
}

int64_t retry_after_seconds(double estimated_queue_seconds) {
  if (!(estimated_queue_seconds > 1)) return 1;  // also for NaN
  return std::min(kMaxRetryAfterSeconds, static_cast<int64_t>(std::ceil(std::min(estimated_queue_seconds, 1e9))));
}

ApiError from_error(const Error& error, double estimated_queue_seconds) {
  switch (error.code) {
    case Code::kInvalidArgument:
    case Code::kUnsupported: return bad_request(error.message);
    case Code::kNotFound: return not_found(error.message);
    case Code::kResourceExhausted: {
      ApiError out = queue_full(retry_after_seconds(estimated_queue_seconds));
      return out;
    }
    case Code::kUnavailable: return draining();
    case Code::kCancelled: return overloaded("the request was cancelled by the server");
    case Code::kDeadlineExceeded: return overloaded(error.message);
    case Code::kCorruption:
    case Code::kIo:
    case Code::kInternal: break;
  }
  return internal_error(error.message);
}

}  // namespace deepinfer::api
