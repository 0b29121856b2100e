#include "recipe/protocol.h"

#include "recipe/chat_completions.h"
#include "recipe/completions.h"
#include "recipe/sampling_rules.h"

namespace deepinfer::recipe {
namespace {

std::optional<ParsedRequest> parse_chat(const boost::json::object& body, const RequestContext& context, Problems& problems) {
  std::optional<ChatRequest> chat = parse_chat_request(body, context.options, problems);
  if (!chat) return std::nullopt;
  return ParsedRequest{.prompt = std::move(chat->conversation), .options = std::move(chat->options)};
}

std::optional<ParsedRequest> parse_completion(const boost::json::object& body, const RequestContext& context, Problems& problems) {
  std::optional<CompletionRequest> request = parse_completion_request(body, context.options, problems);
  if (!request) return std::nullopt;
  return ParsedRequest{.prompt = TextPrompt{.text = std::move(request->prompt), .parse_special = request->parse_special, .suffix = std::move(request->suffix)},
                       .options = std::move(request->options)};
}

std::optional<ParsedRequest> parse(Protocol protocol, const boost::json::object& body, const RequestContext& context, Problems& problems) {
  switch (protocol) {
    case Protocol::kChat: return parse_chat(body, context, problems);
    case Protocol::kCompletions: return parse_completion(body, context, problems);
    case Protocol::kResponses: return parse_responses_request(body, context, problems);
    case Protocol::kMessages: break;
  }
  return parse_messages_request(body, context, problems);
}

}  // namespace

std::optional<ParsedRequest> parse_request(Protocol protocol, const boost::json::object& body, const RequestContext& context, Problems& problems) {
  std::optional<ParsedRequest> out = parse(protocol, body, context, problems);
  const Conversation* conversation = out ? std::get_if<Conversation>(&out->prompt) : nullptr;
  if (conversation == nullptr) return out;
  if (conversation->messages.empty()) {
    problems.report(protocol == Protocol::kResponses ? "input" : "messages", "the conversation holds nothing that the model is shown");
    return std::nullopt;
  }
  apply_sampling_rules(context.options, *conversation, out->options);
  return out;
}

}  // namespace deepinfer::recipe
