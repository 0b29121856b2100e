// The vocabulary inside a GGUF file as plain views of its mapping, with the checks that need the file: counts agree with each
// other and with the embedding, ids are inside the vocabulary. What the entries mean (merges, byte tokens, the pre-tokenizer) is
// the tokenizer's to judge, which this folder does not know.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace deepinfer::model {

class GgufFile;

struct GgufVocabularyData {
  std::string_view model;                                                 // "gpt2", "llama", …
  std::string_view pre;                                                   // may be empty
  std::vector<std::string_view> tokens;                                   // not empty
  std::vector<float> scores;                                              // one a token, or empty
  std::vector<int32_t> token_types;                                       // one a token, or empty
  std::vector<std::string_view> merges;                                   // may be empty
  std::optional<int64_t> bos_id, eos_id, eot_id, unknown_id, padding_id;  // each the index of a token
  std::optional<bool> add_bos, add_space_prefix;
  std::optional<std::string_view> chat_template;
};

// Errors: kCorruption, naming the file and the key. The views live as long as the file.
Result<GgufVocabularyData> gguf_vocabulary(const GgufFile& file);

}  // namespace deepinfer::model
