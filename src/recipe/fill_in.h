// Fill in the middle: prompts that show what comes before and after the place to be filled, by control tokens that some models know.
#pragma once

#include <optional>
#include <string_view>

#include "recipe/prompt.h"

namespace deepinfer::recipe {

// nullopt: the vocabulary has no such tokens. Known layouts: DeepSeek's (begin, before, hole, after, end) behind a begin of sentence, and
// Qwen's (before and after, each behind its mark, then the mark of the middle). The texts are plain, whatever they spell.
std::optional<Prompt> fill_in_prompt(std::string_view before, std::string_view after, const tokenizer::Tokenizer& tokenizer);

}  // namespace deepinfer::recipe
