// From a conversation to prompt tokens. A special token may enter the prompt only because the template put it there: rendering gives
// segments, control tokens as ids and everything else as plain text that is encoded with Recognize::kNothing. No code path tokenises
// a string in which both are mixed.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "core/request.h"
#include "recipe/conversation.h"
#include "tokenizer/tokenizer.h"

namespace deepinfer::recipe {

struct Segment {
  enum class Kind : uint8_t { kSpecial, kPlain, kImage };
  Kind kind = Kind::kPlain;
  TokenId id = -1;     // kSpecial; kImage: the id of every position of an image
  std::string text;    // kPlain: the bytes; kSpecial, kImage: the spelling
  uint32_t image = 0;  // kImage: index into Prompt::images
};

// What a tool declares, as far as reading its calls needs it.
struct DeclaredTool {
  std::string name;
  std::vector<std::string> properties;  // of its parameters
};

// How the answer to a prompt is to be read (output.h).
struct AnswerSyntax {
  // kJson: JSON mode without thinking; kToolCalls: the prompt ends with a forced opener of tool calls.
  enum class Start : uint8_t { kAnswer, kReasoning, kJson, kToolCalls };
  Start start = Start::kAnswer;
  bool trim_start = false;        // newlines that the answer begins with are not part of it (those after <think> and </think> never are)
  bool parse_tool_calls = false;  // DSML markup (DeepSeek dialects with active tools) becomes tool calls; else it is text
  bool parse_json = false;        // JSON mode of DeepSeek dialects: only the first JSON value is shown, without fences and text around it
  bool hides_added_tokens = false;  // added tokens are control tokens, whatever the vocabulary's flags say: they are never shown
  std::vector<DeclaredTool> tools;
};
std::string_view name_of(AnswerSyntax::Start start);  // "answer", "reasoning", "json", "tool_calls"

struct Prompt {
  std::vector<Segment> segments;
  std::vector<Image> images;  // in the order in which they stand in the prompt
  AnswerSyntax syntax;

  bool starts_in_reasoning() const { return syntax.start == AnswerSyntax::Start::kReasoning; }
};

class PromptRenderer {
 public:
  virtual ~PromptRenderer() = default;
  // Errors: kInvalidArgument (the template refused the conversation, with its own message; limits passed). Thread-safe.
  virtual Result<Prompt> render(const Conversation& conversation) const = 0;
};

// A prompt as its encoder sees it: neighbouring plain segments joined to one text (merges may reach across their seam), nothing joined
// across a control token or an image. on_text(string_view) and on_id(TokenId) in the order of the prompt.
template <class OnText, class OnId>
void for_each_run(const Prompt& prompt, const OnText& on_text, const OnId& on_id) {
  const std::vector<Segment>& segments = prompt.segments;
  std::string joined;
  for (size_t i = 0; i < segments.size();) {
    if (segments[i].kind != Segment::Kind::kPlain) {
      on_id(segments[i++].id);
      continue;
    }
    size_t end = i + 1;
    while (end < segments.size() && segments[end].kind == Segment::Kind::kPlain) ++end;
    if (end == i + 1) {
      on_text(std::string_view(segments[i].text));
    } else {
      joined.clear();
      for (size_t k = i; k < end; ++k) joined += segments[k].text;
      on_text(std::string_view(joined));
    }
    i = end;
  }
}

// The ids of a rendered prompt.
std::vector<TokenId> prompt_tokens(const Prompt& prompt, const tokenizer::Tokenizer& tokenizer);

// For people and logs, never to be tokenised: the prompt as one text, and the same with control tokens as ⟦id spelling⟧ and a ⟦ of the text
// written twice, so that nobody can type what looks like one.
std::string prompt_text(const Prompt& prompt);
std::string prompt_text_marked(const Prompt& prompt);

}  // namespace deepinfer::recipe
