// engine/stepper.h: everything that a step needs, and the step: plan, forward, name the full blocks, sample, tell the sinks. Owns
// scheduler, block pool, arena, buffers and all accepted requests. One thread (the engine's; a test's own); after construction a
// step allocates nothing but what images need (image_cache.h). What enters a step is in the requests alone, so their events do not depend on what else runs.
//
// Masks of constrained rows are computed beside the forward pass (mask_worker.h). The grammar engine allocates; all else keeps what is said above.
//
// A fault ends one request: a row of logits that is no distribution (NaN, infinity) ends its sequence with kError, and its blocks are
// never found again. A step that the model could not finish ends the sequences in it likewise; others go on.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "core/inference.h"
#include "engine/block_loader.h"
#include "engine/image_cache.h"
#include "engine/mask_worker.h"
#include "engine/rate_meter.h"
#include "engine/request_state.h"
#include "engine/sampler.h"
#include "kv/arena.h"
#include "kv/block_pool.h"
#include "kv/store_clock.h"
#include "model/model.h"
#include "sched/scheduler.h"

namespace deepinfer::engine {

struct StepperOptions {
  int32_t max_num_batched_tokens;
  int32_t max_num_sequences;
  int32_t max_num_requests;  // inside at a time, as a hint for reserves
  int32_t max_context;
  int32_t num_blocks;
  bool bounded_replay = true;  // see EngineOptions
  bool constraints = false;    // requests may have them
  uint64_t image_cache_bytes = uint64_t{256} << 20;
  std::vector<int64_t> class_seconds = {};  // of retention classes, see kv::BlockPool
  std::shared_ptr<const kv::TimeSource> time = std::make_shared<kv::SystemTime>();  // for retention; its clock since boot
  std::function<void(const std::string&)> log = {};  // one line, of the operator's concern; may be null
};

class Stepper {
 public:
  // arena: of at least arena_bytes(). model, workers and clock outlive this.
  Stepper(model::Model& model, Workers& workers, const Clock& clock, kv::Arena arena, const StepperOptions& options);

  static uint64_t arena_bytes(const model::KvLayout& layout, const StepperOptions& options);  // all blocks, then a state a running sequence

  void add(std::unique_ptr<RequestState> request);
  void end_cancelled();  // the choices that `cancelled` of their request names
  void end_all();        // everything, as cancelled
  bool idle() const { return requests_.empty(); }
  // Whether a step would do anything; else all requests wait for blocks from the store.
  bool can_step() const { return !scheduler_.running().empty() || !scheduler_.waiting().empty(); }
  void step();           // only if can_step()

  // Blocks beyond memory: looked for when a request comes, written when a step has filled one. Before the first add(); both outlive this.
  void use_store(kv::BlockStore& store, std::function<void()> wake);
  void take_loaded();               // what has come from the store since
  int64_t load_deadline_ns() const { return loader_ ? loader_->next_deadline_ns() : INT64_MAX; }  // when to look again at the latest

  // Requests that have ended since the last call, moved to `out` (cleared first).
  void take_ended(std::vector<std::unique_ptr<RequestState>>& out);

  // All of it but what only the Engine knows: requests_total. num_waiting counts requests that no step has run.
  InferenceStats stats() const;
  uint64_t num_started() const { return num_started_; }  // requests that a step has run, or that ended before

 private:
  void await_images();
  void encode_awaited(const sched::StepPlan& plan);
  static void hold(RequestState& request, RequestImage& image, ImageCache::Rows rows);
  void release_images(const sched::StepPlan& plan);
  void build_batch(const sched::StepPlan& plan);
  void note_match(const SequenceState& sequence);  // at the first step of its request
  model::SequenceRows rows_of(const SequenceState& sequence, int32_t num_rows) const;
  void offer_masks();
  void sample(const sched::StepPlan& plan);
  void sample_row(SequenceState& sequence, int32_t row, int32_t thread);
  void deliver(SequenceState& sequence, const Sample& sample);
  void fail(SequenceState& sequence, const char* message);
  void fail_step(const sched::StepPlan& plan, const Error& error);
  void count_prompt(SequenceState& sequence);
  void mark_started(RequestState& request);
  void end_choices(RequestState& request, ChoiceMask choices);  // those not ended yet, as cancelled
  // Takes the sequence out and sends `event`, which is its last.
  void end_sequence(SequenceState& sequence, TokenEvent& event, FinishReason reason);
  TokenEvent event_for(const SequenceState& sequence) const;
  void record_rates(const sched::StepPlan& plan, int64_t begin_ns);
  void schedule(RequestState& request);
  void tell_time();
  void publish_filled(const sched::StepPlan& plan);

  model::Model& model_;
  Workers& workers_;
  const Clock& clock_;
  const StepperOptions options_;
  const kv::Arena arena_;
  kv::BlockPool pool_;
  sched::Scheduler scheduler_;
  const Sampler sampler_;
  std::vector<Sampler::Scratch> scratch_;  // one a thread

  // The step in progress.
  std::vector<TokenId> tokens_;
  std::vector<model::SequenceRows> sequences_;
  std::vector<int32_t> logit_rows_;
  std::vector<SequenceState*> sampled_;  // [logit_rows_.size()]: whose row it is
  std::vector<Sample> samples_;
  std::unique_ptr<float[]> logits_;  // [max_num_sequences, vocab_size]
  int32_t num_decode_rows_ = 0;
  std::vector<int32_t> num_named_;  // [entries of the plan]: blocks that were named before the step
  std::unique_ptr<MaskWorker> masks_;  // by row of sampled_; null: no constraints

  std::unique_ptr<ImageCache> images_;   // null: the model reads text only
  struct Awaited {
    RequestState* request = nullptr;
    RequestImage* image = nullptr;
  };
  Awaited awaited_;  // what the oldest waiting sequence needs next; no image: nobody waits
  std::unique_ptr<BlockLoader> loader_;  // null: no store
  std::vector<RequestState*> loaded_;
  std::vector<std::unique_ptr<RequestState>> requests_, ended_;
  RateMeter rates_;
  InferenceStats totals_;  // the counters
  uint64_t num_started_ = 0;
};

}  // namespace deepinfer::engine
