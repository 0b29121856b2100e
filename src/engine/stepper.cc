#include "engine/stepper.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "kernels/linear.h"

namespace deepinfer::engine {
namespace {

using sched::StepPlan;
using State = sched::Sequence::State;

SequenceState& state_of(sched::Sequence& sequence) { return static_cast<SequenceState&>(sequence); }

// false: the grammar engine gave up.
bool follow_constraint(SequenceState& sequence, TokenId token) {
  if (!sequence.matcher) return true;
  if (sequence.constrained) return sequence.matcher->accept(token).has_value();
  sequence.constrained = token == sequence.request->constraint_begins_after;
  return true;
}

// The pictures of a request that have a position in [begin, end): a piece of its list.
std::span<RequestImage> images_between(RequestState& request, int32_t begin, int32_t end) {
  const auto first = std::find_if(request.images.begin(), request.images.end(), [&](const RequestImage& image) { return image.end() > begin; });
  const auto last = std::find_if(first, request.images.end(), [&](const RequestImage& image) { return image.span.start >= end; });
  return {first, last};
}

bool is_alive(const sched::Sequence& sequence) { return sequence.state != State::kEnded; }

sched::Replay replay_of(const model::KvLayout& layout, bool bounded) {
  if (layout.state_bytes == 0) return {};
  return {.tokens = bounded ? layout.replay_tokens : layout.exact_replay_tokens, .exact = !bounded};
}

}  // namespace

uint64_t Stepper::arena_bytes(const model::KvLayout& layout, const StepperOptions& options) {
  return static_cast<uint64_t>(options.num_blocks) * static_cast<uint64_t>(layout.block_bytes) +
         static_cast<uint64_t>(options.max_num_sequences) * static_cast<uint64_t>(layout.state_bytes);
}

Stepper::Stepper(model::Model& model, Workers& workers, const Clock& clock, kv::Arena arena, const StepperOptions& options)
    : model_(model),
      workers_(workers),
      clock_(clock),
      options_(options),
      arena_(std::move(arena)),
      pool_(options.num_blocks, options.class_seconds),
      scheduler_({.max_num_batched_tokens = options.max_num_batched_tokens,
                  .max_num_sequences = options.max_num_sequences,
                  .max_num_tracked = options.max_num_requests * kMaxChoices,
                  .block_tokens = model.kv_layout().block_tokens,
                  .replay = replay_of(model.kv_layout(), options.bounded_replay)},
                 pool_),
      sampler_(model.info().vocab_size, default_isa()) {
  CHECK(arena_.size() >= arena_bytes(model.kv_layout(), options));
  const auto vocab_size = static_cast<size_t>(model.info().vocab_size);
  const auto max_rows = static_cast<size_t>(options.max_num_batched_tokens), max_sequences = static_cast<size_t>(options.max_num_sequences);
  for (int i = 0; i < workers.size(); ++i) scratch_.emplace_back(model.info().vocab_size);
  if (options.constraints) masks_ = std::make_unique<MaskWorker>(options.max_num_sequences, model.info().vocab_size, workers.leave_processor());
  tokens_.reserve(max_rows);
  sequences_.reserve(max_sequences);
  logit_rows_.reserve(max_sequences);
  sampled_.reserve(max_sequences);
  num_named_.reserve(max_sequences);
  samples_.resize(max_sequences);
  logits_ = std::make_unique_for_overwrite<float[]>(max_sequences * vocab_size);
  requests_.reserve(static_cast<size_t>(options.max_num_requests));
  ended_.reserve(static_cast<size_t>(options.max_num_requests));
  if (model.image_encoder() != nullptr) images_ = std::make_unique<ImageCache>(*model.image_encoder(), options.image_cache_bytes);
  model.reserve({.max_rows = options.max_num_batched_tokens,
                 .max_sequences = options.max_num_sequences,
                 .max_logit_rows = options.max_num_sequences,
                 .max_context = options.max_context},
                workers);
}

// Before anything is looked for: what is past its time is not there.
void Stepper::tell_time() { pool_.set_time(options_.time->boot_ns() / 1'000'000'000); }

void Stepper::add(std::unique_ptr<RequestState> request) {
  tell_time();
  RequestState& added = *request;
  requests_.push_back(std::move(request));
  added.loading = loader_ && loader_->begin(added, rates_.prefill_seconds_per_token());
  if (!added.loading) schedule(added);
}

void Stepper::schedule(RequestState& request) {
  request.loading = false;
  for (SequenceState& choice : request.choices) scheduler_.submit(choice);
}

void Stepper::use_store(kv::BlockStore& store, std::function<void()> wake) {
  loader_ = std::make_unique<BlockLoader>(store, pool_, arena_.data(), model_.kv_layout(), replay_of(model_.kv_layout(), options_.bounded_replay), clock_,
                                          std::move(wake));
}

void Stepper::take_loaded() {
  if (!loader_ || !loader_->waiting()) return;
  tell_time();
  loaded_.clear();
  loader_->poll(loaded_);
  for (RequestState* request : loaded_) schedule(*request);
}

void Stepper::step() {
  const int64_t begin_ns = clock_.now_ns();
  tell_time();
  if (images_) await_images();
  const StepPlan& plan = scheduler_.next_step();
  build_batch(plan);
  offer_masks();
  Result<> ran;
  if (!plan.entries.empty()) ran = model_.forward({.tokens = tokens_, .sequences = sequences_, .logit_rows = logit_rows_}, arena_.data(), logits_.get(), workers_);
  scheduler_.complete_step();
  totals_.steps_total += 1;
  if (!ran) return fail_step(plan, ran.error());
  if (images_) release_images(plan);
  if (loader_) publish_filled(plan);
  sample(plan);
  for (const StepPlan::Entry& entry : plan.entries) count_prompt(state_of(*entry.sequence));
  for (size_t i = 0; i < sampled_.size(); ++i) deliver(*sampled_[i], samples_[i]);
  if (images_) encode_awaited(plan);
  if (awaited_.image == nullptr) record_rates(plan, begin_ns);  // else its time says nothing of rows
}

// Lets every sequence run up to the first picture whose rows are not here. Only those that a running sequence is about to meet are looked for:
// of a prompt that was found in the cache most are never wanted.
void Stepper::await_images() {
  awaited_ = {};
  const auto look = [&](sched::Sequence& sequence, bool is_running) {
    RequestState& request = *state_of(sequence).request;
    sequence.num_ready_tokens = sched::Sequence::kAllReady;
    for (RequestImage& image : images_between(request, sequence.num_computed_tokens, sequence.num_prompt_tokens)) {
      const bool is_near = is_running && image.span.start < sequence.num_computed_tokens + options_.max_num_batched_tokens;
      if (!image.rows && is_near) hold(request, image, images_->find(image.key));
      if (image.rows) continue;
      sequence.num_ready_tokens = image.span.start;
      if (is_near && awaited_.image == nullptr) awaited_ = {&request, &image};
      return;
    }
  };
  for (sched::Sequence* sequence : scheduler_.running()) look(*sequence, true);
  for (sched::Sequence* sequence : scheduler_.waiting()) look(*sequence, false);
}

// The oldest sequence's next picture, by as much as the step has left of its budget: so a stream waits for pictures no longer than for prompts.
void Stepper::encode_awaited(const StepPlan& plan) {
  if (awaited_.image != nullptr) {
    const int64_t num_rows_left = options_.max_num_batched_tokens - plan.num_tokens;
    const double num_products = model_.cost({.num_rows = num_rows_left, .num_decoder_rows = num_rows_left}).products;
    hold(*awaited_.request, *awaited_.image, images_->encode(awaited_.image->key, *awaited_.image->span.image, num_products, workers_));
  }
  totals_.images_encoded_total = images_->num_encoded();
  totals_.images_reused_total = images_->num_reused();
}

void Stepper::hold(RequestState& request, RequestImage& image, ImageCache::Rows rows) {
  request.image_rows[static_cast<size_t>(&image - request.images.data())].rows = rows ? rows->data() : nullptr;
  image.rows = std::move(rows);
}

// Rows that every choice has behind it. A preemption or a replay may want them once more: then they are asked for again.
void Stepper::release_images(const StepPlan& plan) {
  for (const StepPlan::Entry& entry : plan.entries) {
    RequestState& request = *state_of(*entry.sequence).request;
    for (RequestImage& image : request.images) {
      const auto passed = [&](const SequenceState& choice) { return !is_alive(choice) || choice.num_computed_tokens >= image.end(); };
      if (!image.rows || !std::all_of(request.choices.begin(), request.choices.end(), passed)) continue;
      hold(request, image, nullptr);
    }
  }
}

void Stepper::build_batch(const StepPlan& plan) {
  tokens_.clear();
  sequences_.clear();
  logit_rows_.clear();
  sampled_.clear();
  num_named_.clear();
  num_decode_rows_ = 0;
  for (const StepPlan::Entry& entry : plan.entries) {
    SequenceState& sequence = state_of(*entry.sequence);
    if (!sequence.request->started) note_match(sequence);
    mark_started(*sequence.request);
    num_named_.push_back(sequence.num_published_blocks);
    const int32_t start = sequence.num_computed_tokens;
    sequences_.push_back(rows_of(sequence, entry.num_tokens));
    const auto first = sequence.tokens.begin() + start;
    tokens_.insert(tokens_.end(), first, first + entry.num_tokens);
    num_decode_rows_ += entry.num_tokens == 1 && entry.wants_logits;
    if (!entry.wants_logits) continue;
    logit_rows_.push_back(static_cast<int32_t>(tokens_.size()) - 1);
    sampled_.push_back(&sequence);
  }
}

// What was found in memory, unless the store knew of more that did not come.
void Stepper::note_match(const SequenceState& sequence) {
  PrefixMatch& match = sequence.request->match;
  const int32_t found = sequence.num_cached_tokens;
  if (found == 0 || found < match.tokens) return;
  match.tokens = found;
  match.age_s = pool_.age_s(sequence.keys[static_cast<size_t>(found / model_.kv_layout().block_tokens) - 1]).value_or(-1);
}

model::SequenceRows Stepper::rows_of(const SequenceState& sequence, int32_t num_rows) const {
  const int32_t start = sequence.num_computed_tokens;
  model::SequenceRows rows{.first_row = static_cast<int32_t>(tokens_.size()), .num_rows = num_rows, .start = start, .block_table = sequence.blocks};
  RequestState& request = *sequence.request;
  const std::span<RequestImage> images = images_between(request, start, start + num_rows);
  if (!images.empty()) rows.images = std::span(request.image_rows).subspan(static_cast<size_t>(images.data() - request.images.data()), images.size());
  const model::KvLayout& layout = model_.kv_layout();
  if (layout.state_bytes == 0) return rows;
  rows.state = arena_.data() + options_.num_blocks * layout.block_bytes + sequence.state_slot * layout.state_bytes;
  rows.previous = std::span(sequence.tokens).first(static_cast<size_t>(start));
  rows.window_start = sequence.window_start;
  rows.global_start = sequence.global_start;
  // With bounded replay the decoder layers see the end of the prompt and what follows; its place does not change with progress or hits.
  rows.decoder_start = options_.bounded_replay ? std::max(0, sequence.num_prompt_tokens - layout.replay_tokens) : sequence.window_start;
  return rows;
}

// Each block once, by the sequence that filled it: one that was found is stored already, or is on its way.
void Stepper::publish_filled(const StepPlan& plan) {
  for (size_t i = 0; i < plan.entries.size(); ++i) {
    const SequenceState& sequence = state_of(*plan.entries[i].sequence);
    for (auto block = static_cast<size_t>(num_named_[i]); block < static_cast<size_t>(sequence.num_published_blocks); ++block) {
      loader_->publish(*sequence.request, sequence.keys[block], sequence.blocks[block]);
    }
  }
}

void Stepper::offer_masks() {
  bool any = false;
  for (size_t row = 0; row < sampled_.size(); ++row) {
    if (!sampled_[row]->constrained) continue;
    masks_->offer(static_cast<int32_t>(row), *sampled_[row]->matcher);
    any = true;
  }
  if (any) masks_->start();
}

void Stepper::sample(const StepPlan& plan) {
  if (plan.num_logit_rows <= 1 || workers_.size() == 1) {  // one row is not worth waking anybody
    for (int32_t row = 0; row < plan.num_logit_rows; ++row) sample_row(*sampled_[static_cast<size_t>(row)], row, 0);
    return;
  }
  workers_.run([&](Team& team) {
    team.reset_tickets();  // rows differ in work: greedy is one pass, a wide top_p many
    for (int64_t row = team.next_ticket(); row < plan.num_logit_rows; row = team.next_ticket()) {
      sample_row(*sampled_[static_cast<size_t>(row)], static_cast<int32_t>(row), team.index());
    }
  });
}

void Stepper::sample_row(SequenceState& sequence, int32_t row, int32_t thread) {
  const RequestState& request = *sequence.request;
  samples_[static_cast<size_t>(row)].valid = false;
  SampleInput input{.params = &request.sampling, .counts = &sequence.counts, .choice = sequence.choice, .position = sequence.num_tokens()};
  const bool waits_for_constraint = sequence.matcher && !sequence.constrained;
  if (sequence.num_output_tokens() < request.sampling.min_tokens || waits_for_constraint) input.banned = request.stop_tokens;
  const bool thought_enough = request.sampling.thinking_budget >= 0 && sequence.num_output_tokens() >= request.sampling.thinking_budget;
  if (thought_enough && !sequence.thinking_ended) input.forced = request.sampling.thinking_end;
  if (sequence.constrained) {
    const auto mask = masks_->take(row);
    if (!mask) return;  // the sample stays invalid
    input.allowed = *mask;
  }
  float* logits = logits_.get() + static_cast<size_t>(row) * static_cast<size_t>(model_.info().vocab_size);
  samples_[static_cast<size_t>(row)] = sampler_.sample(logits, input, scratch_[static_cast<size_t>(thread)]);
}

void Stepper::fail(SequenceState& sequence, const char* message) {
  TokenEvent event = event_for(sequence);
  event.message = message;
  end_sequence(sequence, event, FinishReason::kError);
}

// The blocks that it filled have names by now, which kError takes from them again before anybody can look.
void Stepper::fail_step(const StepPlan& plan, const Error& error) {
  if (options_.log) options_.log("a step has failed, and the requests in it: " + error.message);
  for (size_t row = 0; row < sampled_.size(); ++row)
    if (sampled_[row]->constrained) (void)masks_->take(static_cast<int32_t>(row));  // offered; it may be under way
  for (const StepPlan::Entry& entry : plan.entries) fail(state_of(*entry.sequence), "the model's weights could not be read");
}

void Stepper::deliver(SequenceState& sequence, const Sample& sample) {
  const RequestState& request = *sequence.request;
  if (!sample.valid) {
    return fail(sequence, sequence.constrained ? "nothing that satisfies the constraint could be sampled" : "the model's output is not a number");
  }
  scheduler_.append_token(sequence, sample.token);
  if (uses_counts(request.sampling)) sequence.counts.add_sampled(sample.token);
  if (sample.token == request.sampling.thinking_end) sequence.thinking_ended = true;
  totals_.generation_tokens_total += 1;
  TokenEvent event = event_for(sequence);
  event.has_token = true;
  event.token = sample.token;
  if (request.sampling.top_logprobs >= 0) {
    event.logprob = sample.logprob;
    event.num_top = sample.num_top;
    std::copy_n(sample.top.begin(), static_cast<size_t>(sample.num_top), event.top.begin());
  }
  const bool is_stop = std::binary_search(request.stop_tokens.begin(), request.stop_tokens.end(), sample.token);
  if (is_stop) return end_sequence(sequence, event, FinishReason::kStop);
  if (!follow_constraint(sequence, sample.token)) return fail(sequence, "the constraint could not be followed");
  if (sequence.constrained && sequence.matcher->is_complete()) {
    request.sink->on_event(event);
    TokenEvent end = event_for(sequence);
    return end_sequence(sequence, end, FinishReason::kStop);
  }
  if (sequence.num_output_tokens() >= request.sampling.max_tokens) {
    end_sequence(sequence, event, FinishReason::kLength);
  } else if (sequence.num_tokens() >= options_.max_context) {
    end_sequence(sequence, event, FinishReason::kContext);
  } else {
    request.sink->on_event(event);
  }
}

TokenEvent Stepper::event_for(const SequenceState& sequence) const {
  TokenEvent event;
  event.request = sequence.request->id;
  event.choice = sequence.choice;
  const RequestState& request = *sequence.request;
  const int32_t cached = request.choices.front().num_cached_tokens, block_tokens = model_.kv_layout().block_tokens;
  const int32_t shared = std::min(cached, request.num_shared_blocks * block_tokens);
  event.usage = {.prompt_tokens = sequence.num_prompt_tokens,
                 .cached_tokens = cached,
                 .disk_tokens = std::min(cached - shared, request.num_disk_blocks * block_tokens),
                 .shared_tokens = shared,
                 .match = request.match,
                 .completion_tokens = sequence.num_output_tokens()};
  return event;
}

void Stepper::end_sequence(SequenceState& sequence, TokenEvent& event, FinishReason reason) {
  RequestState& request = *sequence.request;
  const bool failed = reason == FinishReason::kError;
  if (failed && loader_) loader_->retract(std::span(sequence.keys).first(static_cast<size_t>(sequence.num_published_blocks)));
  scheduler_.end(sequence, failed ? sched::Scheduler::Trust::kForget : sched::Scheduler::Trust::kKeep);
  request.failed |= failed;
  if (reason != FinishReason::kCancelled) rates_.record_sequence(sequence.num_output_tokens());
  event.finished = reason;
  request.sink->on_event(event);
  request.num_unfinished -= 1;
  if (request.num_unfinished > 0) return;

  if (request.failed) {
    totals_.requests_failed_total += 1;
  } else if (request.cancelled_whole) {
    totals_.requests_cancelled_total += 1;
  } else {
    totals_.requests_finished_total += 1;
  }
  mark_started(request);
  const auto it = std::find_if(requests_.begin(), requests_.end(), [&](const auto& r) { return r.get() == &request; });
  CHECK(it != requests_.end());
  ended_.push_back(std::move(*it));
  requests_.erase(it);
}

void Stepper::mark_started(RequestState& request) {
  if (std::exchange(request.started, true)) return;
  num_started_ += 1;
}

void Stepper::count_prompt(SequenceState& sequence) {
  // The first choice's, unless it was cancelled before.
  if (!sequence.prompt_computed || std::exchange(sequence.request->prompt_counted, true)) return;
  totals_.prompt_tokens_total += static_cast<uint64_t>(sequence.num_prompt_tokens);
  totals_.prefix_hit_tokens_total += static_cast<uint64_t>(sequence.num_cached_tokens);
}

void Stepper::end_choices(RequestState& request, ChoiceMask choices) {
  if (request.loading) {  // its blocks may come; nobody waits for them
    loader_->forget(request);
    schedule(request);
  }
  request.cancelled_whole = choices == kAllChoices;
  // The last of them moves the request to ended_, where it stays for now.
  for (SequenceState& choice : request.choices) {
    if ((choices & choice_mask(choice.choice)) == 0 || !is_alive(choice)) continue;
    TokenEvent event = event_for(choice);
    end_sequence(choice, event, FinishReason::kCancelled);
  }
}

void Stepper::end_cancelled() {
  for (size_t i = requests_.size(); i > 0; --i) {
    RequestState& request = *requests_[i - 1];
    const ChoiceMask choices = request.cancelled.load(std::memory_order_relaxed);
    if (choices != 0) end_choices(request, choices);
  }
}

void Stepper::end_all() {
  while (!requests_.empty()) end_choices(*requests_.back(), kAllChoices);
}

void Stepper::take_ended(std::vector<std::unique_ptr<RequestState>>& out) {
  out.clear();
  out.swap(ended_);
}

void Stepper::record_rates(const StepPlan& plan, int64_t begin_ns) {
  const double seconds = static_cast<double>(clock_.now_ns() - begin_ns) * 1e-9;
  rates_.record_step(seconds, num_decode_rows_, plan.num_tokens - num_decode_rows_);
}

InferenceStats Stepper::stats() const {
  InferenceStats stats = totals_;
  int32_t num_waiting = 0;
  for (const auto& request : requests_) num_waiting += !request->started;
  stats.num_waiting = num_waiting;
  stats.num_running = static_cast<int32_t>(requests_.size()) - num_waiting;
  stats.num_blocks_total = pool_.num_blocks();
  stats.num_blocks_in_use = pool_.num_in_use();
  stats.num_blocks_cached = pool_.num_cached();
  stats.block_tokens = model_.kv_layout().block_tokens;
  stats.preemptions_total = scheduler_.num_preemptions();
  stats.estimated_queue_seconds =
      rates_.queue_seconds({.num_prefill_tokens = scheduler_.num_pending_prefill_tokens(),
                            .num_sequences = static_cast<int32_t>(scheduler_.running().size() + scheduler_.waiting().size()),
                            .max_num_sequences = options_.max_num_sequences});
  return stats;
}

}  // namespace deepinfer::engine
