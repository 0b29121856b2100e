// Which endpoint a request target means. Every path of the API also works without /v1; the hosted service's /beta prefix works for
// the two completion endpoints.
#pragma once

#include <string>
#include <string_view>

namespace deepinfer::api {

enum class Endpoint : uint8_t {
  kChat,
  kCompletions,
  kModels,
  kModel,
  kTokenize,
  kDetokenize,
  kHealth,
  kReady,
  kMetrics,
  kUnknown,
};

struct Route {
  Endpoint endpoint = Endpoint::kUnknown;
  std::string model_id;  // kModel, percent-decoded
  bool known_elsewhere = false;  // kUnknown: an endpoint of the hosted API that this server does not have
};

Route find_route(std::string_view target);
// "GET" or "POST".
std::string_view allowed_method(Endpoint endpoint);
// For logs and metrics.
std::string_view endpoint_name(Endpoint endpoint);
// Probes carry no keys.
bool needs_key(Endpoint endpoint);

}  // namespace deepinfer::api
