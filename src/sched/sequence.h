// sched/sequence.h: one choice of a request as the scheduler sees it: its tokens, how many of them are computed, and its blocks.
// Made by whoever submits (so that hashing a long prompt costs the step nothing), then owned by the engine thread.
#pragma once

#include <cstdint>
#include <vector>

#include "kv/block_key.h"
#include "kv/block_pool.h"

namespace deepinfer::sched {

struct Sequence {
  enum class State : uint8_t { kNew, kWaiting, kRunning, kEnded };

  // Set before submission. `tokens` is the prompt, not empty; `root` is where its chain of block keys starts. Reserves room for
  // max_num_tokens tokens, so that growing to there allocates nothing, and names the prompt's full blocks.
  void prepare(uint64_t arrival, std::vector<TokenId> prompt, int32_t max_num_tokens, const kv::BlockKey& root, int32_t block_tokens);
  // The same for another choice of the same request, whose prompt waits until `first` has computed it.
  void prepare_sibling(uint64_t arrival, Sequence& first, int32_t max_num_tokens, int32_t block_tokens);

  uint64_t order = 0;           // arrival: unique, the older the smaller
  std::vector<TokenId> tokens;  // prompt, then output
  int32_t num_prompt_tokens = 0;
  const Sequence* first_choice = nullptr;  // of whom it waits to find the prompt's blocks; outlives this

  // The scheduler's, read-only for others.
  State state = State::kNew;
  bool prompt_computed = false;      // once true stays true
  int32_t num_computed_tokens = 0;   // their KV is in `blocks`
  int32_t num_published_blocks = 0;  // the first so many of `blocks` are named
  int32_t num_cached_tokens = 0;     // of the prompt, found and never computed here
  int32_t num_ever_computed = 0;     // the furthest that it came before a preemption
  std::vector<kv::BlockId> blocks;   // the block table: covers num_computed_tokens, and during a step its rows too
  std::vector<kv::BlockKey> keys;    // of the full blocks, as far as known: the prompt's from the start
  kv::BlockKey root;

  int32_t num_tokens() const { return static_cast<int32_t>(tokens.size()); }
  // At least 1 while alive: the last token is never in the cache before a step computes it, and with it the next logits.
  int32_t num_remaining_tokens() const { return num_tokens() - num_computed_tokens; }
};

}  // namespace deepinfer::sched
