// A tokenizer for tests of this folder: one id a byte (1000 + byte), added tokens as given. So ids say exactly which bytes were plain.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/tokenizer.h"

namespace deepinfer::recipe {

class FakeTokenizer final : public tokenizer::Tokenizer {
 public:
  explicit FakeTokenizer(std::vector<AddedToken> added, std::optional<TokenId> bos = {}, std::optional<TokenId> eos = {})
      : added_(std::move(added)), bos_(bos), eos_(eos) {
    for (int byte = 0; byte < 256; ++byte) bytes_.emplace_back(1, static_cast<char>(byte));
  }

  static constexpr TokenId kFirstByte = 1'000'000;

  void encode(std::string_view text, tokenizer::Recognize recognize, std::vector<TokenId>& out) const override {
    while (!text.empty()) {
      const AddedToken* best = nullptr;
      for (const AddedToken& token : added_) {
        if (recognize == tokenizer::Recognize::kNothing) break;
        if (recognize == tokenizer::Recognize::kUserDefined && token.special) continue;
        if (text.starts_with(token.spelling) && (best == nullptr || token.spelling.size() > best->spelling.size())) best = &token;
      }
      out.push_back(best != nullptr ? best->id : kFirstByte + static_cast<uint8_t>(text[0]));
      text.remove_prefix(best != nullptr ? best->spelling.size() : 1);
    }
  }
  int32_t vocab_size() const override { return kFirstByte + 256; }
  std::optional<TokenId> special_id(std::string_view spelling) const override {
    for (const AddedToken& token : added_) {
      if (token.spelling == spelling) return token.id;
    }
    return {};
  }
  std::span<const AddedToken> added_tokens() const override { return added_; }
  std::string_view token_bytes(TokenId id) const override {
    if (id >= kFirstByte && id < kFirstByte + 256) return bytes_[static_cast<size_t>(id - kFirstByte)];
    for (const AddedToken& token : added_) {
      if (token.id == id) return token.spelling;
    }
    return {};
  }
  bool is_special(TokenId id) const override {
    return std::any_of(added_.begin(), added_.end(), [&](const AddedToken& token) { return token.id == id && token.special; });
  }
  std::optional<TokenId> bos_id() const override { return bos_; }
  std::optional<TokenId> eos_id() const override { return eos_; }
  bool add_bos() const override { return false; }
  std::span<const TokenId> stop_ids() const override { return {}; }

 private:
  std::vector<AddedToken> added_;
  std::vector<std::string> bytes_;
  std::optional<TokenId> bos_, eos_;
};

}  // namespace deepinfer::recipe
