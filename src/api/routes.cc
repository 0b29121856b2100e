#include "api/routes.h"

#include <array>
#include <optional>
#include <utility>

namespace deepinfer::api {
namespace {

constexpr std::array<std::pair<std::string_view, Endpoint>, 8> kPaths = {{
    {"/chat/completions", Endpoint::kChat},
    {"/completions", Endpoint::kCompletions},
    {"/models", Endpoint::kModels},
    {"/tokenize", Endpoint::kTokenize},
    {"/detokenize", Endpoint::kDetokenize},
    {"/health", Endpoint::kHealth},
    {"/ready", Endpoint::kReady},
    {"/metrics", Endpoint::kMetrics},
}};
constexpr std::array<std::string_view, 8> kElsewhere = {"/embeddings", "/audio", "/images", "/moderations",
                                                        "/batches", "/files", "/responses", "/messages"};

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

}  // namespace

Route find_route(std::string_view target) {
  std::string_view path = target.substr(0, target.find_first_of("?#"));
  const bool beta = strip_prefix(path, "/beta");
  strip_prefix(path, "/v1");
  if (path.size() > 1 && path.back() == '/') path.remove_suffix(1);
  for (const auto& [name, endpoint] : kPaths) {
    if (path != name) continue;
    if (beta && endpoint != Endpoint::kChat && endpoint != Endpoint::kCompletions) break;
    return {.endpoint = endpoint};
  }
  if (beta) return {};
  if (strip_prefix(path, "/models")) return {.endpoint = Endpoint::kModel, .model_id = percent_decoded(path.substr(1))};
  for (const std::string_view name : kElsewhere) {
    if (path == name || (path.substr(0, name.size()) == name && path[name.size()] == '/')) return {.known_elsewhere = true};
  }
  return {};
}

std::string_view allowed_method(Endpoint endpoint) {
  switch (endpoint) {
    case Endpoint::kChat:
    case Endpoint::kCompletions:
    case Endpoint::kTokenize:
    case Endpoint::kDetokenize: return "POST";
    default: return "GET";
  }
}

std::string_view endpoint_name(Endpoint endpoint) {
  switch (endpoint) {
    case Endpoint::kChat: return "chat";
    case Endpoint::kCompletions: return "completions";
    case Endpoint::kModels:
    case Endpoint::kModel: return "models";
    case Endpoint::kTokenize: return "tokenize";
    case Endpoint::kDetokenize: return "detokenize";
    case Endpoint::kHealth: return "health";
    case Endpoint::kReady: return "ready";
    case Endpoint::kMetrics: return "metrics";
    case Endpoint::kUnknown: break;
  }
  return "other";
}

bool needs_key(Endpoint endpoint) { return endpoint != Endpoint::kHealth && endpoint != Endpoint::kReady; }

}  // namespace deepinfer::api
