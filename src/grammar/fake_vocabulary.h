// A tokenizer for tests of this folder: tokens of one and several bytes, some that end inside of a JSON token or a code point, and control
// tokens whose spellings are text that a grammar may want; behind them those that a test adds.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/tokenizer.h"

namespace deepinfer::grammar {

class FakeVocabulary final : public tokenizer::Tokenizer {
 public:
  explicit FakeVocabulary(std::initializer_list<const char*> more = {}) {
    for (int byte = 0; byte < 256; ++byte) bytes_.emplace_back(1, static_cast<char>(byte));
    for (const char* text : {"{\"", "\":", "\": ", "\",", "\", \"", "\"}", "true", "fal", "se", "null", "ab", "abc", "bc", "12", "1.", "[]", "]}", "  ", ", ",
                             "\xC3\xA9", "\xE2\x82", "a\xE2", "name", "</"}) {
      bytes_.emplace_back(text);
    }
    for (const char* text : {"<end>", "<think>", "abc", "[mark]"}) add(text);
    for (const char* text : more) add(text);
  }

  TokenId end() const { return added_[0].id; }
  TokenId mark() const { return added_[3].id; }

  // Bytes only.
  void encode(std::string_view text, tokenizer::Recognize, std::vector<TokenId>& out) const override {
    for (const char c : text) out.push_back(static_cast<unsigned char>(c));
  }
  int32_t vocab_size() const override { return static_cast<int32_t>(bytes_.size()); }
  std::optional<TokenId> special_id(std::string_view spelling) const override {
    for (const AddedToken& token : added_) {
      if (token.spelling == spelling) return token.id;
    }
    return {};
  }
  std::span<const AddedToken> added_tokens() const override { return added_; }
  std::string_view token_bytes(TokenId id) const override {
    return id >= 0 && id < vocab_size() ? std::string_view(bytes_[static_cast<size_t>(id)]) : std::string_view();
  }
  bool is_special(TokenId id) const override { return id >= end(); }
  std::optional<TokenId> bos_id() const override { return {}; }
  std::optional<TokenId> eos_id() const override { return end(); }
  bool add_bos() const override { return false; }
  std::span<const TokenId> stop_ids() const override { return {}; }

 private:
  void add(const char* text) {
    added_.push_back({.id = static_cast<TokenId>(bytes_.size()), .spelling = text, .special = true});
    bytes_.emplace_back(text);
  }

  std::vector<std::string> bytes_;
  std::vector<AddedToken> added_;
};

}  // namespace deepinfer::grammar
