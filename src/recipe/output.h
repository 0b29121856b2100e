// From sampled tokens to what a client sees: text (whole code points), split into reasoning and answer, with stop strings found and
// text held back while it may be the start of one (longest prefix of any stop string). One object a choice; not thread-safe.
// Newlines next to <think> and </think> belong to them. Special tokens and the token that ended the answer are not shown. The pieces of
// text do not depend on how tokens cut it, and their concatenation loses and doubles nothing. Time is linear.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/inference.h"
#include "recipe/prompt.h"
#include "tokenizer/tokenizer.h"

namespace deepinfer::recipe {

struct OutputEvent {
  // Tool calls: kCallStart, kArguments…, kCallEnd of call 0, then of call 1, … Text never comes after the first of them. A call that
  // the length limit cuts has no kCallEnd.
  enum class Kind : uint8_t { kReasoning, kContent, kCallStart, kArguments, kCallEnd, kFinished };
  Kind kind = Kind::kContent;
  std::string text;                       // kReasoning, kContent: never empty; kCallStart: the tool's name as the model wrote it;
                                          // kArguments: a piece of one JSON object's text, never empty
  int32_t call = -1;                      // kCallStart, kArguments, kCallEnd: which call, from 0
  std::vector<TokenEvent> tokens;         // the tokens whose first byte this carries, for logprobs; empty unless logprobs are on
  FinishReason reason = FinishReason::kStop;        // kFinished
  std::optional<std::string> stop_string;           // kFinished by a stop string: which
  int32_t num_calls = 0;                            // kFinished: calls with a kCallEnd
  Usage usage;                                      // kFinished; after a stop string, completion_tokens up to its last token
  int32_t reasoning_tokens = 0;                     // kFinished
  std::string error;                                // kFinished with kError
};

struct OutputOptions {
  AnswerSyntax syntax;               // Prompt::syntax
  bool split_reasoning = true;       // <think>…</think> written by control tokens or, for models without them, by text at the start
  std::vector<std::string> stop;     // searched in answer text only
  bool keep_token_events = false;    // fill OutputEvent::tokens
};

class OutputParser {
 public:
  OutputParser(const tokenizer::Tokenizer& tokenizer, OutputOptions options);
  ~OutputParser();
  OutputParser(OutputParser&&) noexcept;
  OutputParser& operator=(OutputParser&&) noexcept;

  // Appends what `event` makes visible. After a stop string matched, stopped() is true: the caller cancels the engine's sequence, and
  // later events only complete the usage; exactly one kFinished comes out, on the engine's own end event.
  void push(const TokenEvent& event, std::vector<OutputEvent>& out);
  bool stopped() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace deepinfer::recipe
