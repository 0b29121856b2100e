#include "sched/scheduler.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace deepinfer::sched {
namespace {

using State = Sequence::State;

void insert_by_order(std::vector<Sequence*>& queue, Sequence& sequence) {
  const auto older = [](const Sequence* a, const Sequence* b) { return a->order < b->order; };
  queue.insert(std::upper_bound(queue.begin(), queue.end(), &sequence, older), &sequence);
}

void erase_from(std::vector<Sequence*>& queue, Sequence& sequence) {
  const auto it = std::find(queue.begin(), queue.end(), &sequence);
  CHECK(it != queue.end());
  queue.erase(it);
}

// A further choice whose first is still computing the prompt that they share.
bool waits_for_prompt(const Sequence& sequence) {
  const Sequence* first = sequence.first_choice;
  return first != nullptr && !first->prompt_computed && first->state != State::kEnded;
}

}  // namespace

void StepPlan::clear() {
  entries.clear();
  num_tokens = 0;
  num_logit_rows = 0;
}

void StepPlan::add(Sequence& sequence, int32_t num_rows) {
  const bool wants_logits = sequence.in_last_segment() && num_rows == sequence.num_remaining_tokens();
  entries.push_back({&sequence, num_rows, wants_logits});
  num_tokens += num_rows;
  num_logit_rows += wants_logits;
}

Scheduler::Scheduler(const SchedulerOptions& options, kv::BlockPool& pool) : options_(options), pool_(pool) {
  CHECK(options.max_num_batched_tokens >= 1);
  CHECK(options.max_num_sequences >= 1);
  CHECK(options.block_tokens >= 1 && options.block_tokens <= kv::kMaxBlockTokens);
  running_.reserve(static_cast<size_t>(options.max_num_sequences));
  waiting_.reserve(static_cast<size_t>(options.max_num_tracked));
  plan_.entries.reserve(static_cast<size_t>(options.max_num_sequences));
  for (int32_t slot = options.max_num_sequences; slot > 0; --slot) free_slots_.push_back(slot - 1);
}

void Scheduler::submit(Sequence& sequence) {
  CHECK(sequence.state == State::kNew);
  CHECK(num_blocks_for(sequence.num_tokens()) <= pool_.num_blocks());
  sequence.state = State::kWaiting;
  insert_by_order(waiting_, sequence);
}

const StepPlan& Scheduler::next_step() {
  plan_.clear();
  short_of_blocks_ = false;
  if (options_.replay.tokens == 0) {
    for (Sequence* sequence : running_) take_hits(*sequence);  // somebody else may have computed what comes next
  }
  schedule_running();
  if (!short_of_blocks_) admit_waiting();
  DCHECK(plan_.num_tokens <= options_.max_num_batched_tokens);
  return plan_;
}

void Scheduler::schedule_running() {
  // Decodes first: a late one is a stutter the user sees (TPOT), a late prefill only adds to its own TTFT. But the oldest gets at
  // least one row whatever it does, else a budget below the number of decodes could keep it waiting without end.
  const auto is_decode = [](const Sequence* s) { return s->num_remaining_tokens() == 1; };
  const auto num_decodes = static_cast<int32_t>(std::count_if(running_.begin(), running_.end(), is_decode));
  const int32_t kept_for_oldest = !running_.empty() && !is_decode(running_.front()) ? 1 : 0;
  int32_t decode_budget = std::min(num_decodes, options_.max_num_batched_tokens - kept_for_oldest);
  int32_t prefill_budget = options_.max_num_batched_tokens - decode_budget;
  for (size_t i = 0; i < running_.size(); ++i) {  // oldest first; make_room() may shorten the back
    Sequence& sequence = *running_[i];
    int32_t& budget = is_decode(&sequence) ? decode_budget : prefill_budget;
    const int32_t num_rows = make_room(sequence, std::min(budget, sequence.num_next_rows()));
    if (num_rows == 0) continue;
    plan_.add(sequence, num_rows);
    budget -= num_rows;
  }
}

void Scheduler::admit_waiting() {
  int32_t budget = options_.max_num_batched_tokens - plan_.num_tokens;
  int32_t num_slots = options_.max_num_sequences - static_cast<int32_t>(running_.size());
  for (size_t i = 0; i < waiting_.size() && num_slots > 0 && budget > 0;) {
    Sequence& sequence = *waiting_[i];
    num_slots -= 1;  // also for one that is passed over: its slot is kept
    if (waits_for_prompt(sequence)) {
      ++i;
      continue;
    }
    if (!try_admit(sequence)) break;
    waiting_.erase(waiting_.begin() + static_cast<ptrdiff_t>(i));
    insert_by_order(running_, sequence);
    sequence.state = State::kRunning;
    sequence.state_slot = free_slots_.back();
    free_slots_.pop_back();
    const int32_t num_wanted = std::min(budget, sequence.num_next_rows()), num_rows = make_room(sequence, num_wanted);
    CHECK(num_rows == num_wanted && !short_of_blocks_);  // try_admit() has seen the room
    if (num_rows == 0) continue;
    plan_.add(sequence, num_rows);
    budget -= num_rows;
  }
}

// Takes the prefix that is in the cache, and says whether the rest of the tokens has room beside the running sequences.
bool Scheduler::try_admit(Sequence& sequence) {
  const int32_t num_cached_tokens = sequence.num_cached_tokens;
  take_hits(sequence);
  // What the running ones still need for the tokens that they have, and one block each to grow: without that an admission would be
  // paid for with a preemption a moment later.
  int64_t num_kept = 0;
  for (const Sequence* other : running_) {
    num_kept += std::max(0, num_blocks_for(other->num_tokens()) + 1 - static_cast<int32_t>(other->blocks.size()));
  }
  const int64_t num_needed = num_blocks_for(sequence.num_tokens()) - static_cast<int64_t>(sequence.blocks.size());
  if (num_needed + num_kept <= pool_.num_available()) {
    sequence.cuts_chosen = true;
    return true;
  }
  CHECK(!running_.empty());  // alone it fits: submit() has checked
  release_blocks(sequence);
  sequence.num_cached_tokens = num_cached_tokens;  // it may find less when it tries again
  while (!sequence.cuts_chosen && !sequence.cuts.empty()) sequence.remove_last_cut(options_.block_tokens);
  return false;
}

// Moves on over blocks that are in the cache, but never over the last token: its row gives the logits.
void Scheduler::take_hits(Sequence& sequence) {
  const int32_t block_tokens = options_.block_tokens, num_findable = (sequence.num_tokens() - 1) / block_tokens;
  int32_t i = sequence.num_computed_tokens / block_tokens;
  const int32_t first = i;
  for (; i < num_findable; ++i) {
    const kv::BlockId block = find_block(sequence, i);
    if (block == kv::kNoBlock) break;
    const auto at = static_cast<size_t>(i);
    if (at < sequence.blocks.size()) {  // its own block, filled in part: somebody was faster
      pool_.release(sequence.blocks[at], sequence.retention);
      sequence.blocks[at] = block;
    } else {
      sequence.blocks.push_back(block);
    }
  }
  if (i == first) return;
  const int32_t found = i * block_tokens;
  sequence.num_cached_tokens += std::max(0, found - std::max(sequence.num_computed_tokens, sequence.num_ever_computed));
  sequence.num_published_blocks = i;
  if (may_cut(sequence, found)) sequence.add_cut(i, block_tokens);
  sequence.resume(found, options_.replay);
}

// The next block of the sequence's chain; with a reference.
kv::BlockId Scheduler::find_block(Sequence& sequence, int32_t block_idx) {
  const auto at = static_cast<size_t>(block_idx);
  const kv::BlockId block = pool_.acquire(sequence.key(at, options_.block_tokens));
  if (block != kv::kNoBlock || !may_cut(sequence, block_idx * options_.block_tokens)) return block;
  // The same tokens as they came out for one that was cut here.
  sequence.add_cut(block_idx, options_.block_tokens);
  const kv::BlockId other = pool_.acquire(sequence.key(at, options_.block_tokens));
  if (other == kv::kNoBlock) sequence.remove_last_cut(options_.block_tokens);
  return other;
}

bool Scheduler::may_cut(const Sequence& sequence, int32_t position) const {
  const bool is_cut = !sequence.cuts.empty() && sequence.cuts.back() == position;
  return !options_.replay.exact && !sequence.cuts_chosen && !is_cut && position > options_.replay.tokens;
}

// Blocks for the sequence's next num_rows rows; returns for how many rows there is room. Preempts from the back: the youngest has the
// least to recompute, and the oldest always advances, so this ends.
int32_t Scheduler::make_room(Sequence& sequence, int32_t num_rows) {
  const int32_t wanted = num_rows == 0 ? 0 : num_blocks_for(int64_t{sequence.num_computed_tokens} + num_rows);
  while (static_cast<int32_t>(sequence.blocks.size()) < wanted) {
    const kv::BlockId block = pool_.allocate();
    if (block != kv::kNoBlock) {
      sequence.blocks.push_back(block);
      continue;
    }
    short_of_blocks_ = true;
    if (running_.back() == &sequence) break;
    preempt(*running_.back());
  }
  return std::min(num_rows, static_cast<int32_t>(sequence.blocks.size()) * options_.block_tokens - sequence.num_computed_tokens);
}

void Scheduler::preempt(Sequence& sequence) {
  running_.pop_back();
  free_slots_.push_back(std::exchange(sequence.state_slot, -1));
  release_blocks(sequence);
  sequence.state = State::kWaiting;
  insert_by_order(waiting_, sequence);
  num_preemptions_ += 1;
}

// From the last to the first, so that a child is evicted before its parent.
void Scheduler::release_blocks(Sequence& sequence) {
  for (; !sequence.blocks.empty(); sequence.blocks.pop_back()) pool_.release(sequence.blocks.back(), sequence.retention);
  sequence.num_published_blocks = 0;
  sequence.resume(0, options_.replay);
}

void Scheduler::complete_step() {
  const auto block_tokens = static_cast<size_t>(options_.block_tokens);
  for (const StepPlan::Entry& entry : plan_.entries) {
    Sequence& sequence = *entry.sequence;
    sequence.num_computed_tokens += entry.num_tokens;
    sequence.num_ever_computed = std::max(sequence.num_ever_computed, sequence.num_computed_tokens);
    if (sequence.num_computed_tokens >= sequence.num_prompt_tokens) sequence.prompt_computed = true;
    const auto num_full = static_cast<size_t>(sequence.num_computed_tokens) / block_tokens;
    for (auto i = static_cast<size_t>(sequence.num_published_blocks); i < num_full; ++i) {
      const kv::BlockKey& key = sequence.key(i, options_.block_tokens);
      const kv::BlockId first = pool_.publish(sequence.blocks[i], key);
      if (first == sequence.blocks[i]) continue;
      // Computed twice at the same time. Equal keys are equal bytes: go on with the one that is named, and need one block less.
      const kv::BlockId shared = pool_.acquire(key);
      CHECK(shared == first);
      pool_.release(sequence.blocks[i], sequence.retention);
      sequence.blocks[i] = shared;
    }
    sequence.num_published_blocks = std::max(sequence.num_published_blocks, static_cast<int32_t>(num_full));
    if (sequence.num_computed_tokens == sequence.segment_end() && !sequence.in_last_segment()) sequence.resume(sequence.num_computed_tokens, options_.replay);
  }
}

void Scheduler::append_token(Sequence& sequence, TokenId token) {
  DCHECK(sequence.state == State::kRunning);
  DCHECK(sequence.num_remaining_tokens() == 0);
  DCHECK(sequence.tokens.size() < sequence.tokens.capacity());
  sequence.tokens.push_back(token);
}

void Scheduler::end(Sequence& sequence, Trust trust) {
  CHECK(sequence.state == State::kRunning || sequence.state == State::kWaiting);
  erase_from(sequence.state == State::kRunning ? running_ : waiting_, sequence);
  if (sequence.state == State::kRunning) free_slots_.push_back(std::exchange(sequence.state_slot, -1));
  if (trust == Trust::kForget) {
    for (const kv::BlockId block : sequence.blocks) pool_.retract(block);
  }
  release_blocks(sequence);
  sequence.state = State::kEnded;
}

int64_t Scheduler::num_pending_prefill_tokens() const {
  int64_t total = 0;
  for (const Sequence* sequence : running_) {
    const auto num_cuts_ahead = static_cast<int64_t>(sequence->cuts.size() - sequence->num_cuts_passed);
    total += std::max(0, sequence->num_remaining_tokens() - 1) + num_cuts_ahead * options_.replay.tokens;
  }
  for (const Sequence* sequence : waiting_) {
    total += waits_for_prompt(*sequence) ? options_.block_tokens : sequence->num_remaining_tokens();
  }
  return total;
}

}  // namespace deepinfer::sched
