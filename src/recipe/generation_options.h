// The fields that every generating request shares: sampling, length, stop strings, choices, streaming. Values left out take the
// server's defaults; a value out of range is an error, never clamped.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/request.h"
#include "recipe/dialect.h"
#include "recipe/fields.h"
#include "recipe/output_format.h"

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
  std::string retention;              // metadata.retention: how long its blocks are kept on disk, by class
  std::string cache_salt;             // only requests with the same one share cached blocks
  std::optional<int32_t> default_max_tokens;  // of a request that asks for none; unset: what the context holds
  OutputFormat output_format;         // of extensions; response formats are the conversation's
  std::optional<int32_t> thinking_budget;     // tokens of reasoning, after which the model is made to answer
  bool single_tool_call = false;              // the turn ends with the first complete call
};

struct OptionsContext {
  SamplingDefaults defaults;
  int32_t vocab_size = 0;
  Dialect dialect = Dialect::kTemplate;
  bool enable_tasks = false;           // Chat messages may have a `task`
  bool accepts_images = false;         // the model sees them, or its renderer puts a text in their place
  bool force_thinking_sampling = true; // DeepSeek dialects: while thinking, temperature and top_p are the model's own (sampling_rules.h)
};

// Reads everything but the logprob fields, in which the protocols differ.
GenerationOptions read_generation_options(FieldReader& fields, const OptionsContext& context);

// Parts of it, for protocols with fewer or other fields. Fields that only some protocols document are read in all.
void read_sampling(FieldReader& fields, const OptionsContext& context, SamplingParams& out);
void read_cache_salt(FieldReader& fields, std::string& out);
void read_retention(FieldReader& fields, std::string& out);  // `metadata.retention`
void read_stop(FieldReader& fields, std::vector<std::string>& out);  // `stop`: a string or an array
void add_stop_string(FieldReader& fields, std::string_view key, std::string_view text, std::vector<std::string>& out);

}  // namespace deepinfer::recipe
