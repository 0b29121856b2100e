// Sampled tokens to symbols: bytes of text, and the markers that structure an answer.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "recipe/stop_strings.h"
#include "tokenizer/tokenizer.h"

namespace deepinfer::recipe {

enum class Marker : uint8_t { kNone, kThink, kThinkEnd, kDsml };

std::string_view spelling_of(Marker marker);

struct Symbol {
  char byte = 0;                  // kNone: text, UTF-8
  Marker marker = Marker::kNone;
};

struct MarkerRules {
  bool markers = true;             // false: all is text
  bool by_text = false;            // spellings in text are markers
  bool hides_added_tokens = false; // AnswerSyntax
};

// A marker comes from its control token. A vocabulary without <think> and </think> has them spelt: reads_thoughts_by_text().
class MarkerReader {
 public:
  MarkerReader(const tokenizer::Tokenizer& tokenizer, MarkerRules rules);

  void push(TokenId token, std::vector<Symbol>& out);
  // The end: bytes that were waiting for the rest of a code point or of a spelling.
  void finish(std::vector<Symbol>& out);

  // Bytes of text that may be the beginning of a spelling.
  size_t num_waiting() const { return waiting_.size(); }

  // Text is searched for <think> and </think> although by_text is off; the caller knows where they count.
  bool reads_thoughts_by_text() const { return thoughts_by_text_; }
  // No more of that: appends what waited.
  void stop_reading_text(std::vector<Symbol>& out);

 private:
  void add_text(std::vector<Symbol>& out);
  void flush_spelling(std::vector<Symbol>& out);

  const tokenizer::Tokenizer* tokenizer_;
  tokenizer::Detokenizer detokenizer_;
  MarkerRules rules_;
  std::array<std::optional<TokenId>, 4> ids_;  // by Marker
  bool thoughts_by_text_ = false;
  std::optional<StopStrings> spellings_;       // set while text is searched
  std::string text_;                           // decoded, not yet looked at
  std::string waiting_;                        // may be the beginning of a spelling
};

}  // namespace deepinfer::recipe
