// From the body of a request to something that can be submitted, or to an answer that needs no engine. Runs on a worker: long prompts
// take time to render and tokenise. The order of checks is part of the contract: JSON, model, fields, queue, conversion, context.
#pragma once

#include <string>
#include <variant>

#include "api/http_message.h"
#include "api/routes.h"
#include "api/service.h"
#include "recipe/answer.h"
#include "recipe/output.h"

namespace deepinfer::api {

struct Call {
  Endpoint endpoint = Endpoint::kUnknown;
  std::string body;
  std::string tenant;
};

struct Generation {
  Request request;
  recipe::OutputOptions output;
  recipe::AnswerInfo info;
  bool chat = false;
};

using Outcome = std::variant<Response, Generation>;

Outcome prepare(Service& service, Call call);

// Answers of the endpoints without a body.
Response models_response(const Service& service);
Response model_response(const Service& service, const std::string& id);

}  // namespace deepinfer::api
