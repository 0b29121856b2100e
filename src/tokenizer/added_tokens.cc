#include "tokenizer/added_tokens.h"

#include <algorithm>
#include <utility>

namespace deepinfer::tokenizer {

Result<AddedTokens> AddedTokens::build(std::vector<AddedRule> rules) {
  AddedTokens added;
  std::sort(rules.begin(), rules.end(), [](const AddedRule& a, const AddedRule& b) { return a.spelling < b.spelling; });
  for (size_t i = 0; i < rules.size(); ++i) {
    if (i > 0 && rules[i].spelling == rules[i - 1].spelling) {
      return Error{Code::kCorruption, "two added tokens are spelt \"" + rules[i].spelling + "\""};
    }
    added.starts_[static_cast<unsigned char>(rules[i].spelling[0])] = true;
  }
  added.rules_ = std::move(rules);
  return added;
}

AddedTokens::Match AddedTokens::find(std::string_view text, size_t from) const {
  const auto byte_of = [](std::string_view s, size_t i) { return static_cast<unsigned char>(s[i]); };
  for (size_t begin = from; begin < text.size(); ++begin) {
    if (!starts_[byte_of(text, begin)]) continue;
    // [low, high): the rules that agree with the text so far; one that ends here comes first among them.
    auto low = rules_.begin(), high = rules_.end();
    const AddedRule* longest = nullptr;
    for (size_t depth = 0; low != high; ++depth) {
      if (low->spelling.size() == depth) {
        longest = &*low;
        if (++low == high) break;
      }
      if (begin + depth == text.size()) break;
      const unsigned char next = byte_of(text, begin + depth);
      low = std::partition_point(low, high, [&](const AddedRule& r) { return byte_of(r.spelling, depth) < next; });
      high = std::partition_point(low, high, [&](const AddedRule& r) { return byte_of(r.spelling, depth) == next; });
    }
    if (longest) return {begin, begin + longest->spelling.size(), longest};
  }
  return {};
}

}  // namespace deepinfer::tokenizer
