// The conversation form: what every protocol's request becomes, and all that prompt rendering looks at. Text in here is a client's:
// it never turns into control tokens (see prompt.h).
#pragma once

#include <boost/json/value.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace deepinfer::recipe {

struct ToolCall {
  std::string id, name;
  std::string arguments;  // JSON text as received
};

enum class Role : uint8_t { kSystem, kDeveloper, kUser, kAssistant, kTool };

struct Message {
  Role role = Role::kUser;
  std::string content;                   // text blocks joined with two newlines
  std::optional<std::string> reasoning;  // assistant only
  std::vector<ToolCall> tool_calls;      // assistant only
  std::string tool_call_id;              // tool only
  std::string name;
  bool null_content = false;             // assistant only: content was null or absent; some templates show tool calls only then
  bool prefix = false;                   // last assistant only: continue this turn
};

struct ToolDefinition {
  std::string name, description;
  boost::json::value parameters;  // JSON Schema, key order as received
  boost::json::value raw;         // the whole tool object as received ({"type":"function","function":{…}}), for foreign templates
};

struct Conversation {
  std::vector<Message> messages;
  std::vector<ToolDefinition> tools;
  std::optional<bool> thinking;          // unset: the template's default
  bool add_generation_prompt = true;     // false: the prompt ends with the last turn, and none is opened
  boost::json::object template_kwargs;   // chat_template_kwargs of the request; keys that the renderer sets itself are refused
};

}  // namespace deepinfer::recipe
