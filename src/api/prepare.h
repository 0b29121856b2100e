// From the body of a request to something that can be submitted, or to an answer that needs no engine. Runs on a worker: long prompts
// take time to render and tokenise. The order of checks is part of the contract: JSON, model, fields, queue, conversion, context.
#pragma once

#include <optional>
#include <string>
#include <variant>

#include "api/http_message.h"
#include "api/routes.h"
#include "api/service.h"
#include "recipe/answer.h"
#include "recipe/output.h"
#include "recipe/protocol.h"

namespace deepinfer::api {

struct Call {
  Endpoint endpoint = Endpoint::kUnknown;
  bool remove = false;    // DELETE
  std::string id, query;  // of the route
  std::string body;
  std::string tenant;
  std::string retention;  // x-deepinfer-retention
};

// What has to be known to keep a response.
struct Keep {
  std::string previous_id, input;  // as StoredResponse has them
};

struct Generation {
  Request request;
  recipe::Protocol protocol = recipe::Protocol::kChat;
  recipe::OutputOptions output;
  recipe::AnswerInfo info;
  std::optional<Keep> keep;
};

// An answer, or what is wrong, or work for the engine. Errors are worded here and shaped by the connection.
using Outcome = std::variant<Response, ApiError, Generation>;

struct Prepared {
  Outcome outcome;
  std::string model;  // that the request names, if there is such a one
};
Prepared prepare(Service& service, Call call);

// Answers of the endpoints without a body.
Response models_response(const Service& service, ErrorShape shape);
std::variant<Response, ApiError> model_response(const Service& service, const std::string& id, ErrorShape shape);

}  // namespace deepinfer::api
