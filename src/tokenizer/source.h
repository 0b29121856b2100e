// What a tokenizer file says, whichever format it was in: read by gguf.cc and json.cc, made into a tokenizer by byte_level.cc and
// sentence_piece.cc. Views point into the file and live for the call.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "tokenizer/added_tokens.h"
#include "tokenizer/splitter.h"
#include "tokenizer/tokenizer.h"

namespace deepinfer::tokenizer {

enum class TokenKind : uint8_t {
  kAbsent,  // a gap in the ids, or a token without text
  kNormal,
  kByte,    // SentencePiece: one byte, spelt <0xNN>
  kAdded,   // in `added`; merging never makes it, so that no text becomes it by accident
};

struct Source {
  std::string name;                        // of the file, for messages
  std::vector<std::string_view> spellings;  // by id, as the file spells them
  std::vector<TokenKind> kinds;            // by id
  std::vector<float> scores;               // by id; SentencePiece from GGUF only
  std::vector<std::pair<std::string_view, std::string_view>> merges;  // by rank
  std::vector<AddedRule> added;
  Splitter splitter = Splitter::kNone;
  bool nfc = false;
  bool ignore_merges = false;     // a piece that is in the vocabulary is not merged
  bool add_space_prefix = false;  // SentencePiece: a text begins with a space of its own
  bool add_bos = false;
  bool has_unknown = false;       // tokenizer.json: what is not in the vocabulary becomes a token, not nothing
  std::optional<int64_t> bos_id, eos_id, eot_id, unknown_id;

  Error error(Code code, const std::string& what) const { return Error{code, name + ": " + what}; }
};

Result<std::unique_ptr<Tokenizer>> make_byte_level(Source source);
Result<std::unique_ptr<Tokenizer>> make_sentence_piece(Source source);

}  // namespace deepinfer::tokenizer
