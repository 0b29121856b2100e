#include "recipe/request_json.h"

#include <boost/json/array.hpp>
#include <boost/json/value_from.hpp>

#include "base/check.h"
#include "recipe/json_reader.h"

namespace deepinfer::recipe {
namespace json = boost::json;
namespace {

template <class T>
json::value or_null(const std::optional<T>& value) {
  return value ? json::value(*value) : json::value();
}

// Enumerators in their order.
template <class E, size_t N>
std::string_view word(const std::string_view (&words)[N], E value) {
  CHECK(static_cast<size_t>(value) < N);
  return words[static_cast<size_t>(value)];
}

json::object message_json(const Message& message) {
  constexpr std::string_view kRoles[] = {"system", "developer", "user", "assistant", "tool", "latest_reminder"};
  constexpr std::string_view kTasks[] = {"", "action", "query", "authority", "domain", "title", "read_url"};
  json::object out{{"role", word(kRoles, message.role)}, {"content", message.content}};
  json::array images, calls;
  for (const PlacedImage& placed : message.images) images.push_back(json::object{{"offset", placed.offset}, {"image", placed.image}});
  for (const ToolCall& call : message.tool_calls) calls.push_back(json::object{{"id", call.id}, {"name", call.name}, {"arguments", call.arguments}});
  if (!images.empty()) out["images"] = std::move(images);
  if (message.reasoning) out["reasoning"] = *message.reasoning;
  if (!calls.empty()) out["tool_calls"] = std::move(calls);
  if (message.role == Role::kTool) out["tool_call_id"] = message.tool_call_id;
  if (message.prefix) out["prefix"] = true;
  if (message.task != Task::kNone) out["task"] = word(kTasks, message.task);
  return out;
}

json::object response_format_json(const ResponseFormat& format) {
  switch (format.kind) {
    case ResponseFormat::Kind::kText: break;
    case ResponseFormat::Kind::kJsonObject: return json::object{{"type", "json_object"}};
    case ResponseFormat::Kind::kJsonSchema: return json::object{{"type", "json_schema"}, {"schema", format.schema}};
  }
  return json::object{{"type", "text"}};
}

json::object conversation_json(const Conversation& conversation) {
  constexpr std::string_view kDetails[] = {"high", "low", "original", "auto"};
  constexpr std::string_view kChoices[] = {"auto", "none", "required", "any"};
  constexpr std::string_view kEffortWords[] = {"", "low", "high", "xhigh", "max"};
  json::array messages, images, tools;
  for (const Message& message : conversation.messages) messages.push_back(message_json(message));
  for (const Image& image : conversation.images) images.push_back(json::object{{"url", image.url}, {"detail", word(kDetails, image.detail)}});
  for (const ToolDefinition& tool : conversation.tools) {
    tools.push_back(json::object{{"name", tool.name}, {"description", tool.description}, {"parameters", tool.parameters}, {"strict", or_null(tool.strict)}});
  }
  json::object out{{"messages", std::move(messages)}, {"images", std::move(images)}, {"tools", std::move(tools)}};
  out["tool_choice"] = word(kChoices, conversation.tool_choice);
  out["thinking"] = or_null(conversation.thinking);
  out["effort"] = conversation.effort == Effort::kUnset ? json::value() : json::value(word(kEffortWords, conversation.effort));
  out["effort_number"] = or_null(conversation.effort_number);
  out["response_format"] = response_format_json(conversation.response_format);
  return out;
}

json::value constraint_json(const Constraint& constraint) {
  if (constraint.spec.empty()) return nullptr;
  return json::object{{"spec", parse_json(constraint.spec).value()},  // our own text
                      {"begins_after", constraint.begins_after >= 0 ? json::value(constraint.begins_after) : json::value()}};
}

json::object options_json(const GenerationOptions& options, const Constraint& constraint) {
  const SamplingParams& sampling = options.sampling;
  json::object out{{"stream", options.stream}, {"n", options.n}, {"max_tokens", or_null(options.max_tokens)}};
  out["default_max_tokens"] = or_null(options.default_max_tokens);
  out["temperature"] = sampling.temperature;
  out["top_p"] = sampling.top_p;
  out["min_p"] = sampling.min_p;
  out["top_k"] = sampling.top_k;
  out["repetition_penalty"] = sampling.repetition_penalty;
  out["presence_penalty"] = sampling.presence_penalty;
  out["frequency_penalty"] = sampling.frequency_penalty;
  json::array bias;
  for (const auto& [id, amount] : sampling.logit_bias) bias.push_back(json::array{id, static_cast<double>(amount)});
  out["logit_bias"] = std::move(bias);
  out["seed"] = options.has_seed ? json::value(sampling.seed) : json::value();
  out["top_logprobs"] = sampling.top_logprobs >= 0 ? json::value(sampling.top_logprobs) : json::value();
  out["min_tokens"] = sampling.min_tokens;
  out["stop"] = json::value_from(options.stop);
  out["stop_token_ids"] = json::value_from(sampling.stop_token_ids);
  out["ignore_eos"] = sampling.ignore_eos;
  out["thinking_budget"] = or_null(options.thinking_budget);
  out["single_tool_call"] = options.single_tool_call;
  out["constraint"] = constraint_json(constraint);
  return out;
}

json::object text_json(const TextPrompt& prompt) {
  const auto* text = std::get_if<std::string>(&prompt.text);
  return json::object{{"prompt", text != nullptr ? json::value(*text) : json::value_from(std::get<std::vector<TokenId>>(prompt.text))},
                      {"suffix", or_null(prompt.suffix)}};
}

}  // namespace

json::object prompt_json(const EncodedRequest& encoded) {
  json::array segments, images;
  for (const Segment& segment : encoded.prompt.segments) {
    json::object one{{"text", segment.text}};
    if (segment.kind != Segment::Kind::kPlain) one["id"] = segment.id;
    if (segment.kind == Segment::Kind::kImage) one["image"] = segment.image;
    segments.push_back(std::move(one));
  }
  for (const Image& image : encoded.prompt.images) images.push_back(json::value(image.url));
  return json::object{{"ids", json::value_from(encoded.ids)}, {"segments", std::move(segments)}, {"images", std::move(images)}, {"start", name_of(encoded.prompt.syntax.start)}};
}

json::object request_json(const ParsedRequest& request, const EncodedRequest& encoded, const Constraint& constraint) {
  json::object out = prompt_json(encoded);
  if (const auto* conversation = std::get_if<Conversation>(&request.prompt)) {
    out["conversation"] = conversation_json(*conversation);
  } else {
    out["text"] = text_json(std::get<TextPrompt>(request.prompt));
  }
  out["options"] = options_json(request.options, constraint);
  return out;
}

}  // namespace deepinfer::recipe
