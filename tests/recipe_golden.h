// What the golden tests of recipe/ share: the cases, the tokenizers that they name, digests.
#pragma once

#include <sodium.h>

#include <boost/json.hpp>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/tokenizer.h"
#include "vocabulary_files.h"

namespace deepinfer::testing {

inline boost::json::value read_golden(const std::string& name) {
  boost::system::error_code error;
  boost::json::value out = boost::json::parse(read_file(DI_SOURCE_DIR "/tests/golden/recipe/" + name), error);
  CHECK(!error);
  return out;
}

inline std::string sha256(std::string_view text) {
  unsigned char digest[crypto_hash_sha256_BYTES];
  crypto_hash_sha256(digest, reinterpret_cast<const unsigned char*>(text.data()), text.size());
  static const char kHex[] = "0123456789abcdef";
  std::string hex;
  for (const unsigned char b : digest) hex += {kHex[b >> 4], kHex[b & 15]};
  return hex;
}

inline std::string decimal(const std::vector<TokenId>& ids) {
  std::string out;
  for (size_t i = 0; i < ids.size(); ++i) out += (i ? " " : "") + std::to_string(ids[i]);
  return out;
}

inline std::unique_ptr<tokenizer::Tokenizer> nano_tokenizer() {
  auto made = tokenizer::Tokenizer::from_json(read_file(DI_SOURCE_DIR "/models/nano/tokenizer.json"), "", "nano");
  CHECK(made);
  return std::move(*made);
}

// DeepSeek V4's own vocabulary; null where it does not lie beside the checkout.
inline std::unique_ptr<tokenizer::Tokenizer> deepseek_tokenizer() {
  const auto path = golden_path("recipe/deepseek_tokenizer.json");
  if (!path) return nullptr;
  auto made = tokenizer::Tokenizer::from_json(read_file(*path), "", "deepseek");
  CHECK(made);
  return std::move(*made);
}

}  // namespace deepinfer::testing
