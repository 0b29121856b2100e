// The fields that every generating request shares: sampling, length, stop strings, choices, streaming. Values left out take the
// server's defaults; a value out of range is an error, never clamped.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/request.h"
#include "recipe/fields.h"

namespace deepinfer::recipe {

constexpr int64_t kMaxStopStrings = 16;
constexpr size_t kMaxCacheSaltBytes = 256;
constexpr size_t kMaxStopStringBytes = 1024;  // held-back text is at most this long

// What the model's own configuration (generation_config.json) or the operator says for fields that a request leaves out.
struct SamplingDefaults {
  float temperature = 1.0f, top_p = 1.0f, min_p = 0.0f, repetition_penalty = 1.0f;
  int32_t top_k = 0;
};

struct GenerationOptions {
  SamplingParams sampling;            // max_tokens is set by the server, which knows what the context still holds
  std::optional<int32_t> max_tokens;  // as asked
  bool has_seed = false;              // else the server draws one
  int32_t n = 1;
  std::vector<std::string> stop;      // not empty strings
  bool stream = false;
  bool include_usage = false;
  std::string cache_salt;             // only requests with the same one share cached blocks
};

struct OptionsContext {
  SamplingDefaults defaults;
  int32_t vocab_size = 0;
};

// Reads everything but the logprob fields, in which the protocols differ.
GenerationOptions read_generation_options(FieldReader& fields, const OptionsContext& context);

}  // namespace deepinfer::recipe
