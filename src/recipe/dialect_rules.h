// What the DeepSeek dialects differ in, as data, and the texts that their models were trained on.
#pragma once

#include <string>
#include <string_view>

#include "recipe/dialect.h"
#include "recipe/json_text.h"

namespace deepinfer::recipe {

// Control tokens of the dialects, by spelling.
namespace spelling {
constexpr std::string_view kBos = "<｜begin▁of▁sentence｜>", kEos = "<｜end▁of▁sentence｜>", kUser = "<｜User｜>", kAssistant = "<｜Assistant｜>",
                           kSystem = "<｜System｜>", kReminder = "<｜latest_reminder｜>", kThink = "<think>", kThinkEnd = "</think>", kDsml = "｜DSML｜",
                           kImage = "<｜deepseek_image｜>", kExtractedUrl = "<｜extracted_url｜>";
}  // namespace spelling

// Names of the markup elements of tool calls. v4.1 writes each with a space in front.
struct MarkupNames {
  std::string_view block, invoke, parameter;
};

// What becomes of system messages. kFront: all are joined at the front. kLeading: those at the very front are; a later one is said by
// the user. kInPlace: each stays where it is, under a token of its own.
enum class SystemPlacement : uint8_t { kFront, kLeading, kInPlace };

struct DialectRules {
  Dialect dialect;
  MarkupNames names;
  SystemPlacement system;
  bool images;                     // else an image is the text kUnsupportedImage
  bool joins_empty_user_texts;     // user messages in a row: an empty text is joined like any other
  bool empty_line_in_empty_call;
  NumberStyle numbers;
  std::string_view json_mode;      // said in JSON mode
  DeveloperAs developer;           // kSystem or kUser
};

constexpr std::string_view kUnsupportedImage = "[Unsupported Image]";

const DialectRules& rules_of(Dialect dialect);  // not kTemplate

// What is said about effort while thinking; ends with two newlines, or is empty.
std::string effort_text(Dialect dialect, const Conversation& conversation);

// The tool block around the schemas. `｜DSML｜`, <think> and </think> in it are control tokens.
std::string tool_block_head(const MarkupNames& names);
std::string_view tool_block_tail();

// A JSON schema's introduction, the schema follows.
std::string_view schema_intro();

}  // namespace deepinfer::recipe
