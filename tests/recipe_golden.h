// What the golden tests of recipe/ share: the cases, the tokenizers that they name, digests.
#pragma once

#include <boost/json.hpp>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "id_digest.h"
#include "tokenizer/tokenizer.h"
#include "vocabulary_files.h"

namespace deepinfer::testing {

inline boost::json::value read_golden(const std::string& name) {
  boost::system::error_code error;
  boost::json::value out = boost::json::parse(read_file(DI_SOURCE_DIR "/tests/golden/recipe/" + name), error);
  CHECK(!error);
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
