// Answers of the Messages protocol: content blocks, one after the other, and the events that open, fill and close them.
#pragma once

#include "recipe/answer.h"

namespace deepinfer::recipe {

std::unique_ptr<Answer> make_messages_answer(AnswerInfo info, const tokenizer::Tokenizer& tokenizer);

}  // namespace deepinfer::recipe
