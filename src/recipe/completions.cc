#include "recipe/completions.h"

#include <fmt/format.h>

namespace deepinfer::recipe {
namespace json = boost::json;
namespace {

void read_ids(FieldReader& fields, const json::array& values, int32_t vocab_size, std::vector<TokenId>& out) {
  out.reserve(values.size());
  for (const json::value& value : values) {
    const std::optional<int64_t> id = exact_integer(value);
    if (!id || *id < 0 || *id >= vocab_size) {
      return fields.fail("prompt", fmt::format("prompt must hold token ids from 0 to {}", vocab_size - 1));
    }
    out.push_back(static_cast<TokenId>(*id));
  }
}

// A string, an array of ids, or an array with one of these.
void read_prompt(FieldReader& fields, int32_t vocab_size, CompletionRequest& out) {
  const json::value* prompt = fields.value("prompt");
  if (prompt == nullptr) return fields.fail("prompt", "prompt is missing");
  if (const json::array* list = prompt->if_array(); list != nullptr && !list->empty() && !list->front().is_number()) {
    if (list->size() > 1) return fields.fail("prompt", "one request takes one prompt");
    prompt = &list->front();
  }
  if (const json::string* text = prompt->if_string()) {
    out.prompt = std::string(*text);
  } else if (const json::array* ids = prompt->if_array()) {
    read_ids(fields, *ids, vocab_size, out.prompt.emplace<std::vector<TokenId>>());
    if (ids->empty()) fields.fail("prompt", "prompt must not be empty");
  } else {
    fields.fail("prompt", "prompt must be a string or an array of token ids");
  }
}

}  // namespace

std::optional<CompletionRequest> parse_completion_request(const json::object& body, const OptionsContext& context, Problems& problems) {
  FieldReader fields(body, "", problems);
  CompletionRequest out;
  read_prompt(fields, context.vocab_size, out);
  out.parse_special = fields.boolean("parse_special").value_or(false);
  out.options = read_generation_options(fields, context);
  out.options.sampling.top_logprobs = static_cast<int32_t>(fields.integer("logprobs", 0, kMaxTopLogprobs).value_or(-1));
  if (fields.boolean("echo").value_or(false)) fields.fail("echo", "echo is not supported");
  const std::optional<int64_t> best_of = fields.integer("best_of", 1, kMaxChoices);
  if (best_of && *best_of != 1 && *best_of != out.options.n) fields.fail("best_of", "best_of is not supported; ask for n choices");
  if (const json::string* suffix = fields.string("suffix"); suffix != nullptr && !suffix->empty()) {
    if (std::holds_alternative<std::string>(out.prompt)) {
      out.suffix = std::string(*suffix);
    } else {
      fields.fail("suffix", "suffix needs a prompt of text");
    }
  }
  if (problems.any()) return std::nullopt;
  return out;
}

}  // namespace deepinfer::recipe
