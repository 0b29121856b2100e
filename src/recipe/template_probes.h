// Small conversations on which a chat template is tried when it is loaded. Their text spells no control token of any model.
#pragma once

#include <vector>

#include "recipe/conversation.h"

namespace deepinfer::recipe {

std::vector<Conversation> template_probes();

// A conversation with a tool call and its result, and two words that the template shows if it shows the call.
struct ToolCallProbe {
  Conversation conversation;
  const char* name;
  const char* argument;
};
ToolCallProbe tool_call_probe();

}  // namespace deepinfer::recipe
