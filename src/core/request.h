// What a user asks of the engine, in tokens: text, protocols and templates stay above this line (api/, recipe/).
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/hash.h"
#include "core/input_image.h"

namespace deepinfer {

using TokenId = int32_t;
using RequestId = uint64_t;  // unique in a process, never reused; 0 is none

constexpr int32_t kMaxTopLogprobs = 20;
constexpr int32_t kMaxChoices = 8;
constexpr int32_t kMaxStopTokens = 16;

// How the next token is chosen. The order of operations: logit_bias, penalties, the request's constraint, min_tokens, then temperature,
// top_k, top_p, min_p. Reported logprobs are those of the logits before temperature and truncation, after all else.
struct SamplingParams {
  float temperature = 1.0f;         // >= 0; 0 is greedy (ties: the lowest id)
  float top_p = 1.0f;               // (0, 1]
  float min_p = 0.0f;               // [0, 1]; share of the largest probability
  int32_t top_k = 0;                // 0: off
  float repetition_penalty = 1.0f;  // > 0; divides positive logits of tokens in prompt or output, multiplies negative ones
  float presence_penalty = 0.0f;    // subtracted once for tokens in the output
  float frequency_penalty = 0.0f;   // subtracted per occurrence in the output
  std::vector<std::pair<TokenId, float>> logit_bias;
  uint64_t seed = 0;                // draws are keyed by (seed, choice, position): batches, restarts and preemption do not change them
  int32_t top_logprobs = -1;        // -1: no logprobs; 0..kMaxTopLogprobs: the token's and that many of the most likely
  int32_t max_tokens = 16;          // >= 1
  int32_t min_tokens = 0;           // stop tokens cannot be sampled before this many
  int32_t thinking_budget = -1;     // >= 0: when this many tokens were sampled and none was thinking_end, the next one is; -1: off
  TokenId thinking_end = -1;        // the token that ends reasoning; for prompts that end inside of it
  bool ignore_eos = false;          // the model's own stop tokens do not end the sequence
  std::vector<TokenId> stop_token_ids;  // in addition to the model's own
};

// What an answer has to be, as text. Tokens that no longer lead there cannot be sampled, and where nothing can follow the sequence ends.
// spec is a JSON object, one of (docs/structured-output.md):
//   {"kind": "json_schema", "schema": {…}, "compact": false}
//   {"kind": "regex", "pattern": "…"}
//   {"kind": "choice", "choices": ["…", …]}
//   {"kind": "lark", "grammar": "start: …", "schemas": [{"name": "s0", "schema": {…}, "label": "…"}], "compact": false}
struct Constraint {
  std::string spec;           // empty: none
  TokenId begins_after = -1;  // -1: with the first token; else behind this token, and until then no stop token can be sampled
  Digest256 scope{};          // what was compiled for one is unknown in others: that one took no time tells nobody what strangers ask for
};

struct Request {
  std::vector<TokenId> prompt;  // not empty
  std::vector<ImageSpan> images;  // in it, ascending
  SamplingParams sampling;
  Constraint constraint;        // of every choice
  int32_t n = 1;                // choices, 1..kMaxChoices; they share the prompt's blocks
  std::string tenant;           // prefix blocks are shared within a tenant only; "" is a tenant like others
  std::string cache_salt;       // narrows that to requests of the tenant with the same salt; "" is shared by all without one
  std::string retention;        // class under which its blocks are kept on disk, where there are such; unknown or "": the first
};

}  // namespace deepinfer
