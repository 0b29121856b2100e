#include "api/routes.h"

#include <algorithm>
#include <utility>

namespace deepinfer::api {
namespace {

constexpr std::pair<std::string_view, Endpoint> kPaths[] = {
    {"/chat/completions", Endpoint::kChat},
    {"/completions", Endpoint::kCompletions},
    {"/responses", Endpoint::kResponses},
    {"/responses/input_tokens", Endpoint::kInputTokens},
    {"/messages", Endpoint::kMessages},
    {"/messages/count_tokens", Endpoint::kCountTokens},
    {"/models", Endpoint::kModels},
    {"/tokenize", Endpoint::kTokenize},
    {"/detokenize", Endpoint::kDetokenize},
    {"/health", Endpoint::kHealth},
    {"/ready", Endpoint::kReady},
    {"/metrics", Endpoint::kMetrics},
    {"/openapi.json", Endpoint::kOpenApi},
};
constexpr std::string_view kElsewhere[] = {"/embeddings", "/audio", "/images", "/moderations", "/batches", "/files", "/conversations", "/responses", "/messages"};

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if ((c | 0x20) >= 'a' && (c | 0x20) <= 'f') return (c | 0x20) - 'a' + 10;
  return -1;
}

std::string percent_decoded(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && i + 2 < text.size() && hex_digit(text[i + 1]) >= 0 && hex_digit(text[i + 2]) >= 0) {
      out += static_cast<char>(hex_digit(text[i + 1]) * 16 + hex_digit(text[i + 2]));
      i += 2;
    } else {
      out += text[i];
    }
  }
  return out;
}

bool strip_prefix(std::string_view& path, std::string_view prefix) {
  if (path.substr(0, prefix.size()) != prefix || path.substr(prefix.size(), 1) != "/") return false;
  path.remove_prefix(prefix.size());
  return true;
}

// What follows /responses/: an id, and perhaps one word behind it.
Route response_route(std::string_view rest) {
  const size_t slash = rest.find('/');
  Route out{.id = percent_decoded(rest.substr(0, slash))};
  if (out.id.empty()) return {};
  if (slash == std::string_view::npos) {
    // /responses/compact is another service's.
    if (out.id == "compact") return {.known_elsewhere = true};
    out.endpoint = Endpoint::kResponse;
  } else if (rest.substr(slash) == "/cancel") {
    out.endpoint = Endpoint::kResponseCancel;
  } else if (rest.substr(slash) == "/input_items") {
    out.endpoint = Endpoint::kResponseInputItems;
  }
  return out;
}

bool under(std::string_view path, std::string_view name) { return path == name || (path.starts_with(name) && path[name.size()] == '/'); }

bool is_completion(Endpoint endpoint) { return endpoint == Endpoint::kChat || endpoint == Endpoint::kCompletions; }
bool is_messages(Endpoint endpoint) { return endpoint == Endpoint::kMessages || endpoint == Endpoint::kCountTokens; }

Route route_of_path(std::string_view path, bool beta, bool anthropic) {
  for (const auto& [name, endpoint] : kPaths) {
    if (path != name) continue;
    if (beta && !is_completion(endpoint)) break;
    if (anthropic && !is_messages(endpoint) && endpoint != Endpoint::kModels) break;
    return {.endpoint = endpoint};
  }
  if (beta) return {};
  std::string_view rest = path;
  if (strip_prefix(rest, "/models")) return {.endpoint = Endpoint::kModel, .id = percent_decoded(rest.substr(1))};
  if (anthropic) return {};
  if (strip_prefix(rest, "/responses")) {
    Route route = response_route(rest.substr(1));
    if (route.endpoint != Endpoint::kUnknown) return route;
  }
  for (const std::string_view name : kElsewhere) {
    if (under(path, name)) return {.known_elsewhere = true};
  }
  return {};
}

}  // namespace

Route find_route(std::string_view target) {
  target = target.substr(0, target.find('#'));
  const size_t question = target.find('?');
  std::string_view path = target.substr(0, question);
  const bool beta = strip_prefix(path, "/beta");
  const bool anthropic = strip_prefix(path, "/anthropic");
  strip_prefix(path, "/v1");
  if (path.size() > 1 && path.back() == '/') path.remove_suffix(1);
  Route route = route_of_path(path, beta, anthropic);
  if (question != std::string_view::npos) route.query = target.substr(question + 1);
  if (anthropic || under(path, "/messages")) route.shape = ErrorShape::kAnthropic;
  return route;
}

std::optional<std::string> query_value(std::string_view query, std::string_view name) {
  while (!query.empty()) {
    const std::string_view pair = query.substr(0, query.find('&'));
    query.remove_prefix(std::min(query.size(), pair.size() + 1));
    const size_t equals = pair.find('=');
    if (pair.substr(0, equals) != name) continue;
    return equals == std::string_view::npos ? std::string() : percent_decoded(pair.substr(equals + 1));
  }
  return std::nullopt;
}

std::string_view allowed_methods(Endpoint endpoint) {
  switch (endpoint) {
    case Endpoint::kChat:
    case Endpoint::kCompletions:
    case Endpoint::kResponses:
    case Endpoint::kResponseCancel:
    case Endpoint::kMessages:
    case Endpoint::kInputTokens:
    case Endpoint::kCountTokens:
    case Endpoint::kTokenize:
    case Endpoint::kDetokenize: return "POST";
    case Endpoint::kResponse: return "GET, DELETE";
    default: return "GET";
  }
}

bool allows(Endpoint endpoint, std::string_view method) {
  std::string_view allowed = allowed_methods(endpoint);
  if (method == "HEAD") method = "GET";
  while (!allowed.empty()) {
    const std::string_view one = allowed.substr(0, allowed.find(','));
    if (one == method) return true;
    allowed.remove_prefix(std::min(allowed.size(), one.size() + 2));
  }
  return false;
}

std::optional<recipe::Protocol> protocol_of(Endpoint endpoint) {
  switch (endpoint) {
    case Endpoint::kChat: return recipe::Protocol::kChat;
    case Endpoint::kCompletions: return recipe::Protocol::kCompletions;
    case Endpoint::kResponses: return recipe::Protocol::kResponses;
    case Endpoint::kMessages: return recipe::Protocol::kMessages;
    default: return std::nullopt;
  }
}

std::string_view endpoint_name(Endpoint endpoint) {
  switch (endpoint) {
    case Endpoint::kChat: return "chat";
    case Endpoint::kCompletions: return "completions";
    case Endpoint::kResponses:
    case Endpoint::kResponse:
    case Endpoint::kResponseCancel:
    case Endpoint::kResponseInputItems: return "responses";
    case Endpoint::kMessages: return "messages";
    case Endpoint::kInputTokens:
    case Endpoint::kCountTokens: return "count_tokens";
    case Endpoint::kModels:
    case Endpoint::kModel: return "models";
    case Endpoint::kTokenize: return "tokenize";
    case Endpoint::kDetokenize: return "detokenize";
    case Endpoint::kHealth: return "health";
    case Endpoint::kReady: return "ready";
    case Endpoint::kMetrics: return "metrics";
    case Endpoint::kOpenApi: return "openapi";
    case Endpoint::kUnknown: break;
  }
  return "other";
}

bool needs_key(Endpoint endpoint) { return endpoint != Endpoint::kHealth && endpoint != Endpoint::kReady; }

bool answers_at_once(Endpoint endpoint) {
  switch (endpoint) {
    case Endpoint::kModels:
    case Endpoint::kModel:
    case Endpoint::kHealth:
    case Endpoint::kReady:
    case Endpoint::kMetrics:
    case Endpoint::kOpenApi: return true;
    default: return false;
  }
}

}  // namespace deepinfer::api
