// The request protocols, and the one form that a request of any of them becomes. What is behind this line knows no protocol: a server
// renders `prompt`, submits it with `options`, and gives the output events to an Answer of the same protocol (answer.h).
#pragma once

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <functional>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "recipe/conversation.h"
#include "recipe/generation_options.h"

namespace deepinfer::recipe {

enum class Protocol : uint8_t {
  kChat,         // OpenAI Chat Completions
  kCompletions,  // OpenAI text completions
  kResponses,    // OpenAI Responses
  kMessages,     // Anthropic Messages
};

// A prompt without conversation or template.
struct TextPrompt {
  std::variant<std::string, std::vector<TokenId>> text;
  bool parse_special = false;         // extension: spellings of control tokens in the text become control tokens
  std::optional<std::string> suffix;  // what comes after the answer: fill in the middle
};

// How a tool that the model calls by `name` is called back to the client. Responses has tools that a model sees under another name.
struct ToolNames {
  std::string name;         // as in the prompt
  std::string client_name;  // as the client declared it
  std::string name_space;   // empty: none
  bool custom = false;      // takes text, not JSON
};

struct ParsedRequest {
  std::variant<Conversation, TextPrompt> prompt;
  GenerationOptions options;
  bool logprobs = false;

  // Responses
  boost::json::object echo;               // members of the answer that repeat the request
  std::vector<ToolNames> tool_names;      // of tools whose names differ from what the client calls them, and custom ones
  boost::json::array items;               // `input` of this request alone, as items
  std::optional<std::string> previous_id; // previous_response_id
  bool store = true;                      // the client lets the answer be kept, if the server does
  bool seal_reasoning = false;            // the client wants encrypted_content
};

// What a parser needs to know of the server. Callbacks may be empty: then there is no such thing here.
struct RequestContext {
  OptionsContext options;
  // Responses: the items that a response was made from and those that it gave, oldest first; nullopt: there is none of this id.
  std::function<std::optional<boost::json::array>(const std::string& id)> stored_items;
  // Responses: one item of a stored response, by the item's id.
  std::function<std::optional<boost::json::value>(const std::string& id)> stored_item;
  // Responses: the reasoning in an encrypted_content that this server made; nullopt: it did not.
  std::function<std::optional<std::string>(std::string_view sealed)> open_reasoning;
};

// nullopt: problems.any(). The field `model` is read by the server, before this.
std::optional<ParsedRequest> parse_request(Protocol protocol, const boost::json::object& body, const RequestContext& context, Problems& problems);

std::optional<ParsedRequest> parse_responses_request(const boost::json::object& body, const RequestContext& context, Problems& problems);
std::optional<ParsedRequest> parse_messages_request(const boost::json::object& body, const RequestContext& context, Problems& problems);

}  // namespace deepinfer::recipe
