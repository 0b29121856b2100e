// The waist: submit, cancel, a stream of token events. One engine and a whole cluster implement it alike; api/ speaks to nothing else.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "core/cache_stats.h"
#include "core/request.h"

namespace deepinfer {

enum class FinishReason : uint8_t {
  kStop,       // a stop token was sampled, or nothing could follow under the request's constraint
  kLength,     // max_tokens reached
  kContext,    // the model's context is full
  kContentFilter,  // a filter in front of or behind the model ended it; never this engine's own
  kCancelled,  // cancel() or cancel_choice() was called
  kError,      // a fault that ended this request alone; TokenEvent::message says which
};

struct TokenLogprob {
  TokenId token;
  float logprob;  // natural logarithm
};

// The longest beginning of a prompt that memory or a store knew when the request was begun, whether or not all of it could be had.
struct PrefixMatch {
  int32_t tokens = 0;                   // whole blocks
  int64_t age_s = -1;                   // since the last of them was computed, or written to disk; -1: there are none
  CacheMiss missed = CacheMiss::kBusy;  // why those beyond Usage::cached_tokens had to be computed
};

struct Usage {
  int32_t prompt_tokens = 0;
  int32_t cached_tokens = 0;      // of the prompt, not computed but found in cache; the first choice's prefill
  int32_t disk_tokens = 0, shared_tokens = 0;  // of cached_tokens: fetched from this machine's disk, and from other processes' files
  PrefixMatch match;
  int32_t completion_tokens = 0;  // sampled for this choice, the stop token included
};

// One sampled token, or the end of a choice. Every choice of an accepted request gets exactly one event with `finished` set,
// after which nothing more comes for it.
struct TokenEvent {
  RequestId request = 0;
  int32_t choice = 0;          // 0..n-1
  bool has_token = false;      // false only on an end without a token (cancelled, error, a constraint that is complete)
  TokenId token = -1;
  float logprob = 0;           // if asked
  int32_t num_top = 0;         // valid entries of top: the most likely first
  std::array<TokenLogprob, kMaxTopLogprobs> top;
  std::optional<FinishReason> finished;
  Usage usage;                 // so far; final when finished
  const char* message = "";    // static text, for kError
};

// Where events go. Called on the engine's thread between steps: must not block, throw or call back into the engine.
// Released on any thread.
class EventSink {
 public:
  virtual ~EventSink() = default;
  virtual void on_event(const TokenEvent& event) = 0;
};

// Numbers for /metrics and admission. Counters only grow.
struct InferenceStats {
  int32_t num_running = 0, num_waiting = 0;
  int32_t num_blocks_total = 0, num_blocks_in_use = 0, num_blocks_cached = 0;  // cached: not in use, may be hit or evicted
  int32_t block_tokens = 0;
  // Each request that ended is in one of three: failed if a choice of it did, else cancelled by cancel() as a whole, else finished.
  uint64_t requests_total = 0, requests_finished_total = 0, requests_cancelled_total = 0, requests_failed_total = 0;
  uint64_t prompt_tokens_total = 0, prefix_hit_tokens_total = 0, generation_tokens_total = 0;
  uint64_t preemptions_total = 0, steps_total = 0;
  uint64_t images_encoded_total = 0, images_reused_total = 0;  // pictures that a step needed: computed, or found in memory
  CacheStats cache, shared_cache;      // of the store on disk, and of the one behind it
  double estimated_queue_seconds = 0;  // how long a request submitted now would wait, from measured rates
};

// What is served, as far as the waist needs to know.
struct ModelCard {
  std::string name;            // as clients name it
  std::string architecture;    // "llama", "qwen2", …
  int32_t vocab_size = 0;
  int32_t max_context = 0;     // tokens, prompt and output together
  int64_t created_unix_s = 0;  // time the weights file was last changed
  std::vector<TokenId> stop_token_ids;  // the model's own end tokens
  TokenId image_token_id = -1;          // of every position of a picture; -1: the model reads text only
};

class Inference {
 public:
  virtual ~Inference() = default;

  // Makes ready what submit() needs of a constraint, which may take long: for a thread that nobody waits for. Thread-safe.
  // Errors: kInvalidArgument (what of it cannot be honoured), kUnsupported (there is nothing that could honour any).
  virtual Result<> prepare(const Constraint& constraint) = 0;

  // Queues a request; its events go to `sink`, the first possibly before this returns. Thread-safe; never blocks on a step.
  // Errors: prepare()'s; kInvalidArgument (a parameter or token out of range; a prompt that can never fit, with what it would need; an
  // image that is not where its tokens are), kResourceExhausted (the queue is full; images of the requests inside take too much memory),
  // kUnavailable (draining).
  virtual Result<RequestId> submit(Request request, std::shared_ptr<EventSink> sink) = 0;

  // A picture as the model takes it, from the bytes of an image file; for Request::images. Thread-safe; decodes on the caller's thread.
  // Errors: kUnsupported (a model that reads text only, a format that is not known, a shape that fits no grid), kResourceExhausted (a
  // limit on bytes or pixels, checked before anything is decoded), kCorruption.
  virtual Result<std::shared_ptr<const InputImage>> read_image(std::span<const std::byte> file) const = 0;

  // Ends a request (all choices) within one step. Unknown or finished ids are ignored. Thread-safe.
  virtual void cancel(RequestId id) = 0;
  // The same for one choice; the others go on as if it had never been. A choice that does not exist or has ended is ignored.
  virtual void cancel_choice(RequestId id, int32_t choice) = 0;

  virtual InferenceStats stats() const = 0;  // thread-safe
  virtual const ModelCard& model() const = 0;

  // Refuses new work; running requests go on. Thread-safe.
  virtual void drain() = 0;
};

}  // namespace deepinfer
