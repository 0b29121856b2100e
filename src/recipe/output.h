// From sampled tokens to what a client sees: text (whole code points), split into reasoning and answer, tool calls out of markup, stop
// strings found and text held back while it may be the start of one or of a marker. One object a choice; not thread-safe.
//
// Newlines next to <think> and </think>, and those in front of a block of tool calls, belong to them. Markers count when they come from
// control tokens; the same characters from ordinary tokens are text. Special tokens and the token that ended the answer are not shown.
// What comes out does not depend on how tokens or calls cut the text, and its concatenation loses and doubles nothing. Time is linear.
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
  // Markers count wherever they are spelt, not only as control tokens: for output that went through text. A model that quotes a marker
  // is then misread.
  bool markers_by_text = false;
  bool single_tool_call = false;     // the answer ends with the first complete call
  std::vector<std::string> stop;     // searched in answer text only
  bool keep_token_events = false;    // fill OutputEvent::tokens
};

class OutputParser {
 public:
  OutputParser(const tokenizer::Tokenizer& tokenizer, OutputOptions options);
  ~OutputParser();
  OutputParser(OutputParser&&) noexcept;
  OutputParser& operator=(OutputParser&&) noexcept;

  // Appends what `event` makes visible. Once nothing more can follow (a stop string, the end of a single call), stopped() is true: the
  // caller cancels the engine's sequence, and later events only complete the usage; exactly one kFinished comes out, on the engine's own
  // end event.
  void push(const TokenEvent& event, std::vector<OutputEvent>& out);
  bool stopped() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace deepinfer::recipe
