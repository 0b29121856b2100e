// What both kinds of tokenizer share: the bytes of each token, the added tokens, the special ids, and a pool of work buffers.
// Everything but the pool is constant after construction; the pool is behind a mutex that an encode() takes twice.
// Lost: thread-local buffers, which outlive the tokenizer and cost half a megabyte in every thread that ever encoded.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/thread_annotations.h"
#include "tokenizer/added_tokens.h"
#include "tokenizer/merges.h"
#include "tokenizer/piece_cache.h"
#include "tokenizer/source.h"
#include "tokenizer/tokenizer.h"

namespace deepinfer::tokenizer {

// The constant tables.
class Vocabulary {
 public:
  // bytes[id]: what a token stands for; added tokens are filled in here. Checks the ids that the source names.
  static Result<Vocabulary> build(const Source& source, const std::vector<std::string>& bytes);

  int32_t size() const { return static_cast<int32_t>(offsets_.size()) - 1; }
  std::string_view bytes(TokenId id) const {
    if (id < 0 || id >= size()) return {};
    const auto i = static_cast<size_t>(id);
    return std::string_view(text_).substr(offsets_[i], offsets_[i + 1] - offsets_[i]);
  }
  bool is_special(TokenId id) const { return id >= 0 && id < size() && special_[static_cast<size_t>(id)]; }

  std::optional<TokenId> added_id(std::string_view spelling) const;

  std::vector<Tokenizer::AddedToken> added;  // by id
  std::vector<TokenId> stop_ids;             // ascending
  std::optional<TokenId> bos_id, eos_id;
  bool add_bos = false;

 private:
  std::string text_;               // of all tokens, in order of id
  std::vector<size_t> offsets_;    // size() + 1
  std::vector<bool> special_;
  std::vector<uint32_t> by_spelling_;  // indices of `added`
};

class BasicTokenizer : public Tokenizer {
 public:
  void encode(std::string_view text, Recognize recognize, std::vector<TokenId>& out) const final;
  int32_t vocab_size() const final { return vocabulary_.size(); }
  std::optional<TokenId> special_id(std::string_view spelling) const final;
  std::span<const AddedToken> added_tokens() const final { return vocabulary_.added; }
  std::string_view token_bytes(TokenId id) const final { return vocabulary_.bytes(id); }
  bool is_special(TokenId id) const final { return vocabulary_.is_special(id); }
  std::optional<TokenId> bos_id() const final { return vocabulary_.bos_id; }
  std::optional<TokenId> eos_id() const final { return vocabulary_.eos_id; }
  bool add_bos() const final { return vocabulary_.add_bos; }
  std::span<const TokenId> stop_ids() const final { return vocabulary_.stop_ids; }

  struct Added {
    AddedTokens raw, normalized;  // by where they are looked for
  };
  static Result<Added> split_added(const Source& source);

 protected:
  // Work buffers of one encode() call.
  struct Scratch {
    PieceCache cache;
    MergeScratch merge;
    std::vector<TokenId> symbols;
    std::string normalized, prefixed;
  };

  BasicTokenizer(Vocabulary vocabulary, Added added) : vocabulary_(std::move(vocabulary)), added_(std::move(added)) {}

  // The text as merging sees it; may point into storage.
  virtual std::string_view normalize(std::string_view text, std::string& storage) const = 0;
  // Appends the ids of a normalised text without added tokens. Not empty.
  virtual void encode_text(std::string_view text, Scratch& scratch, std::vector<TokenId>& out) const = 0;

  const Vocabulary& vocabulary() const { return vocabulary_; }

 private:
  template <class Rest>
  void part(const AddedTokens& added, std::string_view text, Recognize recognize, std::vector<TokenId>& out, const Rest& rest) const;
  std::unique_ptr<Scratch> take_scratch() const;
  void give_back(std::unique_ptr<Scratch> scratch) const;

  Vocabulary vocabulary_;
  Added added_;
  mutable Mutex mu_;
  mutable std::vector<std::unique_ptr<Scratch>> idle_ GUARDED_BY(mu_);
};

}  // namespace deepinfer::tokenizer
