// sched/scheduler.h: decides what the next step runs: which sequences, how many tokens of each, in which blocks. Pure: no I/O, clock,
// logging or unordered iteration, so the same calls give the same plans. Engine thread only; after construction nothing allocates
// (as long as no more than max_num_tracked sequences are inside).
//
// Policy. Seniority is order of arrival, and all of it follows from that:
// - Decodes (one token left to compute) come first in the budget, then prefills in chunks, oldest first, so prompts are finished in turn.
// - When blocks run out the youngest running sequence is preempted: it loses its blocks and waits, ahead of all that came later; what
//   it computes again it mostly finds by key. The youngest itself is not preempted for its own sake but stalls, its blocks in place.
//   So the oldest always advances, and since the engine admits nothing larger than the pool, everybody becomes the oldest and ends.
// - A waiting sequence is admitted when the rest of its prompt fits beside what the running ones need to go on; nobody overtakes
//   the head of the queue for being smaller.
// - Further choices of a request (n > 1) wait until the first has computed the prompt, then find its full blocks by key and compute
//   the rest (at most block_tokens rows): no second path to keep equal. The loser: copying the last, partial block.
//
// - Rows that are not ready (Sequence::num_ready_tokens) are left out; their sequence keeps its place and its blocks, and others use the
//   budget.
//
// - Models with state beside their blocks (sched/sequence.h, Replay) take hits when they are admitted and not while they run, where a
//   jump would cost a replay. Replayed rows are rows like others: they are in the plan and in the budget.
//
// Invariants: a sequence is in one queue; a plan fits max_num_batched_tokens; a running sequence owns blocks for all it computed; blocks
// are named only by complete_step(), after their step.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kv/block_pool.h"
#include "sched/sequence.h"

namespace deepinfer::sched {

struct SchedulerOptions {
  int32_t max_num_batched_tokens = 512;  // rows a step
  int32_t max_num_sequences = 64;        // running at a time
  int32_t max_num_tracked = 1024;        // running and waiting together
  int32_t block_tokens = 32;
  Replay replay{};
};

struct StepPlan {
  struct Entry {
    Sequence* sequence;
    int32_t num_tokens;  // computes tokens [num_computed_tokens, num_computed_tokens + num_tokens)
    bool wants_logits;   // they are its last: the step gives the next token
  };
  std::vector<Entry> entries;
  int32_t num_tokens = 0;
  int32_t num_logit_rows = 0;

  void clear();
  void add(Sequence& sequence, int32_t num_rows);
};

class Scheduler {
 public:
  Scheduler(const SchedulerOptions& options, kv::BlockPool& pool);
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  // Takes a prepared sequence in; it must fit the pool alone and stay in place until end().
  void submit(Sequence& sequence);

  // What to run now. Empty only if nothing is waiting or running, or if all that could run waits for rows to get ready. Valid until the next call; complete_step() must follow.
  const StepPlan& next_step();
  // The plan's rows are computed: counts them and names the blocks that they filled.
  void complete_step();

  // A sampled token: the sequence's next row. Only when all of its tokens are computed.
  void append_token(Sequence& sequence, TokenId token);

  enum class Trust : uint8_t { kKeep, kForget };  // may others still find its blocks?
  // Takes a sequence out, wherever it is, and gives its blocks back. Not between next_step() and complete_step().
  void end(Sequence& sequence, Trust trust = Trust::kKeep);

  std::span<Sequence* const> running() const { return running_; }  // oldest first
  std::span<Sequence* const> waiting() const { return waiting_; }  // oldest first
  uint64_t num_preemptions() const { return num_preemptions_; }
  int64_t num_pending_prefill_tokens() const;  // not computed yet, of all; hits that may come not deducted

 private:
  int32_t num_blocks_for(int64_t num_tokens) const {
    return static_cast<int32_t>((num_tokens + options_.block_tokens - 1) / options_.block_tokens);
  }
  void schedule_running();
  void admit_waiting();
  bool try_admit(Sequence& sequence);
  int32_t make_room(Sequence& sequence, int32_t num_rows);
  void take_hits(Sequence& sequence);
  kv::BlockId find_block(Sequence& sequence, int32_t block_idx);
  bool may_cut(const Sequence& sequence, int32_t position) const;
  void preempt(Sequence& sequence);
  void release_blocks(Sequence& sequence);

  const SchedulerOptions options_;
  kv::BlockPool& pool_;
  std::vector<Sequence*> running_, waiting_;  // each by order
  std::vector<int32_t> free_slots_;           // of state; running_.size() are taken
  StepPlan plan_;
  bool short_of_blocks_ = false;  // in this step somebody was preempted or stalled
  uint64_t num_preemptions_ = 0;
};

}  // namespace deepinfer::sched
