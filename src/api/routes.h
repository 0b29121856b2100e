// Which endpoint a request target means. Every path of the API also works without /v1; the hosted services' prefixes work for theirs:
// /beta for the two completion endpoints, /anthropic for those of Messages and the models.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "api/errors.h"
#include "recipe/protocol.h"

namespace deepinfer::api {

enum class Endpoint : uint8_t {
  kChat,
  kCompletions,
  kResponses,
  kResponse,            // /responses/{id}
  kResponseCancel,      // /responses/{id}/cancel
  kResponseInputItems,  // /responses/{id}/input_items
  kInputTokens,         // /responses/input_tokens
  kMessages,
  kCountTokens,
  kModels,
  kModel,               // /models/{id}
  kTokenize,
  kDetokenize,
  kHealth,
  kReady,
  kMetrics,
  kOpenApi,
  kUnknown,
};

struct Route {
  Endpoint endpoint = Endpoint::kUnknown;
  std::string id;                // of a model or response, percent-decoded
  std::string_view query;        // behind the ?; a part of the target
  bool known_elsewhere = false;  // kUnknown: an endpoint of the hosted APIs that this server does not have
  ErrorShape shape = ErrorShape::kOpenAi;
};

Route find_route(std::string_view target);
// A parameter of a query, percent-decoded; nullopt: it is not there.
std::optional<std::string> query_value(std::string_view query, std::string_view name);

// As the Allow header has it: "GET", "POST", "GET, DELETE". HEAD goes wherever GET goes.
std::string_view allowed_methods(Endpoint endpoint);
bool allows(Endpoint endpoint, std::string_view method);
// The protocol of an endpoint that generates.
std::optional<recipe::Protocol> protocol_of(Endpoint endpoint);
// For logs and metrics.
std::string_view endpoint_name(Endpoint endpoint);
// Probes carry no keys.
bool needs_key(Endpoint endpoint);
// Answered at once, on the io thread: nothing is parsed, and no disk is asked.
bool answers_at_once(Endpoint endpoint);

}  // namespace deepinfer::api
