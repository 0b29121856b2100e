// Pre-tokenizers: where a text is cut into pieces before merging. Each is a hand-written scanner for one known set of patterns
// (a regex engine is ten times slower and can be made to backtrack); which patterns, splitter.cc says above each scanner.
//
// Pieces cover the text without gaps. A scanner looks ahead at most to the end of the run it is in, so all are linear.
// Bytes that are not UTF-8 count as code points without a class.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace deepinfer::tokenizer {

enum class Splitter : uint8_t {
  kNone,        // the text is one piece
  kGpt2,        // the pattern of GPT-2
  kDigitsGpt2,  // every digit alone, then GPT-2's: SmolLM, StarCoder
  kLlama3,      // Llama 3: digits in threes, contractions in any case
  kQwen2,       // the same with every digit alone
  kDeepSeek3,   // digits in threes, CJK runs, then a pattern of its own: DeepSeek V3 and V4
};

// Finds the ends of the next pieces from `begin` on; returns how many were written. 0 only at the end of the text.
size_t split(Splitter splitter, std::string_view text, size_t begin, std::span<size_t> ends);

}  // namespace deepinfer::tokenizer
