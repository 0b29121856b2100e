// LIBS: di_api
// Bodies of requests as a client sends them: the JSON reader, then the reader of one endpoint, chosen by the first byte. Whatever is
// accepted must be what the server goes on to rely on.
#include <cstddef>
#include <cstdint>
#include <set>
#include <string>

#include "base/check.h"
#include "recipe/chat_completions.h"
#include "recipe/json_reader.h"
#include "recipe/protocol.h"

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

// A store and a seal that know one thing each.
recipe::RequestContext context_of(recipe::Dialect dialect) {
  recipe::RequestContext out{.options = {.vocab_size = kContext.vocab_size, .dialect = dialect, .enable_tasks = true, .accepts_images = true}};
  out.open_reasoning = [](std::string_view sealed) { return sealed == "sealed" ? std::optional<std::string>("open") : std::nullopt; };
  out.stored_items = [](const std::string& id) -> std::optional<boost::json::array> {
    if (id != "kept") return std::nullopt;
    return boost::json::array{{{"role", "user"}, {"content", "before"}}};
  };
  return out;
}

// What renderers rely on without looking again (recipe/conversation.h).
void check_conversation(const recipe::Conversation& conversation) {
  CHECK(!conversation.messages.empty());
  std::set<std::string> open;
  for (const recipe::Message& message : conversation.messages) {
    if (message.role == recipe::Role::kTool) {
      CHECK(open.erase(message.tool_call_id) == 1);
    } else {
      CHECK(open.empty());
    }
    CHECK(message.tool_calls.empty() || message.role == recipe::Role::kAssistant);
    for (const recipe::ToolCall& call : message.tool_calls) CHECK(open.insert(call.id).second);
    CHECK(!message.prefix || &message == &conversation.messages.back());
    size_t offset = 0;
    for (const recipe::PlacedImage& image : message.images) {
      CHECK(image.offset >= offset);
      CHECK(image.offset <= message.content.size());
      CHECK(image.image < conversation.images.size());
      offset = image.offset;
    }
  }
  CHECK(open.empty());
  for (const recipe::ToolDefinition& tool : conversation.tools) {
    CHECK(!tool.name.empty());
    CHECK(tool.parameters.is_object());
  }
}

void read_request(recipe::Protocol protocol, const boost::json::object& body, recipe::Dialect dialect) {
  recipe::Problems problems;
  const std::optional<recipe::ParsedRequest> request = recipe::parse_request(protocol, body, context_of(dialect), problems);
  CHECK(request.has_value() != problems.any());
  if (!request) {
    CHECK(problems.first().message.size() < 10'000);
    return;
  }
  check_options(request->options);
  if (const auto* conversation = std::get_if<recipe::Conversation>(&request->prompt)) check_conversation(*conversation);
}

void read_conversation(const boost::json::object& body) {
  recipe::Problems problems;
  recipe::FieldReader fields(body, "", problems);
  const recipe::Conversation conversation = recipe::parse_conversation(fields, kContext);
  CHECK(problems.any() || !conversation.messages.empty());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const Result<boost::json::object> body = recipe::read_json_object(std::string(reinterpret_cast<const char*>(data + 1), size - 1));
  if (!body) return 0;
  const recipe::Dialect dialect = data[0] < 64 ? recipe::Dialect::kV41 : recipe::Dialect::kTemplate;
  switch (data[0] % 6) {
    case 0: read_request(recipe::Protocol::kChat, *body, dialect); break;
    case 1: read_request(recipe::Protocol::kCompletions, *body, dialect); break;
    case 2: read_conversation(*body); break;
    case 3: read_request(recipe::Protocol::kResponses, *body, dialect); break;
    case 4: read_request(recipe::Protocol::kMessages, *body, dialect); break;
    default: read_request(recipe::Protocol::kChat, *body, recipe::Dialect::kV4); break;
  }
  return 0;
}
