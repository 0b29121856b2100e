// The conversation form: what every protocol's request becomes, and all that prompt rendering looks at. Text in here is a client's:
// it never turns into control tokens (see prompt.h). It is well formed: parsers check that results follow their calls, that a turn to
// be continued stands last, that names are names; renderers do not check again.
#pragma once

#include <boost/json/object.hpp>
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

enum class Role : uint8_t { kSystem, kDeveloper, kUser, kAssistant, kTool, kLatestReminder };

enum class ImageDetail : uint8_t { kHigh, kLow, kOriginal, kAuto };

// An image as the client named it. Fetching and decoding are not this folder's work: whoever does it looks at Prompt::images.
struct Image {
  std::string url;  // "https://…", or "data:MEDIA/TYPE;base64,…" with its base64 well formed
  ImageDetail detail = ImageDetail::kHigh;  // what the client asked for; the models here have one size for all pictures
  std::string path;  // where it stands in the request, for what is said about it
};

// An image stands in a message's content right before content[offset]. Never by a spelling inside the text, which a client could type.
struct PlacedImage {
  size_t offset = 0;
  uint32_t image = 0;  // index into Conversation::images
};

// DeepSeek's quick-instruction tasks: the model answers a question about the last message with one token or a short text.
enum class Task : uint8_t { kNone, kAction, kQuery, kAuthority, kDomain, kTitle, kReadUrl };

struct Message {
  Role role = Role::kUser;
  std::string content;                   // text blocks joined with two newlines; an image block is an empty text with an image in it
  std::vector<PlacedImage> images;       // user and tool (some dialects: system) only; offsets ascend
  std::optional<std::string> reasoning;  // assistant only
  std::vector<ToolCall> tool_calls;      // assistant only
  std::string tool_call_id;              // tool only
  std::string name;
  bool null_content = false;             // assistant only: content was null or absent; some templates show tool calls only then
  bool prefix = false;                   // last assistant only: continue this turn
  Task task = Task::kNone;               // last message only
};

struct ToolDefinition {
  std::string name, description;
  boost::json::value parameters;  // JSON Schema, key order as received
  std::optional<bool> strict;
  boost::json::value raw;         // the tool as a Chat Completions tool object ({"type":"function","function":{…}}), for foreign templates;
                                  // null: to be made from the fields above
};

// kNone: the tools are in the conversation but not in the prompt. kRequired: the prompt opens a call; a named tool is that with the tool alone in
// `tools`. kAny: a call has to come, but the prompt is that of kAuto, and the model may reason first.
enum class ToolChoice : uint8_t { kAuto, kNone, kRequired, kAny };

// kXHigh exists because clients name it; its prompt is that of kHigh.
enum class Effort : uint8_t { kUnset, kLow, kHigh, kXHigh, kMax };

// kReference: reasoning of earlier turns is left out where the model's own encoder leaves it out (no active tools). kKeep: always kept,
// so that prompts only grow and prefixes stay cached.
enum class HistoryReasoning : uint8_t { kReference, kKeep };

struct ResponseFormat {
  enum class Kind : uint8_t { kText, kJsonObject, kJsonSchema };
  Kind kind = Kind::kText;
  std::string name;            // kJsonSchema: as the client calls it
  boost::json::value schema;   // kJsonSchema: key order as received
  std::optional<bool> strict;  // kJsonSchema
};

struct Conversation {
  std::vector<Message> messages;
  std::vector<Image> images;             // those that messages place
  std::vector<ToolDefinition> tools;
  ToolChoice tool_choice = ToolChoice::kAuto;
  ResponseFormat response_format;
  std::optional<bool> thinking;          // unset: the model's default (DeepSeek: on; a chat template: its own)
  Effort effort = Effort::kUnset;
  std::optional<int32_t> effort_number;  // 1..100, wins over `effort` where the dialect writes numbers (v4.1)
  std::optional<HistoryReasoning> history_reasoning;  // unset: the server's setting
  bool add_generation_prompt = true;     // chat templates: false ends the prompt with the last turn, and none is opened
  boost::json::object template_kwargs;   // chat_template_kwargs of the request; keys that the renderer sets itself are refused

  bool tools_active() const { return tool_choice != ToolChoice::kNone && !tools.empty(); }
  bool demands_call() const { return tool_choice == ToolChoice::kRequired || tool_choice == ToolChoice::kAny; }
};

}  // namespace deepinfer::recipe
