// From a parsed request to the tokens that the model reads: what every user of the parsers does next.
#pragma once

#include <vector>

#include "base/result.h"
#include "recipe/prompt.h"
#include "recipe/protocol.h"
#include "recipe/token_cache.h"

namespace deepinfer::recipe {

struct EncodedRequest {
  std::vector<TokenId> ids;
  Prompt prompt;  // of ids that a client gave, and of a text whose control tokens count: segments for people, not to be encoded again
};

struct EncodeContext {
  const tokenizer::Tokenizer& tokenizer;
  const PromptRenderer* renderer = nullptr;  // null: text completions only
  bool text_bos = false;                     // text completions begin with the vocabulary's BOS
  TokenCache* cache = nullptr;
};

// Errors: those of the renderer; kInvalidArgument (a suffix that the vocabulary has no tokens for; a conversation without a renderer).
Result<EncodedRequest> encode_request(const ParsedRequest& request, const EncodeContext& context);

}  // namespace deepinfer::recipe
