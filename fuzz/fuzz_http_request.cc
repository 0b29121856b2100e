// LIBS: di_api
// Bodies of requests as a client sends them: the JSON reader, then the reader of one endpoint, chosen by the first byte. Whatever is
// accepted must be what the server goes on to rely on.
#include <cstddef>
#include <cstdint>
#include <string>

#include "api/json_reader.h"
#include "base/check.h"
#include "recipe/chat_completions.h"
#include "recipe/completions.h"

namespace {

using namespace deepinfer;
constexpr recipe::OptionsContext kContext{.vocab_size = 1000};

void check_options(const recipe::GenerationOptions& options) {
  CHECK(options.n >= 1);
  CHECK(options.n <= kMaxChoices);
  CHECK(options.max_tokens.value_or(1) >= 1);
  CHECK(options.sampling.temperature >= 0);
  CHECK(options.sampling.top_p > 0);
  CHECK(options.sampling.repetition_penalty > 0);
  CHECK(options.sampling.top_logprobs <= kMaxTopLogprobs);
  CHECK(options.stop.size() <= static_cast<size_t>(recipe::kMaxStopStrings));
  for (const auto& [id, bias] : options.sampling.logit_bias) {
    CHECK(id >= 0);
    CHECK(id < kContext.vocab_size);
    CHECK(bias >= -100);
  }
}

void read_chat(const boost::json::object& body) {
  recipe::Problems problems;
  const std::optional<recipe::ChatRequest> request = recipe::parse_chat_request(body, kContext, problems);
  CHECK(request.has_value() != problems.any());
  if (!request) return;
  CHECK(!request->conversation.messages.empty());
  check_options(request->options);
}

void read_completion(const boost::json::object& body) {
  recipe::Problems problems;
  const std::optional<recipe::CompletionRequest> request = recipe::parse_completion_request(body, kContext, problems);
  CHECK(request.has_value() != problems.any());
  if (request) check_options(request->options);
}

void read_conversation(const boost::json::object& body) {
  recipe::Problems problems;
  recipe::FieldReader fields(body, "", problems);
  const recipe::Conversation conversation = recipe::parse_conversation(fields);
  CHECK(problems.any() || !conversation.messages.empty());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const Result<boost::json::object> body = api::read_json_object(std::string(reinterpret_cast<const char*>(data + 1), size - 1));
  if (!body) return 0;
  switch (data[0] % 3) {
    case 0: read_chat(*body); break;
    case 1: read_completion(*body); break;
    default: read_conversation(*body); break;
  }
  return 0;
}
