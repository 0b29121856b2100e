// The variables of a chat template for a conversation, as the Hugging Face libraries name them: messages, tools, documents,
// add_generation_prompt, enable_thinking and what the request's chat_template_kwargs add.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "recipe/conversation.h"

namespace deepinfer::recipe {

struct TemplateContext {
  std::string json;
  // Not empty if the last assistant turn is to be continued: it stands right after that turn's content, and everything from it on is
  // to be cut from the rendering. It occurs nowhere else in the conversation.
  std::string cut_mark;
};

// What a template wants to see, where templates differ; found by trying (chat_template.cc).
struct TemplateTraits {
  bool null_content = false;      // null where an assistant message has tool calls and no content
  bool string_arguments = false;  // arguments as JSON text, not as an object
};

// source: the template's, for what cannot be known otherwise: a template that never says "developer" gets such messages as "system".
// Errors: kInvalidArgument (a template_kwargs key that is set here; `prefix` elsewhere than on the last assistant message).
Result<TemplateContext> template_context(const Conversation& conversation, std::string_view source, const TemplateTraits& traits);

}  // namespace deepinfer::recipe
