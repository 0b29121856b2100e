// From a conversation to prompt tokens. A special token may enter the prompt only because the template put it there: rendering gives
// segments, control tokens as ids and everything else as plain text that is encoded with Recognize::kNothing. No code path tokenises
// a string in which both are mixed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "core/request.h"
#include "recipe/conversation.h"
#include "tokenizer/tokenizer.h"

namespace deepinfer::recipe {

struct Segment {
  enum class Kind : uint8_t { kSpecial, kPlain };
  Kind kind = Kind::kPlain;
  TokenId id = -1;   // kSpecial
  std::string text;  // kPlain: the bytes; kSpecial: the spelling
};

struct Prompt {
  std::vector<Segment> segments;
  bool starts_in_reasoning = false;  // the rendered prompt ends inside an open <think>
};

class PromptRenderer {
 public:
  virtual ~PromptRenderer() = default;
  // Errors: kInvalidArgument (the template refused the conversation, with its own message; limits passed). Thread-safe.
  virtual Result<Prompt> render(const Conversation& conversation) const = 0;
};

// The ids of a rendered prompt: neighbouring plain segments are joined before BPE, nothing is joined across a special one.
std::vector<TokenId> prompt_tokens(const Prompt& prompt, const tokenizer::Tokenizer& tokenizer);

// For people and logs, never to be tokenised: the prompt as one text, and the same with control tokens as ⟦id spelling⟧.
std::string prompt_text(const Prompt& prompt);
std::string prompt_text_marked(const Prompt& prompt);

}  // namespace deepinfer::recipe
