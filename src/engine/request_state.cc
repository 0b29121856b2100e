#include "engine/request_state.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "base/units.h"
#include "engine/image_reader.h"
#include "engine/sampler.h"

namespace deepinfer::engine {
namespace {

Error invalid(std::string message) { return {Code::kInvalidArgument, std::move(message)}; }

Result<> check_tokens(const char* field, std::span<const TokenId> tokens, int32_t vocab_size) {
  for (const TokenId token : tokens) {
    if (token < 0 || token >= vocab_size) {
      return invalid(std::string(field) + " holds token " + std::to_string(token) + "; the vocabulary has " + std::to_string(vocab_size));
    }
  }
  return {};
}

Result<> check_range(const char* field, double value, bool inside, const char* range) {
  if (inside && std::isfinite(value)) return {};
  return invalid(std::string(field) + " is " + std::to_string(value) + "; it must be " + range);
}

Result<> check_sampling(const SamplingParams& p, int32_t vocab_size) {
  DI_TRY(check_range("temperature", p.temperature, p.temperature >= 0, "at least 0"));
  DI_TRY(check_range("top_p", p.top_p, p.top_p > 0 && p.top_p <= 1, "above 0 and at most 1"));
  DI_TRY(check_range("min_p", p.min_p, p.min_p >= 0 && p.min_p <= 1, "between 0 and 1"));
  DI_TRY(check_range("top_k", p.top_k, p.top_k >= 0, "at least 0"));
  DI_TRY(check_range("repetition_penalty", p.repetition_penalty, p.repetition_penalty > 0, "above 0"));
  DI_TRY(check_range("presence_penalty", p.presence_penalty, true, "a number"));
  DI_TRY(check_range("frequency_penalty", p.frequency_penalty, true, "a number"));
  DI_TRY(check_range("top_logprobs", p.top_logprobs, p.top_logprobs >= -1 && p.top_logprobs <= kMaxTopLogprobs, "between 0 and 20, or -1"));
  DI_TRY(check_range("max_tokens", p.max_tokens, p.max_tokens >= 1, "at least 1"));
  DI_TRY(check_range("min_tokens", p.min_tokens, p.min_tokens >= 0 && p.min_tokens <= p.max_tokens, "between 0 and max_tokens"));
  if (p.thinking_budget >= 0) {
    DI_TRY(check_tokens("thinking_end", {&p.thinking_end, 1}, vocab_size));
  }
  if (p.stop_token_ids.size() > static_cast<size_t>(kMaxStopTokens)) {
    return invalid("stop_token_ids has " + std::to_string(p.stop_token_ids.size()) + " entries; at most " + std::to_string(kMaxStopTokens));
  }
  DI_TRY(check_tokens("stop_token_ids", p.stop_token_ids, vocab_size));
  for (const auto& [token, bias] : p.logit_bias) {
    DI_TRY(check_tokens("logit_bias", {&token, 1}, vocab_size));
    DI_TRY(check_range("logit_bias", bias, true, "a number"));
  }
  return {};
}

Result<> check_fits(size_t num_prompt_tokens, const RequestLimits& limits) {
  const uint64_t needed = num_prompt_tokens + 1;
  if (needed <= static_cast<uint64_t>(limits.max_context)) return {};
  const std::string need = "the prompt has " + std::to_string(num_prompt_tokens) + " tokens and needs " + std::to_string(needed) + " with its output; ";
  if (needed > static_cast<uint64_t>(limits.model_max_context)) return invalid(need + "the context holds " + std::to_string(limits.model_max_context));
  const auto bytes_for = [&](uint64_t tokens) {
    const auto block_tokens = static_cast<uint64_t>(limits.block_tokens);
    return format_size((tokens + block_tokens - 1) / block_tokens * static_cast<uint64_t>(limits.block_bytes));
  };
  return invalid(need + "that is " + bytes_for(needed) + " of KV memory, and there are " + bytes_for(static_cast<uint64_t>(limits.max_context)));
}

Result<> check_images(const Request& request, const RequestLimits& limits) {
  if (request.images.empty()) return {};
  if (limits.image_encoder == nullptr) return invalid("this model reads text only");
  int64_t end = 0;
  for (const ImageSpan& span : request.images) {
    const bool fits = span.image != nullptr && is_fitted(*span.image, limits.image_encoder->patch_options());
    if (!fits) return invalid("an image has not the size that the model reads");
    const int64_t start = span.start;
    if (start < end || start + span.image->num_tokens > static_cast<int64_t>(request.prompt.size())) return invalid("images do not stand one after the other in the prompt");
    end = start + span.image->num_tokens;
    const TokenId token = limits.image_encoder->token_id();
    const auto first = request.prompt.begin();
    if (!std::all_of(first + start, first + end, [token](TokenId t) { return t == token; })) {
      return invalid("an image stands where the prompt has other tokens than " + std::to_string(token));
    }
  }
  return {};
}

// Pictures in memory are found by those who would find each other's blocks.
Digest256 image_key(const kv::BlockKey& root, const Digest256& digest) {
  return blake2b_256(std::as_bytes(std::span(digest.bytes)), std::as_bytes(std::span(root.bytes)));
}

std::vector<sched::Media> add_images(std::vector<ImageSpan> images, const kv::BlockKey& root, RequestState& state) {
  std::vector<sched::Media> media;
  for (ImageSpan& span : images) {
    media.push_back({.start = span.start, .num_tokens = span.image->num_tokens, .digest = span.image->digest});
    state.image_rows.push_back({.start = span.start, .num_rows = span.image->num_tokens});
    state.image_bytes += span.image->rgb.size();
    const Digest256 key = image_key(root, span.image->digest);
    state.images.push_back({.span = std::move(span), .key = key, .rows = nullptr});
  }
  return media;
}

}  // namespace

Result<> check_request(const Request& request, const RequestLimits& limits) {
  if (request.prompt.empty()) return invalid("the prompt is empty");
  if (request.n < 1 || request.n > kMaxChoices) return invalid("n is " + std::to_string(request.n) + "; it must be between 1 and " + std::to_string(kMaxChoices));
  DI_TRY(check_sampling(request.sampling, limits.vocab_size));
  if (!request.constraint.spec.empty() && request.constraint.begins_after != -1) {
    DI_TRY(check_tokens("constraint.begins_after", {&request.constraint.begins_after, 1}, limits.vocab_size));
  }
  DI_TRY(check_fits(request.prompt.size(), limits));
  DI_TRY(check_tokens("the prompt", request.prompt, limits.vocab_size));
  return check_images(request, limits);
}

std::unique_ptr<RequestState> make_request_state(RequestId id, Request request, std::shared_ptr<EventSink> sink,
                                                 const RequestLimits& limits, const kv::BlockKey& root) {
  auto state = std::make_unique<RequestState>();
  state->id = id;
  state->sampling = std::move(request.sampling);
  state->sink = std::move(sink);
  state->num_unfinished = request.n;
  state->stop_tokens = state->sampling.stop_token_ids;
  if (!state->sampling.ignore_eos) {
    state->stop_tokens.insert(state->stop_tokens.end(), limits.model_stop_tokens.begin(), limits.model_stop_tokens.end());
  }
  std::sort(state->stop_tokens.begin(), state->stop_tokens.end());

  const auto num_prompt = static_cast<int32_t>(request.prompt.size());
  const int32_t max_num_tokens = num_prompt + std::min(state->sampling.max_tokens, limits.max_context - num_prompt);
  std::vector<sched::Media> media = add_images(std::move(request.images), root, *state);
  state->choices = std::vector<SequenceState>(static_cast<size_t>(request.n));
  const uint64_t order = id * kMaxChoices;
  state->choices.front().prepare(order, std::move(request.prompt), max_num_tokens, root, limits.block_tokens, std::move(media));
  for (size_t i = 0; i < state->choices.size(); ++i) {
    SequenceState& choice = state->choices[i];
    choice.request = state.get();
    choice.choice = static_cast<int32_t>(i);
    if (i > 0) choice.prepare_sibling(order + i, state->choices.front(), max_num_tokens, limits.block_tokens);
    if (!uses_counts(state->sampling)) continue;
    choice.counts = TokenCounts(std::min(max_num_tokens, limits.vocab_size));
    choice.counts.add_prompt(choice.tokens);
  }
  return state;
}

Result<> constrain(RequestState& request, const grammar::Grammar& grammar, TokenId begins_after) {
  request.constraint_begins_after = begins_after;
  for (SequenceState& choice : request.choices) {
    DI_TRY(choice.matcher, grammar.matcher());
    choice.constrained = begins_after < 0;
  }
  return {};
}

}  // namespace deepinfer::engine
