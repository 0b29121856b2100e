// Finds added tokens (control tokens and user-defined ones) in a text, for callers that ask for it: tools, tests, the product's own
// prompts. Leftmost match wins, the longest of those that start there. A user's text is never shown to this.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "core/request.h"

namespace deepinfer::tokenizer {

struct AddedRule {
  TokenId id = -1;
  std::string spelling;     // not empty
  bool special = false;
  bool lstrip = false;      // takes the white space before it along
  bool rstrip = false;      // and after it
  bool normalized = false;  // is looked for after normalisation
};

class AddedTokens {
 public:
  struct Match {
    size_t begin = 0, end = 0;
    const AddedRule* rule = nullptr;  // null: none
  };

  AddedTokens() = default;
  // Two rules with one spelling: kCorruption.
  static Result<AddedTokens> build(std::vector<AddedRule> rules);

  bool empty() const { return rules_.empty(); }
  // The next match at or after `from`, white space not yet taken along. O(longest spelling * log(rules)) a byte that could start one.
  Match find(std::string_view text, size_t from) const;

 private:
  std::vector<AddedRule> rules_;    // by spelling: those that share a beginning are neighbours
  std::array<bool, 256> starts_{};  // bytes that start a spelling
};

}  // namespace deepinfer::tokenizer
