// LIBS: di_recipe
//
// A hostile chat template and a hostile conversation. Input: template source, NUL, then texts separated by NUL: roles and contents in
// turn, the last one JSON for chat_template_kwargs where it parses. Nothing may crash, hang or allocate much, and whatever is rendered
// keeps the invariants: control tokens in the ids are those of the segments, and the ids spell the text.
#include <cstdint>
#include <string>
#include <vector>

#include <boost/json/parse.hpp>

#include "recipe/chat_template.h"
#include "recipe/fake_tokenizer.h"

using namespace deepinfer;
using namespace deepinfer::recipe;

namespace {

std::vector<std::string> parts_of(std::string_view input) {
  std::vector<std::string> parts;
  while (parts.size() < 16) {
    const size_t end = input.find('\0');
    parts.emplace_back(input.substr(0, end));
    if (end == std::string_view::npos) break;
    input.remove_prefix(end + 1);
  }
  return parts;
}

Conversation conversation_of(const std::vector<std::string>& parts) {
  Conversation conversation;
  for (size_t i = 1; i < parts.size(); ++i) {
    Message message{.content = parts[i]};
    message.role = static_cast<Role>(parts[i].size() % 5);
    if (message.role == Role::kAssistant) {
      message.reasoning = parts[i];
      message.tool_calls = {{.id = parts[i], .name = parts[i], .arguments = parts[i]}};
      message.null_content = parts[i].size() % 2 == 0;
      message.prefix = i + 1 == parts.size() && parts[i].size() % 4 == 0;
    }
    conversation.messages.push_back(std::move(message));
    ToolDefinition tool{.name = parts[i], .description = parts[i]};
    conversation.tools.push_back(std::move(tool));
  }
  boost::json::error_code error;
  const auto extra = boost::json::parse(parts.back(), error);
  if (!error && extra.is_object()) conversation.template_kwargs = extra.as_object();
  return conversation;
}

void check(const Prompt& prompt, const FakeTokenizer& tokenizer) {
  int64_t num_special = 0, num_added = 0;
  for (const Segment& segment : prompt.segments) num_special += segment.kind == Segment::Kind::kSpecial ? 1 : 0;
  std::string text;
  for (const TokenId id : prompt_tokens(prompt, tokenizer)) {
    num_added += id < FakeTokenizer::kFirstByte ? 1 : 0;
    text += tokenizer.token_bytes(id);
  }
  CHECK(num_added == num_special);
  CHECK(text == prompt_text(prompt));
  CHECK(text.size() <= (size_t{32} << 20));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const FakeTokenizer tokenizer({{0, "<s>", true}, {1, "<|im_start|>", true}, {2, "<|im_end|>", true}, {3, "<think>", false},
                                        {4, "</think>", false}, {5, "<|user|>", true}, {6, "a", false}},
                                       0, 2);
  const auto parts = parts_of({reinterpret_cast<const char*>(data), size});
  ChatTemplateOptions options;
  options.now_unix_s = [] { return int64_t{1'700'000'000}; };
  const auto made = ChatTemplate::create(parts[0], tokenizer, options);
  if (!made) return made.error().code == Code::kInternal ? __builtin_trap(), 0 : 0;
  const auto prompt = (*made)->render(conversation_of(parts));
  if (prompt) {
    check(*prompt, tokenizer);
  } else {
    CHECK(prompt.error().code == Code::kInvalidArgument);
  }
  return 0;
}
