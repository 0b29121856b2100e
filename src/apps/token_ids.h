// Token ids as people write them: "1 2 3", "[1, 2, 3]".
#pragma once

#include <string_view>
#include <vector>

#include "base/result.h"
#include "core/request.h"

namespace deepinfer::apps {

// Separated by blanks, commas, brackets. Errors: kInvalidArgument (something else, or an id that is not below vocab_size).
Result<std::vector<TokenId>> parse_token_ids(std::string_view text, int32_t vocab_size);

}  // namespace deepinfer::apps
