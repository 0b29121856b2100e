// Answers of the Responses protocol: output items, one after the other, and the numbered events that open, fill and close them.
#pragma once

#include "recipe/answer.h"

namespace deepinfer::recipe {

std::unique_ptr<Answer> make_responses_answer(AnswerInfo info, const tokenizer::Tokenizer& tokenizer);

}  // namespace deepinfer::recipe
