// Chat Completions requests: JSON to Conversation and options. What a client wrote is checked here, once, before anything is
// rendered; what comes out is well formed (tool results follow their calls, prefix stands last, names are names).
//
// What a model with a chat template of its own does with each part (DeepSeek's dialects do all of it):
// - tools are handed to the template as received. The answer is not searched for calls: a model that writes one writes it as text, in
//   the syntax of its family, into `content`. tool_choice `none` leaves the tools out, `auto` is the default, `required` and a named tool
//   are refused, since nothing here can force such a model's hand.
// - response_format constrains the answer, but the template is not told of it: the conversation has to say what is wanted.
// - an empty system message reaches the template: several templates put in a default text when there is no system message at all.
#pragma once

#include <boost/json/object.hpp>
#include <optional>
#include <string>

#include "recipe/conversation.h"
#include "recipe/generation_options.h"

namespace deepinfer::recipe {

struct ChatRequest {
  Conversation conversation;
  GenerationOptions options;
};

// nullopt: problems.any(). The field `model` is read by the server, before this.
std::optional<ChatRequest> parse_chat_request(const boost::json::object& body, const OptionsContext& context, Problems& problems);

// The conversation alone (messages, tools, thinking, template arguments), for requests that only count or render.
Conversation parse_conversation(FieldReader& fields, const OptionsContext& context);

}  // namespace deepinfer::recipe
