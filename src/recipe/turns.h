// The turns that a DeepSeek dialect writes, from the messages of a conversation: roles that it does not know are said by others,
// system messages stand where it wants them, user messages in a row are one, tool results are in the order of their calls.
#pragma once

#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "recipe/conversation.h"
#include "recipe/dialect_rules.h"

namespace deepinfer::recipe {

struct Turn {
  Role role = Role::kUser;           // never kDeveloper
  std::string_view content;          // a message's own text, or *joined
  std::string* joined = nullptr;     // null, or the text of several messages, or of one with marks for its images
  std::vector<PlacedImage> images;   // empty where the dialect has none: their text stands in `content`
  const Message* message = nullptr;  // assistant and tool: theirs; a message with a task: it; else null
};

// developer: kSystem or kUser. The first turn is a system turn, possibly empty, if `needs_system`. Turns point into the conversation and
// into texts, which receives what no message holds as it is.
std::vector<Turn> make_turns(const Conversation& conversation, const DialectRules& rules, DeveloperAs developer, bool needs_system,
                             std::deque<std::string>& texts);

}  // namespace deepinfer::recipe
