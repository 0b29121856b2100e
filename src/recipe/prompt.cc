#include "recipe/prompt.h"

namespace deepinfer::recipe {
namespace {

constexpr std::string_view kOpen = "⟦", kClose = "⟧";

void append_escaped(std::string_view text, std::string& out) {
  for (size_t at = text.find(kOpen); at != std::string_view::npos; at = text.find(kOpen)) {
    out.append(text.substr(0, at)).append(kOpen).append(kOpen);
    text.remove_prefix(at + kOpen.size());
  }
  out += text;
}

}  // namespace

std::string_view name_of(AnswerSyntax::Start start) {
  switch (start) {
    case AnswerSyntax::Start::kAnswer: return "answer";
    case AnswerSyntax::Start::kReasoning: return "reasoning";
    case AnswerSyntax::Start::kJson: return "json";
    case AnswerSyntax::Start::kToolCalls: return "tool_calls";
  }
  return {};
}

std::vector<TokenId> prompt_tokens(const Prompt& prompt, const tokenizer::Tokenizer& tokenizer) {
  std::vector<TokenId> ids;
  for_each_run(
      prompt, [&](std::string_view text) { tokenizer.encode(text, tokenizer::Recognize::kNothing, ids); }, [&](TokenId id) { ids.push_back(id); });
  return ids;
}

std::string prompt_text(const Prompt& prompt) {
  std::string text;
  for (const Segment& segment : prompt.segments) text += segment.text;
  return text;
}

std::string prompt_text_marked(const Prompt& prompt) {
  std::string text;
  for (const Segment& segment : prompt.segments) {
    if (segment.kind == Segment::Kind::kPlain) {
      append_escaped(segment.text, text);
    } else {
      text.append(kOpen).append(std::to_string(segment.id)).append(" ").append(segment.text).append(kClose);
    }
  }
  return text;
}

}  // namespace deepinfer::recipe
