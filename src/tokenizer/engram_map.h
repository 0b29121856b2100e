// The compressed vocabulary of DeepSeek-V4.1's Engram: tokens whose texts differ in case, accents or blanks only share one id
// (model.md 2.6). Derived from the tokenizer, since checkpoints do not store it; their size of the compressed vocabulary is the check.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/tokenizer.h"

namespace deepinfer::tokenizer {

// token id -> compressed id, for ids 0..vocab_size - 1; compressed ids count up in the order in which they are first seen.
// Takes a tenth of a second for 130,000 tokens.
std::vector<int32_t> engram_token_map(const Tokenizer& tokenizer, int32_t vocab_size);

// What two tokens must share to have one compressed id: NFKC, NFD, marks dropped, lower case, runs of blanks to one space, trimmed
// (a lone space stays); the text itself if nothing is left of it.
std::string engram_key(std::string_view text);

}  // namespace deepinfer::tokenizer
