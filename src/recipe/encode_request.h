// From a parsed request to the tokens that the model reads: what every user of the parsers does next.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "base/result.h"
#include "core/request.h"
#include "recipe/prompt.h"
#include "recipe/protocol.h"
#include "recipe/token_cache.h"

namespace deepinfer::recipe {

struct EncodedRequest {
  std::vector<TokenId> ids;
  std::vector<ImageSpan> images;  // their places in ids
  Prompt prompt;  // of ids that a client gave, and of a text whose control tokens count: segments for people, not to be encoded again
};

struct EncodeContext {
  const tokenizer::Tokenizer& tokenizer;
  const PromptRenderer* renderer = nullptr;  // null: text completions only
  bool text_bos = false;                     // text completions begin with the vocabulary's BOS
  // AnswerSyntax, of completions of plain text. Whoever puts control tokens into a prompt (parse_special, ids) is shown those of the answer.
  bool hides_added_tokens = false;
  TokenCache* cache = nullptr;
  Digest256 scope{};                         // within which the cache knows texts again
  // A picture as the model takes it; called in the order of the prompt. Empty: each remains one position, and none is given.
  std::function<Result<std::shared_ptr<const InputImage>>(const Image&)> read_image{};
};

// Errors: those of the renderer and of read_image; kInvalidArgument (a suffix that the vocabulary has no tokens for; a conversation without a renderer).
Result<EncodedRequest> encode_request(const ParsedRequest& request, const EncodeContext& context);

}  // namespace deepinfer::recipe
