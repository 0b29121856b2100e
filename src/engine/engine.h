// engine/engine.h: one model behind the waist (core/inference.h). A thread of its own owns model, KV, scheduler and sampling (Stepper)
// and runs step after step while there is work; without work it sleeps and uses no CPU. Others reach it through a bounded inbox under
// one mutex, which the engine thread takes once a step.
//
// Same input, same bits: a request's tokens and logprobs are a function of the request alone. Other requests, budgets, threads,
// preemption and cache hits change when they come, not what they are. One exception: with bounded replay (models that keep windows
// beside their blocks) they are a function of the request and of where its prefix hit ended, and where those ended that computed
// the prefix; nothing else.
// Ends: a sequence ends with kStop, kLength (its max_tokens) or kContext (the smaller of the model's context and what the arena
// holds, which is the card's max_context); a cancelled one within a step, its siblings untouched; on stop() every unfinished one with kCancelled.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "base/thread_annotations.h"
#include "core/inference.h"
#include "engine/request_state.h"
#include "engine/stepper.h"
#include "grammar/grammar_cache.h"
#include "image/decode.h"
#include "model/model.h"

namespace deepinfer::engine {

struct EngineOptions {
  ModelCard card;                // architecture, vocab_size and max_context are filled in
  std::string weights_identity;  // differs when one weight differs: part of every block key
  Digest256 master_secret;       // what tenants' secrets are made from: shared by those who share blocks
  uint64_t kv_bytes = uint64_t{1} << 30;
  int32_t max_num_batched_tokens = 512;  // rows a step
  int32_t max_num_sequences = 32;        // running at a time
  int32_t max_waiting_requests = 256;    // accepted but not begun; beyond: kResourceExhausted
  int32_t max_context = 0;               // 0: the model's own
  // Models that keep windows beside their blocks (KvLayout::state_bytes; others ignore it). On: after a prefix hit a window's worth of
  // rows is run again, and of a prompt only the last window's worth enters the decoder layers: fast, and a little different from a run
  // without a gap. Off: all rows enter all layers, and so many are run again that a hit changes no bit.
  bool bounded_replay = true;
  // Blocks beyond memory; outlives the engine. Null: none. Without prefix_cache it is not used.
  kv::BlockStore* store = nullptr;
  std::vector<kv::RetentionClass> retention_classes;  // by StoreTag::retention; the store's, if there is one. At most 64; none: one, for good
  std::shared_ptr<const kv::TimeSource> time = std::make_shared<kv::SystemTime>();  // for retention
  std::function<void(const std::string&)> log = {};  // one line, of the operator's concern, from the engine's thread; may be null
  // Compiles requests' constraints; outlives the engine. Null: such requests are refused.
  grammar::GrammarCache* grammars = nullptr;
  image::DecodeLimits image_limits{};    // of one image file
  uint64_t image_cache_bytes = uint64_t{256} << 20;  // what was computed from pictures, kept for those who send them again
  uint64_t max_image_bytes = uint64_t{1} << 30;      // pixels of accepted requests; beyond: kResourceExhausted
  bool prefix_cache = true;              // off: a request finds only its own blocks (its further choices', its own after preemption)
};

// The model's architecture and the version of its computation, as block keys name it: "llama-v1".
std::string computation_name(const model::ModelInfo& info);

class Engine final : public Inference {
 public:
  // Maps the arena, reserves the model's workspace and starts the thread. workers and clock outlive the engine; nobody else runs the
  // workers meanwhile. Errors: kInvalidArgument (an option), kResourceExhausted (the arena).
  static Result<std::unique_ptr<Engine>> start(std::unique_ptr<model::Model> model, Workers& workers, const Clock& clock, EngineOptions options);
  ~Engine() override { stop(); }
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  Result<> prepare(const Constraint& constraint) override;
  Result<RequestId> submit(Request request, std::shared_ptr<EventSink> sink) override;
  Result<std::shared_ptr<const InputImage>> read_image(std::span<const std::byte> file) const override;
  void cancel(RequestId id) override { cancel_choices(id, kAllChoices); }
  void cancel_choice(RequestId id, int32_t choice) override { cancel_choices(id, choice_mask(choice)); }
  InferenceStats stats() const override;
  const ModelCard& model() const override { return options_.card; }
  void drain() override;

  // Refuses new work, ends what is unfinished and joins the thread. Once; not from a sink.
  void stop();

 private:
  struct Limits {
    int32_t num_blocks, max_context;
  };
  static Result<Limits> check_options(const model::Model& model, const EngineOptions& options);
  static StepperOptions stepper_options(const EngineOptions& options, const Limits& limits);
  Engine(std::unique_ptr<model::Model> model, Workers& workers, const Clock& clock, EngineOptions options, const Limits& limits, kv::Arena arena);

  RequestLimits request_limits() const;
  Result<std::shared_ptr<const grammar::Grammar>> compile(const Constraint& constraint);
  Result<> check_open(uint64_t image_bytes) const REQUIRES(mu_);
  void cancel_choices(RequestId id, ChoiceMask choices);
  void run();
  kv::StoreTag store_tag(const Request& request) const;
  void wait_for_work() REQUIRES(mu_);
  bool exchange();  // with the other threads, between steps; false: stop

  const EngineOptions options_;
  const std::unique_ptr<model::Model> model_;
  Workers& workers_;
  const Clock& clock_;
  std::atomic<RequestId> next_id_{1};

  mutable Mutex mu_;
  std::condition_variable_any wake_;
  std::vector<std::unique_ptr<RequestState>> inbox_ GUARDED_BY(mu_);
  std::unordered_map<RequestId, RequestState*> alive_ GUARDED_BY(mu_);  // found by id, never iterated
  InferenceStats published_ GUARDED_BY(mu_);                            // as of the last step
  uint64_t num_accepted_ GUARDED_BY(mu_) = 0, num_started_ GUARDED_BY(mu_) = 0;
  uint64_t image_bytes_ GUARDED_BY(mu_) = 0;  // of the pixels of all requests inside
  bool blocks_came_ GUARDED_BY(mu_) = false;  // from the store
  bool cancel_asked_ GUARDED_BY(mu_) = false, draining_ GUARDED_BY(mu_) = false, stopping_ GUARDED_BY(mu_) = false;

  Stepper stepper_;  // the engine thread's from here on
  std::vector<std::unique_ptr<RequestState>> taken_, ended_;
  std::thread thread_;
};

}  // namespace deepinfer::engine
