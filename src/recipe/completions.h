// Text completions (`/v1/completions`): a prompt as text or as token ids, without conversation or template.
#pragma once

#include <boost/json/object.hpp>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "recipe/generation_options.h"

namespace deepinfer::recipe {

struct CompletionRequest {
  std::variant<std::string, std::vector<TokenId>> prompt;
  bool parse_special = false;  // extension: spellings of control tokens in the prompt become control tokens
  std::optional<std::string> suffix;  // not empty, and the prompt is a text
  GenerationOptions options;
};

// nullopt: problems.any(). Refused: echo, best_of above n, more than one prompt, a suffix to token ids.
std::optional<CompletionRequest> parse_completion_request(const boost::json::object& body, const OptionsContext& context, Problems& problems);

}  // namespace deepinfer::recipe
