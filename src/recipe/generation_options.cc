#include "recipe/generation_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>

namespace deepinfer::recipe {
namespace json = boost::json;
namespace {

constexpr int64_t kMaxInt32 = std::numeric_limits<int32_t>::max();

// A positive double may be too small for a float; it must not become 0 on the way, which would be out of range.
float positive_float(double value) { return std::max(static_cast<float>(value), std::numeric_limits<float>::min()); }

void read_logit_bias(FieldReader& fields, int32_t vocab_size, SamplingParams& out) {
  const json::object* bias = fields.object("logit_bias");
  if (bias == nullptr) return;
  out.logit_bias.reserve(bias->size());
  for (const auto& [key, value] : *bias) {
    TokenId id = -1;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (error != std::errc() || end != key.data() + key.size() || id < 0 || id >= vocab_size) {
      return fields.fail("logit_bias", fmt::format("logit_bias: \"{}\" is not a token id from 0 to {}",
                                                   std::string_view(key).substr(0, 32), vocab_size - 1));
    }
    const std::optional<double> amount = as_double(value);
    if (!amount || *amount < -100 || *amount > 100) {
      return fields.fail("logit_bias", fmt::format("logit_bias of token {} must be a number from -100 to 100", id));
    }
    out.logit_bias.emplace_back(id, static_cast<float>(*amount));
  }
}

void read_stop_token_ids(FieldReader& fields, int32_t vocab_size, SamplingParams& out) {
  const json::array* ids = fields.array("stop_token_ids");
  if (ids == nullptr) return;
  if (ids->size() > static_cast<size_t>(kMaxStopTokens)) {
    return fields.fail("stop_token_ids", fmt::format("stop_token_ids holds more than {} ids", kMaxStopTokens));
  }
  for (const json::value& value : *ids) {
    const std::optional<int64_t> id = exact_integer(value);
    if (!id || *id < 0 || *id >= vocab_size) {
      return fields.fail("stop_token_ids", fmt::format("stop_token_ids must hold token ids from 0 to {}", vocab_size - 1));
    }
    out.stop_token_ids.push_back(static_cast<TokenId>(*id));
  }
}

void read_stream(FieldReader& fields, GenerationOptions& out) {
  out.stream = fields.boolean("stream").value_or(false);
  const json::object* options = fields.object("stream_options");
  if (options == nullptr) return;
  if (!out.stream) return fields.fail("stream_options", "stream_options is allowed only when stream is true");
  FieldReader inner(*options, "stream_options", fields.problems());
  out.include_usage = inner.boolean("include_usage").value_or(false);
}

}  // namespace

void read_sampling(FieldReader& fields, const OptionsContext& context, SamplingParams& out) {
  const SamplingDefaults& defaults = context.defaults;
  out.temperature = static_cast<float>(fields.number("temperature", {.min = 0, .max = 2}).value_or(defaults.temperature));
  out.top_p = positive_float(fields.number("top_p", {.min = 0, .max = 1, .min_excluded = true}).value_or(defaults.top_p));
  out.min_p = static_cast<float>(fields.number("min_p", {.min = 0, .max = 1}).value_or(defaults.min_p));
  // -1 is how other servers spell "off".
  out.top_k = static_cast<int32_t>(std::max<int64_t>(0, fields.integer("top_k", -1, kMaxInt32).value_or(defaults.top_k)));
  // What is divided by less could leave the range of floats, and no choice is left to be made long before.
  constexpr float kLeastPenalty = 1e-3f;
  out.repetition_penalty = std::max(
      kLeastPenalty, positive_float(fields.number("repetition_penalty", {.min = 0, .max = 1000, .min_excluded = true}).value_or(defaults.repetition_penalty)));
  out.frequency_penalty = static_cast<float>(fields.number("frequency_penalty", {.min = -2, .max = 2}).value_or(0));
  out.presence_penalty = static_cast<float>(fields.number("presence_penalty", {.min = -2, .max = 2}).value_or(0));
  out.min_tokens = static_cast<int32_t>(fields.integer("min_tokens", 0, kMaxInt32).value_or(0));
  out.ignore_eos = fields.boolean("ignore_eos").value_or(false);
}

void add_stop_string(FieldReader& fields, std::string_view key, std::string_view text, std::vector<std::string>& out) {
  if (text.size() > kMaxStopStringBytes) return fields.fail(key, fmt::format("{} holds a string of more than {} bytes", key, kMaxStopStringBytes));
  if (text.empty()) return;
  if (out.size() == static_cast<size_t>(kMaxStopStrings)) return fields.fail(key, fmt::format("{} holds more than {} strings", key, kMaxStopStrings));
  out.emplace_back(text);
}

void read_cache_salt(FieldReader& fields, std::string& out) {
  const json::string* salt = fields.string("cache_salt");
  if (salt == nullptr) return;
  if (salt->empty() || salt->size() > kMaxCacheSaltBytes) {
    return fields.fail("cache_salt", fmt::format("cache_salt must have 1 to {} bytes", kMaxCacheSaltBytes));
  }
  out = *salt;
}

void read_retention(FieldReader& fields, std::string& out) {
  // The rest of it is the client's own, and so may its type be.
  const json::value* metadata = fields.value("metadata");
  const json::object* object = metadata == nullptr ? nullptr : metadata->if_object();
  const json::value* name = object == nullptr ? nullptr : object->if_contains("retention");
  if (name != nullptr && name->is_string()) out = name->get_string();
}

void read_stop(FieldReader& fields, std::vector<std::string>& out) {
  const json::value* stop = fields.value("stop");
  if (stop == nullptr) return;
  const auto add = [&](const json::value& item) {
    const json::string* text = item.if_string();
    if (text == nullptr) return fields.fail("stop", "stop must be a string or an array of strings");
    add_stop_string(fields, "stop", *text, out);
  };
  const json::array* list = stop->if_array();
  if (list == nullptr) return add(*stop);
  for (const json::value& item : *list) add(item);
}

GenerationOptions read_generation_options(FieldReader& fields, const OptionsContext& context) {
  GenerationOptions out;
  read_stream(fields, out);
  read_sampling(fields, context, out.sampling);
  read_logit_bias(fields, context.vocab_size, out.sampling);
  read_stop_token_ids(fields, context.vocab_size, out.sampling);
  read_stop(fields, out.stop);
  read_cache_salt(fields, out.cache_salt);
  read_retention(fields, out.retention);
  read_output_format(fields, out.output_format);
  out.n = static_cast<int32_t>(fields.integer("n", 1, kMaxChoices).value_or(1));
  const std::optional<int64_t> seed = fields.integer("seed", 0, std::numeric_limits<int64_t>::max());
  out.has_seed = seed.has_value();
  out.sampling.seed = static_cast<uint64_t>(seed.value_or(0));
  // The newer name wins when both are there.
  const std::optional<int64_t> completion = fields.integer("max_completion_tokens", 1, kMaxInt32);
  const std::optional<int64_t> tokens = fields.integer("max_tokens", 1, kMaxInt32);
  if (completion || tokens) out.max_tokens = static_cast<int32_t>(completion ? *completion : *tokens);
  return out;
}

}  // namespace deepinfer::recipe
