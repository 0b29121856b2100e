// Text to token ids and back. Two sources (tokenizer.json, the vocabulary inside a GGUF file), one behaviour. Immutable after
// loading: every method may be called from any thread at once.
//
// Control tokens are ids, never text: encode() does not look at added tokens, so nothing that a user types can become one. Text that
// the product itself wrote is cut into segments first (recipe/), and its control tokens are looked up with special_id().
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "core/request.h"

namespace deepinfer::tokenizer {

// The vocabulary of a GGUF file, as its metadata give it (tokenizer.ggml.*). Borrowed for the call only.
struct GgufVocabulary {
  std::string_view model;  // "gpt2" (byte-level BPE) or "llama" (SentencePiece with byte fallback)
  std::string_view pre;    // pre-tokenizer name: "llama-bpe", "qwen2", "smollm", "deepseek-r1-qwen", …; may be empty
  std::span<const std::string_view> tokens;
  std::span<const float> scores;          // SentencePiece only
  std::span<const int32_t> token_types;   // 1 normal, 2 unknown, 3 control, 4 user defined, 5 unused, 6 byte
  std::span<const std::string_view> merges;
  std::optional<int64_t> bos_id, eos_id, eot_id, unknown_id, padding_id;
  std::optional<bool> add_bos, add_space_prefix;
};

// Which added tokens encode() recognises in a text.
enum class Recognize : uint8_t {
  kNothing,      // bytes and merges only: the one for text that a user sends (`ids_strict` of the goldens)
  kUserDefined,  // added tokens that are not special (`ids`)
  kAll,          // special ones too (`ids_special`): tools and tests, never a user's text
};

class Tokenizer {
 public:
  // json: the bytes of a tokenizer.json; config_json: of tokenizer_config.json, or empty. name: for error messages.
  // Errors: kCorruption (not JSON, ids out of range, merges of unknown tokens), kUnsupported (a piece this project does not know,
  // named: never a guess).
  static Result<std::unique_ptr<Tokenizer>> from_json(std::string_view json, std::string_view config_json, std::string_view name);
  static Result<std::unique_ptr<Tokenizer>> from_gguf(const GgufVocabulary& vocabulary, std::string_view name);
  virtual ~Tokenizer() = default;

  // Appends the ids of `text` (UTF-8; invalid bytes encode as bytes) to `out`. Linear in the length of the text. No BOS is added.
  // A byte for which the vocabulary has no token (some lack control characters) is left out, as the model's own tokenizer does.
  virtual void encode(std::string_view text, Recognize recognize, std::vector<TokenId>& out) const = 0;

  virtual int32_t vocab_size() const = 0;
  // The id of an added token by its exact spelling (special or user defined).
  virtual std::optional<TokenId> special_id(std::string_view spelling) const = 0;
  // All added tokens, by id.
  struct AddedToken {
    TokenId id;
    std::string spelling;
    bool special;
  };
  virtual std::span<const AddedToken> added_tokens() const = 0;
  // The bytes that a token stands for: added tokens give their spelling. Empty for ids without text and out of range.
  virtual std::string_view token_bytes(TokenId id) const = 0;
  virtual bool is_special(TokenId id) const = 0;

  virtual std::optional<TokenId> bos_id() const = 0;
  virtual std::optional<TokenId> eos_id() const = 0;
  virtual bool add_bos() const = 0;               // the model expects a BOS in front of a plain prompt
  virtual std::span<const TokenId> stop_ids() const = 0;  // EOS, EOT, EOM and the like: tokens that end an answer

  // encode() puts a space of its own in front of a text (SentencePiece), which decode() takes away again.
  virtual bool add_space_prefix() const { return false; }

  // The bytes of `ids`, special tokens shown or left out; each maximal run that is not UTF-8 becomes one U+FFFD.
  std::string decode(std::span<const TokenId> ids, bool show_special) const;
};

// Text of a growing answer: hands out whole code points only, keeps at most 3 bytes back. Bytes that can never become a code point are
// replaced at once. Every byte is shown: an answer continues a prompt, so its first space is its own, unlike decode()'s.
class Detokenizer {
 public:
  explicit Detokenizer(const Tokenizer& tokenizer, bool show_special = false);
  // Appends to `out` what became complete with this token.
  void push(TokenId id, std::string& out);
  // Appends U+FFFD if bytes are still pending.
  void finish(std::string& out);

 private:
  const Tokenizer* tokenizer_;
  bool show_special_;
  uint8_t num_pending_ = 0;
  char pending_[4];
};

}  // namespace deepinfer::tokenizer
