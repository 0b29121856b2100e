// engine/request_state.h: a request inside the engine. Built on the submitting thread, where checking, hashing and allocating cost no
// step anything; handed to the engine thread through the inbox, which owns it from then on. Only `cancelled` is touched by others.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "core/inference.h"
#include "engine/image_cache.h"
#include "engine/token_counts.h"
#include "grammar/grammar.h"
#include "kv/block_key.h"
#include "kv/block_store.h"
#include "model/model.h"
#include "sched/sequence.h"

namespace deepinfer::engine {

struct RequestState;

// A set of a request's choices: bit i stands for choice i.
using ChoiceMask = uint32_t;
static_assert(kMaxChoices < 32);
constexpr ChoiceMask kAllChoices = ~ChoiceMask{0};
inline ChoiceMask choice_mask(int32_t choice) { return choice >= 0 && choice < kMaxChoices ? ChoiceMask{1} << choice : 0; }

// One choice. The scheduler sees the base.
struct SequenceState : sched::Sequence {
  RequestState* request = nullptr;
  int32_t choice = 0;
  TokenCounts counts;  // kept only if the penalties ask for it
  bool thinking_ended = false;  // SamplingParams::thinking_end was sampled
  std::optional<grammar::Matcher> matcher;  // of a constraint; it has seen what was sampled since it began
  bool constrained = false;                 // it has begun

  int32_t num_output_tokens() const { return num_tokens() - num_prompt_tokens; }
};

// A picture of a prompt, and its rows while a step may need them.
struct RequestImage {
  ImageSpan span;
  Digest256 key;          // in the ImageCache
  ImageCache::Rows rows;  // null: not needed, or not yet

  int32_t end() const { return span.start + span.image->num_tokens; }
};

struct RequestState {
  RequestId id = 0;
  SamplingParams sampling;
  std::vector<TokenId> stop_tokens;  // all that end a sequence: the request's own and, unless ignore_eos, the model's; sorted
  std::shared_ptr<EventSink> sink;
  std::vector<SequenceState> choices;  // sized once: the scheduler holds their addresses
  std::atomic<ChoiceMask> cancelled{0};  // asked for; bits are only ever added

  TokenId constraint_begins_after = -1;  // see Constraint

  kv::StoreTag store_tag;  // how its blocks are filed on disk; the class counts in memory too
  uint64_t image_bytes = 0;  // of the pixels that it holds

  // Engine thread only.
  bool loading = false;          // waits for blocks from the store; the scheduler does not know it yet
  int32_t num_disk_blocks = 0, num_shared_blocks = 0;  // fetched for it
  PrefixMatch match;             // Usage's
  bool started = false;         // a step has run some of it
  bool prompt_counted = false;  // in the prompt totals
  std::vector<RequestImage> images;          // ascending
  std::vector<model::ImageRows> image_rows;  // [images.size()], as a step gets them
  bool failed = false;
  bool cancelled_whole = false;  // unfinished choices were ended by cancel() or stop()
  int32_t num_unfinished = 0;   // choices
};

// What a request is measured against.
struct RequestLimits {
  int32_t vocab_size;
  int32_t max_context;        // the smaller of what the model and what the arena allow
  int32_t model_max_context;  // what the model allows
  int32_t block_tokens;
  int64_t block_bytes;
  std::span<const TokenId> model_stop_tokens;
  const model::ImageEncoder* image_encoder = nullptr;  // null: the model reads text only
};

// kInvalidArgument with what is wrong, or, for a prompt that can never fit, with what it would need. max_tokens is a cap: what the context
// cannot hold of it is cut, and such a sequence ends with kContext.
Result<> check_request(const Request& request, const RequestLimits& limits);

// root: where its chain of block keys starts. The request has been checked.
std::unique_ptr<RequestState> make_request_state(RequestId id, Request request, std::shared_ptr<EventSink> sink,
                                                 const RequestLimits& limits, const kv::BlockKey& root);

// Gives every choice a matcher of its own. Errors: kInternal.
Result<> constrain(RequestState& request, const grammar::Grammar& grammar, TokenId begins_after);

}  // namespace deepinfer::engine
