#include "apps/token_ids.h"

#include <charconv>
#include <fmt/format.h>

namespace deepinfer::apps {

Result<std::vector<TokenId>> parse_token_ids(std::string_view text, int32_t vocab_size) {
  std::vector<TokenId> ids;
  for (size_t at = 0; at < text.size();) {
    if (text[at] == ' ' || text[at] == ',' || text[at] == '\n' || text[at] == '\t' || text[at] == '[' || text[at] == ']') {
      ++at;
      continue;
    }
    TokenId id = 0;
    const auto [end, status] = std::from_chars(text.data() + at, text.data() + text.size(), id);
    if (status != std::errc() || id < 0 || id >= vocab_size)
      return Error{Code::kInvalidArgument, fmt::format("'{}' does not begin with a token id below {}", text.substr(at, 20), vocab_size)};
    ids.push_back(id);
    at = static_cast<size_t>(end - text.data());
  }
  return ids;
}

}  // namespace deepinfer::apps
