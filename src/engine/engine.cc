#include "engine/engine.h"

#include <algorithm>
#include <limits>
#include <pthread.h>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/units.h"
#include "engine/image_reader.h"
#include "kv/segment_format.h"
#include "model/image_encoder.h"

namespace deepinfer::engine {
namespace {

// Of what the forward passes compute: raised by a change that gives other bits for the same weights, so that blocks on disk are not mixed.
constexpr int kComputationVersion = 1;

// Running requests and the one that is half admitted come on top of those that wait.
int32_t max_num_requests(const EngineOptions& options) { return options.max_waiting_requests + options.max_num_sequences + 1; }

EngineOptions with_card(EngineOptions options, const model::Model& model, int32_t max_context) {
  const model::ModelInfo& info = model.info();
  options.card.architecture = info.architecture;
  options.card.vocab_size = info.vocab_size;
  options.card.max_context = max_context;
  options.card.image_token_id = model.image_encoder() != nullptr ? model.image_encoder()->token_id() : -1;
  return options;
}

uint64_t pixel_bytes(const Request& request) {
  uint64_t total = 0;
  for (const ImageSpan& span : request.images) total += span.image->rgb.size();
  return total;
}

}  // namespace

std::string computation_name(const model::ModelInfo& info) { return info.architecture + "-v" + std::to_string(kComputationVersion); }

Result<Engine::Limits> Engine::check_options(const model::Model& model, const EngineOptions& options) {
  if (options.max_num_batched_tokens < 1) return Error{Code::kInvalidArgument, "max_num_batched_tokens must be at least 1"};
  if (options.max_num_sequences < 1) return Error{Code::kInvalidArgument, "max_num_sequences must be at least 1"};
  if (options.max_waiting_requests < 1) return Error{Code::kInvalidArgument, "max_waiting_requests must be at least 1"};
  CHECK(options.grammars == nullptr || options.grammars->vocab_size() == model.info().vocab_size);
  if (options.max_context < 0) return Error{Code::kInvalidArgument, "max_context must not be negative"};
  if (!options.retention_classes.empty()) {
    DI_TRY(kv::check_retention(options.retention_classes));
  }
  const model::KvLayout& layout = model.kv_layout();
  const auto num_blocks = std::min<uint64_t>(options.kv_bytes / static_cast<uint64_t>(layout.block_bytes), std::numeric_limits<int32_t>::max() / 4);
  if (num_blocks == 0) {
    return Error{Code::kInvalidArgument, "KV memory of " + format_size(options.kv_bytes) + " holds not one block of " +
                                             format_size(static_cast<uint64_t>(layout.block_bytes))};
  }
  int64_t max_context = model.info().max_context;
  if (options.max_context > 0) max_context = std::min<int64_t>(max_context, options.max_context);
  max_context = std::min<int64_t>(max_context, static_cast<int64_t>(num_blocks) * layout.block_tokens);
  return Limits{static_cast<int32_t>(num_blocks), static_cast<int32_t>(max_context)};
}

Result<std::unique_ptr<Engine>> Engine::start(std::unique_ptr<model::Model> model, Workers& workers, const Clock& clock, EngineOptions options) {
  DI_TRY(kv::check_key_vector());
  DI_TRY(const Limits limits, check_options(*model, options));
  DI_TRY(kv::Arena arena, kv::Arena::map(Stepper::arena_bytes(model->kv_layout(), stepper_options(options, limits))));
  return std::unique_ptr<Engine>(new Engine(std::move(model), workers, clock, std::move(options), limits, std::move(arena)));
}

StepperOptions Engine::stepper_options(const EngineOptions& options, const Limits& limits) {
  std::vector<int64_t> class_seconds;
  for (const kv::RetentionClass& one : options.retention_classes) class_seconds.push_back(one.seconds);
  return {.max_num_batched_tokens = options.max_num_batched_tokens,
          .max_num_sequences = options.max_num_sequences,
          .max_num_requests = max_num_requests(options),
          .max_context = limits.max_context,
          .num_blocks = limits.num_blocks,
          .bounded_replay = options.bounded_replay,
          .constraints = options.grammars != nullptr,
          .image_cache_bytes = options.image_cache_bytes,
          .class_seconds = std::move(class_seconds),
          .time = options.time,
          .log = options.log};
}

Engine::Engine(std::unique_ptr<model::Model> model, Workers& workers, const Clock& clock, EngineOptions options, const Limits& limits, kv::Arena arena)
    : options_(with_card(std::move(options), *model, limits.max_context)),
      model_(std::move(model)),
      workers_(workers),
      clock_(clock),
      stepper_(*model_, workers, clock, std::move(arena), stepper_options(options_, limits)) {
  inbox_.reserve(static_cast<size_t>(max_num_requests(options_)));
  taken_.reserve(inbox_.capacity());
  ended_.reserve(inbox_.capacity());
  published_ = stepper_.stats();
  if (options_.store != nullptr && options_.prefix_cache) {
    stepper_.use_store(*options_.store, [this] {
      const MutexLock lock(mu_);
      blocks_came_ = true;
      wake_.notify_one();
    });
  }
  thread_ = std::thread([this] { run(); });
}

RequestLimits Engine::request_limits() const {
  const model::KvLayout& layout = model_->kv_layout();
  const int32_t own = model_->info().max_context;
  return {.vocab_size = options_.card.vocab_size,
          .max_context = options_.card.max_context,
          .model_max_context = options_.max_context > 0 ? std::min(own, options_.max_context) : own,
          .block_tokens = layout.block_tokens,
          .block_bytes = layout.block_bytes,
          .model_stop_tokens = options_.card.stop_token_ids,
          .image_encoder = model_->image_encoder()};
}

Result<> Engine::check_open(uint64_t image_bytes) const {
  if (draining_) return Error{Code::kUnavailable, "the server is shutting down"};
  const uint64_t num_waiting = num_accepted_ - num_started_;
  if (num_waiting >= static_cast<uint64_t>(options_.max_waiting_requests)) {
    return Error{Code::kResourceExhausted, "the queue is full: " + std::to_string(num_waiting) + " requests are waiting"};
  }
  if (image_bytes > 0 && image_bytes_ + image_bytes > options_.max_image_bytes) {
    return Error{Code::kResourceExhausted, "the images of the requests inside take " + format_size(image_bytes_) + "; the limit is " + format_size(options_.max_image_bytes)};
  }
  return {};
}

// Null: there is no constraint.
Result<std::shared_ptr<const grammar::Grammar>> Engine::compile(const Constraint& constraint) {
  if (constraint.spec.empty()) return std::shared_ptr<const grammar::Grammar>();
  if (options_.grammars == nullptr) return Error{Code::kUnsupported, "this model's output cannot be constrained"};
  return options_.grammars->find_or_compile(constraint.spec, constraint.scope);
}

Result<> Engine::prepare(const Constraint& constraint) {
  const auto compiled = compile(constraint);
  if (!compiled) return compiled.error();
  return {};
}

Result<std::shared_ptr<const InputImage>> Engine::read_image(std::span<const std::byte> file) const {
  const model::ImageEncoder* encoder = model_->image_encoder();
  if (encoder == nullptr) return Error{Code::kUnsupported, "this model reads text only"};
  return engine::read_image(file, encoder->patch_options(), options_.image_limits);
}

Result<RequestId> Engine::submit(Request request, std::shared_ptr<EventSink> sink) {
  const RequestLimits limits = request_limits();
  DI_TRY(check_request(request, limits));
  const uint64_t image_bytes = pixel_bytes(request);
  {
    MutexLock lock(mu_);  // before the work of hashing the prompt
    DI_TRY(check_open(image_bytes));
  }
  const RequestId id = next_id_.fetch_add(1, std::memory_order_relaxed);
  const std::string salt = options_.prefix_cache ? request.cache_salt : "request " + std::to_string(id);
  const std::string architecture = computation_name(model_->info());
  const kv::KeyRoot root{.weights = options_.weights_identity, .architecture = architecture, .format = model_->kv_layout().format,
                         .block_tokens = limits.block_tokens, .tenant = kv::tenant_secret(options_.master_secret, request.tenant), .salt = salt};
  const kv::StoreTag tag = store_tag(request);
  const TokenId begins_after = request.constraint.begins_after;
  DI_TRY(const std::shared_ptr<const grammar::Grammar> grammar, compile(request.constraint));
  auto state = make_request_state(id, std::move(request), std::move(sink), limits, kv::root_key(root));
  state->store_tag = tag;
  for (SequenceState& choice : state->choices) choice.retention = tag.retention;
  if (grammar) {
    DI_TRY(constrain(*state, *grammar, begins_after));
  }
  {
    MutexLock lock(mu_);
    DI_TRY(check_open(image_bytes));
    alive_.emplace(id, state.get());
    image_bytes_ += image_bytes;
    inbox_.push_back(std::move(state));
    num_accepted_ += 1;
  }
  wake_.notify_one();
  return id;
}

kv::StoreTag Engine::store_tag(const Request& request) const {
  const auto& classes = options_.retention_classes;
  const auto found = std::find_if(classes.begin(), classes.end(), [&](const kv::RetentionClass& one) { return one.name == request.retention; });
  return {.tenant = options_.store == nullptr ? Digest256() : kv::tenant_folder(options_.master_secret, request.tenant),
          .retention = static_cast<uint8_t>(found == classes.end() ? 0 : found - classes.begin())};
}

void Engine::cancel_choices(RequestId id, ChoiceMask choices) {
  {
    MutexLock lock(mu_);
    const auto it = alive_.find(id);
    if (it == alive_.end()) return;
    it->second->cancelled.fetch_or(choices, std::memory_order_relaxed);
    cancel_asked_ = true;
  }
  wake_.notify_one();
}

InferenceStats Engine::stats() const {
  MutexLock lock(mu_);
  InferenceStats stats = published_;
  stats.requests_total = num_accepted_;
  if (options_.store != nullptr) {
    stats.cache = options_.store->stats();
    stats.shared_cache = options_.store->shared_stats();
  }
  stats.num_waiting = static_cast<int32_t>(num_accepted_ - num_started_);
  return stats;
}

void Engine::drain() {
  MutexLock lock(mu_);
  draining_ = true;
}

void Engine::stop() {
  if (!thread_.joinable()) return;
  {
    MutexLock lock(mu_);
    draining_ = true;
    stopping_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

void Engine::run() {
  pthread_setname_np(pthread_self(), "engine");
  workers_.pin_caller();
  while (exchange()) {
    stepper_.take_loaded();
    if (stepper_.can_step()) stepper_.step();
  }
  stepper_.end_all();
  stepper_.take_ended(ended_);
  MutexLock lock(mu_);
  alive_.clear();
  published_ = stepper_.stats();
  num_started_ = num_accepted_;
}

// Nothing to step and nothing to hear: sleeps, at most until blocks from the store are too late to be waited for.
void Engine::wait_for_work() {
  const auto nothing_new = [this]() REQUIRES(mu_) { return inbox_.empty() && !stopping_ && !cancel_asked_ && !blocks_came_; };
  while (nothing_new()) {
    const int64_t deadline_ns = stepper_.load_deadline_ns();
    if (deadline_ns == INT64_MAX) {
      wake_.wait(mu_);
      continue;
    }
    const int64_t left_ns = deadline_ns - clock_.now_ns();
    if (left_ns <= 0 || wake_.wait_for(mu_, std::chrono::nanoseconds(left_ns)) == std::cv_status::timeout) return;
  }
}

bool Engine::exchange() {
  stepper_.take_ended(ended_);
  const InferenceStats stats = stepper_.stats();
  bool cancel_asked = false, go_on = true;
  {
    MutexLock lock(mu_);
    for (const auto& request : ended_) {
      alive_.erase(request->id);
      image_bytes_ -= request->image_bytes;
    }
    published_ = stats;
    num_started_ = stepper_.num_started();
    if (!stepper_.can_step()) wait_for_work();
    blocks_came_ = false;
    taken_.swap(inbox_);
    cancel_asked = std::exchange(cancel_asked_, false);
    go_on = !stopping_;
  }
  ended_.clear();  // nobody can find them any more
  for (auto& request : taken_) stepper_.add(std::move(request));
  taken_.clear();
  if (cancel_asked) stepper_.end_cancelled();
  return go_on;
}

}  // namespace deepinfer::engine
