// sched/sequence.h: one choice of a request as the scheduler sees it: its tokens, how many of them are computed, and its blocks.
// Made by whoever submits (so that hashing a long prompt costs the step nothing), then owned by the engine thread.
//
// Replay. Some models keep state beside the blocks (windows of the last rows), which is private and lost with a preemption, and which
// a prefix hit does not bring. It is rebuilt by running rows before the hit again:
//   exact    so many that what follows has the bits of a run without a gap.
//   bounded  a window's worth, whose own windows begin with them: a *cut*. What follows is a little different, and is so wherever it is
//            computed: it is a function of the tokens and of all cuts, which therefore are part of the keys (kv/block_key.h) and, once
//            chosen, of the sequence: computed again it passes through the same cuts, one segment after the other.
// A cut whose rows reach back to the beginning is none: windows begin there anyway.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "kv/block_key.h"
#include "kv/block_pool.h"

namespace deepinfer::sched {

struct Replay {
  int32_t tokens = 0;  // rows before a position that are run again; 0: the model has no state beside its blocks
  bool exact = true;
};

// Something else than text in a prompt, a picture mostly, that takes positions [start, start + num_tokens).
struct Media {
  int32_t start = 0, num_tokens = 0;
  Digest256 digest;
};

struct Sequence {
  enum class State : uint8_t { kNew, kWaiting, kRunning, kEnded };

  // Set before submission. `tokens` is the prompt, not empty; `root` is where its chain of block keys starts. Reserves room for
  // max_num_tokens tokens, so that growing to there allocates nothing, and names the prompt's full blocks. in_prompt: ascending.
  void prepare(uint64_t arrival, std::vector<TokenId> prompt, int32_t max_num_tokens, const kv::BlockKey& root, int32_t block_tokens,
               std::vector<Media> in_prompt = {});
  // The same for another choice of the same request, whose prompt waits until `first` has computed it.
  void prepare_sibling(uint64_t arrival, Sequence& first, int32_t max_num_tokens, int32_t block_tokens);

  uint64_t order = 0;           // arrival: unique, the older the smaller
  std::vector<TokenId> tokens;  // prompt, then output
  int32_t num_prompt_tokens = 0;
  std::vector<Media> media;     // in the prompt, ascending
  uint8_t retention = 0;        // class under which its blocks are kept
  const Sequence* first_choice = nullptr;  // of whom it waits to find the prompt's blocks; outlives this

  int32_t num_ready_tokens = kAllReady;  // rows from here on wait for something, a picture's encoding mostly; others may change it between steps
  static constexpr int32_t kAllReady = INT32_MAX;

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
  int32_t state_slot = -1;           // while it runs: below max_num_sequences, nobody else's
  std::vector<int32_t> cuts;         // ascending, multiples of a block, all in the prompt
  bool cuts_chosen = false;          // at its first admission
  size_t num_cuts_passed = 0;        // before the rows that are next
  int32_t window_start = 0;          // of the rows that are next: no window row below is read
  int32_t global_start = 0;          // blocks hold what is below: rows there are run for the windows alone

  int32_t num_tokens() const { return static_cast<int32_t>(tokens.size()); }
  // At least 1 while alive: the last token is never in the cache before a step computes it, and with it the next logits.
  int32_t num_remaining_tokens() const { return num_tokens() - num_computed_tokens; }
  bool in_last_segment() const { return num_cuts_passed == cuts.size(); }
  int32_t segment_end() const { return in_last_segment() ? num_tokens() : cuts[num_cuts_passed]; }
  // Rows that can be next: to the next cut or to the end, as far as they are ready.
  int32_t num_next_rows() const { return std::max(0, std::min(segment_end(), num_ready_tokens) - num_computed_tokens); }

  // The key that full block `block_idx` has after the blocks that `parent` names. Allocates where a picture stands in the block.
  kv::BlockKey key_after(const kv::BlockKey& parent, size_t block_idx, int32_t block_tokens) const;
  // The key of full block `block_idx`, at most one more than are known.
  const kv::BlockKey& key(size_t block_idx, int32_t block_tokens);
  void add_cut(int32_t block_idx, int32_t block_tokens);  // after all others; forgets the keys from there on
  void remove_last_cut(int32_t block_tokens);
  // Goes on after the first num_found tokens, which are in the blocks: sets the rows that are next.
  void resume(int32_t num_found, const Replay& replay);
};

}  // namespace deepinfer::sched
