#include "sched/sequence.h"

#include <utility>

#include "base/check.h"

namespace deepinfer::sched {

void Sequence::prepare(uint64_t arrival, std::vector<TokenId> prompt, int32_t max_num_tokens, const kv::BlockKey& chain_root,
                       int32_t block_tokens) {
  CHECK(!prompt.empty());
  CHECK(static_cast<size_t>(max_num_tokens) >= prompt.size());
  order = arrival;
  tokens = std::move(prompt);
  num_prompt_tokens = num_tokens();
  root = chain_root;
  const auto max_num_blocks = static_cast<size_t>((max_num_tokens + block_tokens - 1) / block_tokens);
  tokens.reserve(static_cast<size_t>(max_num_tokens));
  blocks.reserve(max_num_blocks);
  keys.reserve(max_num_blocks);
  for (int32_t end = block_tokens; end <= num_prompt_tokens; end += block_tokens) {
    keys.push_back(kv::block_key(keys.empty() ? root : keys.back(),
                                 std::span(tokens).subspan(static_cast<size_t>(end - block_tokens), static_cast<size_t>(block_tokens))));
  }
}

void Sequence::prepare_sibling(uint64_t arrival, Sequence& first, int32_t max_num_tokens, int32_t block_tokens) {
  CHECK(first.state == State::kNew);
  CHECK(max_num_tokens >= first.num_prompt_tokens);
  order = arrival;
  num_prompt_tokens = first.num_prompt_tokens;
  first_choice = &first;
  root = first.root;
  const auto max_num_blocks = static_cast<size_t>((max_num_tokens + block_tokens - 1) / block_tokens);
  tokens.reserve(static_cast<size_t>(max_num_tokens));
  tokens.assign(first.tokens.begin(), first.tokens.end());
  blocks.reserve(max_num_blocks);
  keys.reserve(max_num_blocks);
  keys.assign(first.keys.begin(), first.keys.end());
}

}  // namespace deepinfer::sched
