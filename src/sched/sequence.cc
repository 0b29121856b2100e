#include "sched/sequence.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace deepinfer::sched {

void Sequence::prepare(uint64_t arrival, std::vector<TokenId> prompt, int32_t max_num_tokens, const kv::BlockKey& chain_root,
                       int32_t block_tokens, std::vector<Media> in_prompt) {
  CHECK(!prompt.empty());
  CHECK(static_cast<size_t>(max_num_tokens) >= prompt.size());
  order = arrival;
  tokens = std::move(prompt);
  num_prompt_tokens = num_tokens();
  root = chain_root;
  media = std::move(in_prompt);
  const auto max_num_blocks = static_cast<size_t>((max_num_tokens + block_tokens - 1) / block_tokens);
  tokens.reserve(static_cast<size_t>(max_num_tokens));
  blocks.reserve(max_num_blocks);
  keys.reserve(max_num_blocks);
  cuts.reserve(static_cast<size_t>(num_prompt_tokens / block_tokens));
  for (size_t block = 0; block < static_cast<size_t>(num_prompt_tokens / block_tokens); ++block) key(block, block_tokens);
}

void Sequence::prepare_sibling(uint64_t arrival, Sequence& first, int32_t max_num_tokens, int32_t block_tokens) {
  CHECK(first.state == State::kNew);
  CHECK(max_num_tokens >= first.num_prompt_tokens);
  order = arrival;
  num_prompt_tokens = first.num_prompt_tokens;
  first_choice = &first;
  root = first.root;
  media = first.media;
  const auto max_num_blocks = static_cast<size_t>((max_num_tokens + block_tokens - 1) / block_tokens);
  tokens.reserve(static_cast<size_t>(max_num_tokens));
  tokens.assign(first.tokens.begin(), first.tokens.end());
  blocks.reserve(max_num_blocks);
  keys.reserve(max_num_blocks);
  keys.assign(first.keys.begin(), first.keys.end());
  cuts.reserve(static_cast<size_t>(num_prompt_tokens / block_tokens));
}

kv::BlockKey Sequence::key_after(const kv::BlockKey& parent, size_t block_idx, int32_t block_tokens) const {
  const int32_t begin = static_cast<int32_t>(block_idx) * block_tokens, end = begin + block_tokens;
  std::vector<kv::BlockMedia> inside;
  for (const Media& item : media) {
    if (item.start < end && item.start + item.num_tokens > begin) inside.push_back({.offset = item.start - begin, .digest = item.digest});
  }
  return kv::block_key(parent, std::span(tokens).subspan(static_cast<size_t>(begin), static_cast<size_t>(block_tokens)), inside);
}

const kv::BlockKey& Sequence::key(size_t block_idx, int32_t block_tokens) {
  DCHECK(block_idx <= keys.size());
  if (block_idx < keys.size()) return keys[block_idx];
  kv::BlockKey parent = block_idx == 0 ? root : keys.back();
  if (std::binary_search(cuts.begin(), cuts.end(), static_cast<int32_t>(block_idx) * block_tokens)) parent = kv::replay_key(parent);
  return keys.emplace_back(key_after(parent, block_idx, block_tokens));
}

void Sequence::add_cut(int32_t block_idx, int32_t block_tokens) {
  cuts.push_back(block_idx * block_tokens);
  keys.resize(std::min(keys.size(), static_cast<size_t>(block_idx)));
}

void Sequence::remove_last_cut(int32_t block_tokens) {
  keys.resize(std::min(keys.size(), static_cast<size_t>(cuts.back() / block_tokens)));
  cuts.pop_back();
}

void Sequence::resume(int32_t num_found, const Replay& replay) {
  global_start = num_found;
  num_cuts_passed = static_cast<size_t>(std::upper_bound(cuts.begin(), cuts.end(), num_found) - cuts.begin());
  if (replay.exact) {
    window_start = std::max(0, num_found - replay.tokens);
  } else {
    window_start = num_cuts_passed == 0 ? 0 : cuts[num_cuts_passed - 1] - replay.tokens;
  }
  num_computed_tokens = window_start;
}

}  // namespace deepinfer::sched
