#include "trace/log_parser.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <span>
#include <unordered_map>
#include <utility>

#include "base/base64.h"
#include "trace/request_body.h"

namespace deepinfer::trace {
namespace {

// Where logs write when a call began; the first that is there and is a time.
constexpr std::array<std::string_view, 22> kTimeFields = {
    "ts", "time", "timestamp", "startTime", "start_time", "startedDateTime", "request_created_at", "created", "created_at", "createdAt",
    "time_iso8601", "time_local", "msec", "@timestamp", "requestTime", "request_time", "date", "datetime", "metadata.timestamp",
    "request.created_at", "request.timestamp", "TIMESTAMP"};

constexpr std::array<std::string_view, 15> kTenantFields = {
    "tenant", "tenant_id", "api_key", "user_api_key_hash", "metadata.user_api_key_hash", "metadata.user_api_key", "key_hash", "team_id",
    "org_id", "userId", "user_id", "request_user_id", "end_user", "user", "remote_user"};

constexpr std::array<std::string_view, 9> kSessionFields = {
    "sessionId", "session_id", "session", "conversation_id", "conversationId", "thread_id", "trace_id", "traceId", "request_properties.Helicone-Session-Id"};

constexpr std::array<std::string_view, 16> kBodyFields = {
    "request_body", "requestBody", "request.body", "request", "body", "req.body", "req", "payload", "http_request_body", "proxy_server_request.body",
    "proxy_server_request", "data", "input", "json", "params", "kwargs"};

// Langfuse's API writes usage too, which lacks what caches had.
constexpr std::array<std::string_view, 10> kUsageFields = {
    "usageDetails", "usage_details", "usage", "response.usage", "response_body.usage", "responseBody.usage", "response.body.usage", "output.usage",
    "response_obj.usage", "metadata.usage_object"};

constexpr std::array<std::string_view, 4> kHashFields = {"hash_ids", "block_hashes", "prefix_hashes", "hashes"};

MaybeJson first_of(const MaybeJson& object, std::span<const std::string_view> paths) {
  for (const std::string_view path : paths) {
    if (MaybeJson value = member_at(object, path)) return value;
  }
  return std::nullopt;
}

MaybeJson hash_list(const Json& value) {
  for (const std::string_view key : kHashFields) {
    if (MaybeJson list = member(value, key); is_array(list)) return list;
  }
  return std::nullopt;
}

LogRecord record_of(LogFormat format) {
  LogRecord out;
  out.format = format;
  return out;
}

uint64_t hash_value(const Json& value) {
  if (const auto whole = integer_of(value)) return static_cast<uint64_t>(*whole);
  uint64_t unsigned_value = 0;
  if (value.get(unsigned_value) == simdjson::SUCCESS) return unsigned_value;
  const std::string_view text = text_of(value);
  return XXH3_64bits(text.data(), text.size());
}

// What tracing tools write around a call holds the same messages and the sum of its counts: Langfuse's other observations. And LiteLLM logs what it
// answered from its own cache of answers.
bool calls_no_model(const Json& value) {
  constexpr std::string_view kKinds[] = {"SPAN", "EVENT", "AGENT", "TOOL", "CHAIN", "RETRIEVER", "EVALUATOR", "EMBEDDING", "GUARDRAIL"};
  const std::string_view kind = text_of(first_member(value, {"type", "observation_type"}));
  const bool observation = (member(value, "traceId") || member(value, "trace_id")) && (member(value, "input") || first_member(value, {"usageDetails", "usage_details"}));
  if (observation && std::find(std::begin(kKinds), std::end(kKinds), kind) != std::end(kKinds)) return true;
  const MaybeJson hit = member(value, "call_type") ? member(value, "cache_hit") : std::nullopt;
  bool yes = false;
  return hit && ((hit->get(yes) == simdjson::SUCCESS && yes) || text_of(hit) == "True" || text_of(hit) == "true");
}

// The log says that the request failed. 499 is a client that left: a model was at work by then.
bool has_failed(const Json& value) {
  constexpr int64_t kLeast = 400, kBeyond = 600, kClientLeft = 499;
  const MaybeJson said = first_member(value, {"status", "status_code", "statusCode", "http_status", "response_status", "response.status", "response.status_code"});
  const std::optional<int64_t> status = integer_of(said);
  if (status) return *status >= kLeast && *status < kBeyond && *status != kClientLeft;
  return member(value, "call_type") && text_of(said) == "failure";
}

// Spans around calls, of an agent or a tool, have a model's name and counts too.
bool is_model_operation(std::string_view name) {
  constexpr std::string_view kOthers[] = {"invoke_agent", "create_agent", "execute_tool", "invoke_workflow", "embeddings", "retrieval", "plan", "memory"};
  return std::find(std::begin(kOthers), std::end(kOthers), name) == std::end(kOthers);
}

// {"role", "parts": [{"type": "text", "content"}, {"type": "tool_call", …}, {"type": "tool_call_response", …}]}, or a chat message.
void append_otel_message(const Json& value, recipe::Conversation& out) {
  simdjson::dom::array parts;
  const MaybeJson list = member(value, "parts");
  if (!list || list->get(parts) != simdjson::SUCCESS) return append_chat_message(value, "", out);
  const std::string_view role = text_of(member(value, "role"));
  recipe::Message message;
  message.role = role == "assistant" ? recipe::Role::kAssistant : role == "system" ? recipe::Role::kSystem : recipe::Role::kUser;
  message.null_content = message.role == recipe::Role::kAssistant;
  bool any = message.role == recipe::Role::kAssistant;
  for (const Json part : parts) {
    const std::string_view type = text_of(member(part, "type"));
    if (type == "tool_call") {
      const MaybeJson arguments = first_member(part, {"arguments", "args"});
      message.tool_calls.push_back({std::string(text_of(member(part, "id"))), std::string(text_of(member(part, "name"))),
                                    !arguments ? "{}" : arguments->is_string() ? std::string(text_of(arguments)) : json_text(*arguments)});
    } else if (type == "tool_call_response") {
      const MaybeJson response = first_member(part, {"response", "result", "content"});
      out.messages.push_back({.role = recipe::Role::kTool,
                              .content = !response ? "" : response->is_string() ? std::string(text_of(response)) : json_text(*response),
                              .tool_call_id = std::string(text_of(member(part, "id")))});
    } else if (type == "reasoning" || type == "thinking") {
      message.reasoning = message.reasoning.value_or("") + std::string(text_of(first_member(part, {"content", "text"})));
    } else {
      const MaybeJson text = first_member(part, {"content", "text"});
      if (!message.content.empty()) message.content += "\n\n";
      message.content += text && text->is_string() ? std::string(text_of(text)) : json_text(part);
      message.null_content = false;
      any = true;
    }
  }
  if (any) out.messages.push_back(std::move(message));
}

// An OTLP value as the JSON that it stands for: {"kvlistValue": {"values": [{"key", "value"}]}}, {"arrayValue": {"values": […]}}, {"stringValue": …}.
// Its nesting is bounded by the parser's.
void append_otlp_json(const Json& value, std::string& out) {
  simdjson::dom::array list;
  if (const MaybeJson values = member_at(value, "arrayValue.values"); values && values->get(list) == simdjson::SUCCESS) {
    const char* separator = "[";
    for (const Json element : list) {
      out += std::exchange(separator, ",");
      append_otlp_json(element, out);
    }
    out += list.size() == 0 ? "[]" : "]";
  } else if (const MaybeJson members = member_at(value, "kvlistValue.values"); members && members->get(list) == simdjson::SUCCESS) {
    const char* separator = "{";
    for (const Json element : list) {
      const MaybeJson key = member(element, "key"), inner = member(element, "value");
      if (!key || !key->is_string()) continue;
      out.append(std::exchange(separator, ",")).append(json_text(*key)).append(":");
      if (inner) append_otlp_json(*inner, out);
      else out += "null";
    }
    out += *separator == '{' ? "{}" : "}";
  } else if (const MaybeJson number = member(value, "intValue")) {  // 64 bits, so often a string
    out += number->is_string() ? std::to_string(integer_of(number).value_or(0)) : json_text(*number);
  } else {
    const MaybeJson plain = first_member(value, {"stringValue", "doubleValue", "boolValue", "bytesValue"});
    out += plain ? json_text(*plain) : "null";
  }
}

}  // namespace

// OTLP attributes, [{"key": …, "value": {"stringValue": …}}], by key: a span of a long conversation has thousands.
class LogParser::Attributes {
 public:
  explicit Attributes(const MaybeJson& list) {
    simdjson::dom::array attributes;
    if (!list || list->get(attributes) != simdjson::SUCCESS) return;
    for (const Json one : attributes) {
      const MaybeJson whole = member(one, "value"), plain = first_member(whole, {"stringValue", "intValue", "doubleValue", "boolValue"});
      if (whole) values_.emplace(text_of(member(one, "key")), plain ? *plain : *whole);
    }
  }
  MaybeJson get(std::string_view key) const {
    const auto at = values_.find(key);
    return at != values_.end() ? MaybeJson(at->second) : std::nullopt;
  }
  MaybeJson first(std::initializer_list<std::string_view> keys) const {
    for (const std::string_view key : keys) {
      if (MaybeJson value = get(key)) return value;
    }
    return std::nullopt;
  }

 private:
  std::unordered_map<std::string_view, Json> values_;
};

MaybeJson LogParser::parse_inner(std::string_view text) {
  if (num_inner_ == kMaxInner || text.empty()) return std::nullopt;
  Json value;
  if (inner_[num_inner_].parse(text.data(), text.size(), true).get(value) != simdjson::SUCCESS) return std::nullopt;
  ++num_inner_;
  return value;
}

// What some tools log as an object and others as its text.
MaybeJson LogParser::object_or_text(const MaybeJson& value) {
  if (!value || !value->is_string()) return value;
  const std::string_view text = text_of(value);
  const size_t start = text.find_first_not_of(" \t\r\n");
  if (start == std::string_view::npos || (text[start] != '{' && text[start] != '[')) return std::nullopt;
  return parse_inner(text);
}

// Likewise of an attribute, whose structure OTLP spells out.
MaybeJson LogParser::attribute_or_text(const MaybeJson& value) {
  if (!is_object(value)) return object_or_text(value);
  std::string text;
  append_otlp_json(*value, text);
  return parse_inner(text);
}

std::optional<Skip> LogParser::parse(std::string_view text, std::vector<LogRecord>& out) {
  Json value;
  const simdjson::error_code error = parser_.parse(text.data(), text.size(), false).get(value);
  if (error == simdjson::DEPTH_ERROR) return Skip::kTooDeep;
  if (error != simdjson::SUCCESS) return Skip::kNotJson;
  return parse_value(value, out);
}

std::optional<Skip> LogParser::parse_value(const Json& value, std::vector<LogRecord>& out) {
  num_inner_ = 0;
  simdjson::dom::array list;
  std::optional<Skip> skip = Skip::kNoRequest;
  // An export as one array, or an API's page of one: {"data": [...], "meta": ...}.
  if (value.get(list) != simdjson::SUCCESS) {
    skip = parse_record(value, out);
    const MaybeJson page = member(value, "data");
    if ((skip != Skip::kNoRequest && skip != Skip::kOtherFormat) || !page || page->get(list) != simdjson::SUCCESS) return skip;
  }
  for (const Json element : list) {
    num_inner_ = 0;
    if (const auto why = parse_record(element, out)) {
      if (skip) skip = why;
    } else {
      skip.reset();
    }
  }
  return skip;
}

std::optional<Skip> LogParser::parse_record(const Json& value, std::vector<LogRecord>& out) {
  if (!value.is_object()) return options_.format ? Skip::kOtherFormat : Skip::kNoRequest;
  if (calls_no_model(value) || was_refused(value)) return Skip::kNoCall;
  if (options_.format) {
    const std::optional<Skip> skip = parse_as(*options_.format, value, out);
    return skip == Skip::kNoRequest ? Skip::kOtherFormat : skip;
  }
  if (const std::optional<LogFormat> format = format_of(value)) return parse_as(*format, value, out);
  if (!parse_lengths(value, out)) return std::nullopt;
  if (member(value, "choices") || text_of(member(value, "object")).starts_with("chat.completion")) return Skip::kResponseOnly;
  return Skip::kNoRequest;
}

std::optional<LogFormat> LogParser::format_of(const Json& value) const {
  if (hash_list(value)) return LogFormat::kHashTrace;
  if (member(value, "resourceSpans") || is_array(member(value, "spans"))) return LogFormat::kOtel;
  if (is_array(member_at(value, "log.entries"))) return LogFormat::kHar;
  if (member(value, "startedDateTime") && member_at(value, "request.postData")) return LogFormat::kHar;
  if (member(value, "http_buffered_trace")) return LogFormat::kEnvoyTap;
  if (const std::optional<LogFormat> wrapper = wrapper_format(value)) return wrapper;
  return body_format(value);
}

std::optional<Skip> LogParser::parse_as(LogFormat format, const Json& value, std::vector<LogRecord>& out) {
  LogRecord record = record_of(format);
  switch (format) {
    case LogFormat::kHashTrace: return parse_hash_trace(value, out);
    case LogFormat::kLengths: return parse_lengths(value, out);
    case LogFormat::kOtel: return parse_otel(value, out);
    case LogFormat::kHar: return member(value, "log") ? parse_har(value, out) : parse_har_entry(value, out);
    case LogFormat::kEnvoyTap: return parse_envoy_tap(value, out);
    case LogFormat::kClaudeCode:
    case LogFormat::kCodex: return Skip::kNoRequest;  // lines of such a file mean something only together
    case LogFormat::kChat:
    case LogFormat::kMessages:
    case LogFormat::kResponses:
    case LogFormat::kCompletions:
      read_frame(value, record);
      if (!read_body(value, format, record)) return body_format(value) == format ? Skip::kNoPrompt : Skip::kNoRequest;
      out.push_back(std::move(record));
      return std::nullopt;
    case LogFormat::kLiteLlm:
    case LogFormat::kLangfuse:
    case LogFormat::kHelicone:
    case LogFormat::kBodyLog:
    case LogFormat::kDeepInfer: break;
  }
  read_frame(value, record);
  const std::optional<Skip> skip = parse_body_of(value, std::move(record), out);
  return skip == Skip::kNoPrompt && wrapper_format(value) != format ? Skip::kNoRequest : skip;
}

// Told by fields that only that tool writes; any other object around a body is a body log.
std::optional<LogFormat> LogParser::wrapper_format(const Json& outer) const {
  const auto has = [&](std::string_view key) { return member(outer, key).has_value(); };
  if (has("call_type") || (has("spend") && has("messages")) || (has("model_parameters") && has("litellm_params")) || has("litellm_call_id")) {
    return LogFormat::kLiteLlm;
  }
  const std::string_view type = text_of(member(outer, "type"));
  if (type == "GENERATION" || (has("traceId") && has("input")) || (has("trace_id") && has("observation_type"))) return LogFormat::kLangfuse;
  if (has("request_created_at") || has("helicone_id") || (has("request_body") && (has("response_body") || has("request_path")) && has("request_id"))) {
    return LogFormat::kHelicone;
  }
  if (has("endpoint") && has("e2e_ms")) return LogFormat::kDeepInfer;
  if (body_format(outer)) return std::nullopt;
  for (const std::string_view key : kBodyFields) {
    const MaybeJson inner = member_at(outer, key);
    if (inner && (inner->is_object() || inner->is_string())) return LogFormat::kBodyLog;
  }
  return std::nullopt;
}

// Failed, and nobody counted a token of it: retried requests would count as hits.
bool LogParser::was_refused(const Json& value) const {
  if (!has_failed(value)) return false;
  LogRecord record;
  read_frame(value, record);
  return record.usage.input <= 0;
}

// What stands around a body: time, tenant, session, token counts.
void LogParser::read_frame(const Json& outer, LogRecord& record) const {
  if (!options_.time_field.empty()) {
    record.time_us = time_us_of(member_at(outer, options_.time_field));
  } else {
    // Some of these names are durations in other logs (HAR's time, nginx's request_time): what can be a clock goes first.
    for (const std::string_view key : kTimeFields) {
      const std::optional<int64_t> time_us = time_us_of(member_at(outer, key));
      if (!time_us) continue;
      if (!record.time_us) record.time_us = time_us;
      if (!is_clock_us(*time_us)) continue;
      record.time_us = time_us;
      break;
    }
  }
  record.tenant = name_of(options_.tenant_field.empty() ? first_of(outer, kTenantFields) : member_at(outer, options_.tenant_field));
  record.session = name_of(first_of(outer, kSessionFields));
  record.model = text_of(first_member(outer, {"model", "providedModelName", "provided_model_name", "request_model", "model_name"}));
  read_usage(outer, record.usage);
  for (const std::string_view key : kUsageFields) {
    if (const MaybeJson usage = member_at(outer, key); is_object(usage)) {
      read_usage(usage, record.usage);
      break;
    }
  }
}

std::optional<Skip> LogParser::parse_body_of(const Json& outer, LogRecord record, std::vector<LogRecord>& out) {
  // Answers may be logged as text; their usage is in them. It says what a cache had, which the tool's own columns may not (Helicone's prompt_tokens).
  if (record.usage.cached < 0) {
    LoggedUsage of_answer;
    read_answer(first_member(outer, {"response_body", "response", "responseBody", "output"}), of_answer);
    if (of_answer.input >= 0 && (record.usage.input < 0 || of_answer.cached >= 0)) record.usage = of_answer;
  }
  for (const std::string_view key : kBodyFields) {
    const MaybeJson body = object_or_text(member_at(outer, key));
    if (const auto format = body_format(body)) {
      if (!read_body(*body, *format, record)) continue;
      out.push_back(std::move(record));
      return std::nullopt;
    }
    // A list of messages where a body might stand.
    if (is_array(body)) return parse_gateway(outer, body, std::move(record), out);
    if (body && record.format == LogFormat::kLangfuse && is_array(member(body, "messages"))) continue;
  }
  if (const MaybeJson messages = object_or_text(member(outer, "messages")); is_array(messages)) {
    return parse_gateway(outer, messages, std::move(record), out);
  }
  if (const MaybeJson text = first_member(outer, {"input", "prompt"}); text && text->is_string() && record.format == LogFormat::kLangfuse) {
    recipe::Conversation conversation;
    conversation.messages.push_back({.role = recipe::Role::kUser, .content = std::string(text_of(text))});
    record.prompt = std::move(conversation);
    out.push_back(std::move(record));
    return std::nullopt;
  }
  if (record.format == LogFormat::kBodyLog) return Skip::kNoRequest;
  return take_lengths(std::move(record), out);
}

// Of a call whose prompt was not logged, its token counts, if it has any.
std::optional<Skip> LogParser::take_lengths(LogRecord record, std::vector<LogRecord>& out) {
  if (record.usage.input < 0) return Skip::kNoPrompt;
  record.prompt = UnknownPrompt{};
  out.push_back(std::move(record));
  return std::nullopt;
}

// An answer: an object, its text, or the text of a stream.
void LogParser::read_answer(const MaybeJson& answer, LoggedUsage& usage) {
  if (answer && answer->is_string()) read_answer_text(text_of(answer), usage);
  else read_usage(member(answer, "usage"), usage);
}

void LogParser::read_answer_text(std::string_view text, LoggedUsage& usage) {
  const size_t num_inner = num_inner_;
  if (text.starts_with("data:") || text.starts_with("event:") || text.starts_with(":")) {
    // Server-sent events. Chat Completions counts in its last chunk, Responses in the event that ends it, Messages the input at the
    // beginning and the output at the end.
    for (size_t at = 0; at < text.size();) {
      const size_t end = std::min(text.find('\n', at), text.size());
      std::string_view line = text.substr(at, end - at);
      at = end + 1;
      if (!line.starts_with("data:") || line.find("\"usage\"") == std::string_view::npos) continue;
      line.remove_prefix(5);
      const MaybeJson event = parse_inner(line);
      for (const std::string_view path : {"message.usage", "response.usage", "usage"}) read_usage(member_at(event, path), usage);
      num_inner_ = num_inner;
    }
    return;
  }
  read_usage(member(parse_inner(text), "usage"), usage);
  num_inner_ = num_inner;
}

// Messages and tools in fields of the wrapper itself.
std::optional<Skip> LogParser::parse_gateway(const Json& outer, const MaybeJson& messages, LogRecord record, std::vector<LogRecord>& out) {
  recipe::Conversation conversation;
  simdjson::dom::array list;
  if (messages->get(list) != simdjson::SUCCESS) return Skip::kNoPrompt;
  bool anthropic = false;
  for (const Json message : list) {
    simdjson::dom::array blocks;
    if (const MaybeJson content = member(message, "content"); content && content->get(blocks) == simdjson::SUCCESS) {
      for (const Json block : blocks) {
        const std::string_view type = text_of(member(block, "type"));
        anthropic |= type == "tool_use" || type == "tool_result" || type == "thinking";
      }
    }
  }
  const MaybeJson system = object_or_text(first_member(outer, {"system", "model_parameters.system", "modelParameters.system"}));
  if (const MaybeJson text = first_member(outer, {"system", "model_parameters.system"}); text && text->is_string()) {
    conversation.messages.push_back({.role = recipe::Role::kSystem, .content = std::string(text_of(text))});
  } else if (system && system->is_array()) {
    append_anthropic_message("system", system, conversation);
  }
  if (anthropic) {
    for (const Json message : list) append_anthropic_message(text_of(member(message, "role")), member(message, "content"), conversation);
  } else {
    append_chat_messages(*messages, conversation);
    if (conversation.messages.empty()) append_response_items(*messages, conversation);
  }
  const MaybeJson tools = object_or_text(first_member(outer, {"tools", "model_parameters.tools", "modelParameters.tools", "optional_params.tools",
                                                              "metadata.tools", "proxy_server_request.tools", "proxy_server_request.body.tools"}));
  if (tools) append_tools(*tools, conversation);
  if (conversation.messages.empty()) return take_lengths(std::move(record), out);
  record.prompt = std::move(conversation);
  out.push_back(std::move(record));
  return std::nullopt;
}

// --- traces without prompts

std::optional<Skip> LogParser::parse_hash_trace(const Json& value, std::vector<LogRecord>& out) {
  LogRecord record = record_of(LogFormat::kHashTrace);
  read_frame(value, record);
  HashedPrompt prompt;
  simdjson::dom::array ids;
  const MaybeJson list = hash_list(value);
  if (!list || list->get(ids) != simdjson::SUCCESS) return Skip::kNoRequest;
  prompt.block_ids.reserve(ids.size());
  for (const Json id : ids) prompt.block_ids.push_back(hash_value(id));
  // Mooncake's traces: blocks of 512 tokens.
  const auto block_tokens = integer_of(first_member(value, {"block_size", "block_tokens", "page_size"}));
  prompt.block_tokens = static_cast<int32_t>(std::clamp<int64_t>(block_tokens.value_or(512), 1, 1 << 20));
  if (!block_tokens) read_mooncake_time(value, record);
  const int64_t whole = static_cast<int64_t>(prompt.block_ids.size()) * prompt.block_tokens;
  const auto input = integer_of(first_member(value, {"input_length", "input_tokens", "prompt_tokens", "num_prompt_tokens", "prompt_len"}));
  record.usage.input = std::max<int64_t>(input.value_or(whole), 0);
  record.usage.output = integer_of(first_member(value, {"output_length", "output_tokens", "completion_tokens"})).value_or(-1);
  record.prompt = std::move(prompt);
  out.push_back(std::move(record));
  return std::nullopt;
}

// Milliseconds since the trace began, whatever size the number has; unless it is a clock.
void LogParser::read_mooncake_time(const Json& value, LogRecord& record) const {
  const auto ms = integer_of(member(value, "timestamp"));
  if (ms && *ms >= 0 && *ms < INT64_MAX / 1000 && options_.time_field.empty() && !(record.time_us && is_clock_us(*record.time_us))) record.time_us = *ms * 1000;
}

std::optional<Skip> LogParser::parse_lengths(const Json& value, std::vector<LogRecord>& out) {
  LogRecord record = record_of(LogFormat::kLengths);
  read_frame(value, record);
  if (record.usage.input < 0) {
    record.usage.input = integer_of(first_member(value, {"input_length", "ContextTokens", "prompt_len", "num_prefill_tokens"})).value_or(-1);
  }
  if (member(value, "input_length")) read_mooncake_time(value, record);
  if (record.usage.output < 0) record.usage.output = integer_of(first_member(value, {"output_length", "GeneratedTokens", "num_decode_tokens"})).value_or(-1);
  if (record.usage.input < 0) return Skip::kNoRequest;
  record.prompt = UnknownPrompt{};
  out.push_back(std::move(record));
  return std::nullopt;
}

// --- OpenTelemetry

std::optional<Skip> LogParser::parse_otel(const Json& value, std::vector<LogRecord>& out) {
  std::optional<Skip> skip = Skip::kNoRequest;
  const auto each = [](const MaybeJson& list, const auto& visit) {
    simdjson::dom::array elements;
    if (!list || list->get(elements) != simdjson::SUCCESS) return;
    for (const Json element : elements) visit(element);
  };
  const auto visit_span = [&](const Json& span) {
    num_inner_ = 0;
    const auto why = parse_span(span, out);
    if (!why) skip.reset();
    else if (skip && (*why == Skip::kNoPrompt || (*why == Skip::kNoCall && *skip == Skip::kNoRequest))) skip = why;
  };
  each(member(value, "spans"), visit_span);
  each(member(value, "resourceSpans"), [&](const Json& resource) {
    for (const std::string_view key : {"scopeSpans", "instrumentationLibrarySpans"}) {
      each(member(resource, key), [&](const Json& scope) { each(member(scope, "spans"), visit_span); });
    }
  });
  return skip;
}

std::optional<Skip> LogParser::parse_span(const Json& span, std::vector<LogRecord>& out) {
  const Attributes attributes(member(span, "attributes"));
  const auto get = [&](std::initializer_list<std::string_view> keys) { return attributes.first(keys); };
  LogRecord record = record_of(LogFormat::kOtel);
  record.model = text_of(get({"gen_ai.request.model", "gen_ai.response.model", "llm.request.model"}));
  if (record.model.empty() && !get({"gen_ai.system", "gen_ai.provider.name", "gen_ai.operation.name"})) return Skip::kNoRequest;
  if (!is_model_operation(text_of(get({"gen_ai.operation.name"})))) return Skip::kNoCall;
  record.time_us = options_.time_field.empty() ? time_us_of(member(span, "startTimeUnixNano")) : time_us_of(member_at(span, options_.time_field));
  record.session = text_of(get({"gen_ai.conversation.id", "session.id"}));
  record.tenant = text_of(options_.tenant_field.empty() ? get({"enduser.id", "user.id", "tenant.id"}) : get({options_.tenant_field}));
  const auto count = [&](std::initializer_list<std::string_view> keys) { return integer_of(get(keys)).value_or(-1); };
  record.usage = {.input = count({"gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens", "llm.usage.prompt_tokens"}),
                  .cached = count({"gen_ai.usage.cache_read.input_tokens", "gen_ai.usage.cache_read_input_tokens"}),
                  .written = count({"gen_ai.usage.cache_creation.input_tokens", "gen_ai.usage.cache_creation_input_tokens"}),
                  .output = count({"gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens", "llm.usage.completion_tokens"})};
  recipe::Conversation conversation;
  simdjson::dom::array list;
  if (const MaybeJson system = get({"gen_ai.system_instructions"})) {
    const MaybeJson parts = attribute_or_text(system);
    if (parts && parts->get(list) == simdjson::SUCCESS) {
      std::string text;
      for (const Json part : list) text += (text.empty() ? "" : "\n\n") + std::string(text_of(first_member(part, {"content", "text"})));
      conversation.messages.push_back({.role = recipe::Role::kSystem, .content = std::move(text)});
    } else {
      conversation.messages.push_back({.role = recipe::Role::kSystem, .content = std::string(text_of(system))});
    }
  }
  if (const MaybeJson messages = attribute_or_text(get({"gen_ai.input.messages", "gen_ai.prompt"})); messages && messages->get(list) == simdjson::SUCCESS) {
    for (const Json message : list) append_otel_message(message, conversation);
  } else {
    append_numbered_messages(attributes, conversation);
    append_span_events(member(span, "events"), conversation);
  }
  if (const MaybeJson tools = attribute_or_text(get({"gen_ai.tool.definitions", "gen_ai.request.tools"}))) append_tools(*tools, conversation);
  else append_numbered_tools(attributes, conversation);
  if (conversation.messages.empty()) return take_lengths(std::move(record), out);
  record.prompt = std::move(conversation);
  out.push_back(std::move(record));
  return std::nullopt;
}

// gen_ai.prompt.0.role, gen_ai.prompt.0.content, …: what OpenLLMetry writes.
void LogParser::append_numbered_messages(const Attributes& attributes, recipe::Conversation& out) {
  for (int i = 0;; ++i) {
    const std::string stem = fmt::format("gen_ai.prompt.{}.", i);
    const MaybeJson role = attributes.get(stem + "role"), content = attributes.get(stem + "content");
    if (!role && !content) return;
    const size_t num_inner = num_inner_, num_messages = out.messages.size();
    const MaybeJson blocks = attribute_or_text(content);  // several blocks are written as the JSON of their list
    append_anthropic_message(text_of(role), is_array(blocks) ? blocks : content, out);
    num_inner_ = num_inner;
    if (out.messages.size() == num_messages) continue;  // an empty list of blocks
    recipe::Message& message = out.messages.back();
    if (const MaybeJson id = attributes.get(stem + "tool_call_id")) message.tool_call_id = text_of(id);
    for (int call = 0;; ++call) {
      const std::string call_stem = fmt::format("{}tool_calls.{}.", stem, call);
      const MaybeJson name = attributes.get(call_stem + "name");
      if (!name) break;
      message.tool_calls.push_back({std::string(text_of(attributes.get(call_stem + "id"))), std::string(text_of(name)),
                                    std::string(text_of(attributes.get(call_stem + "arguments")))});
    }
  }
}

// llm.request.functions.0.name, .description, .parameters.
void LogParser::append_numbered_tools(const Attributes& attributes, recipe::Conversation& out) {
  for (int i = 0;; ++i) {
    const std::string stem = fmt::format("llm.request.functions.{}.", i);
    const MaybeJson name = attributes.get(stem + "name");
    if (!name) return;
    const size_t num_inner = num_inner_;
    append_tool(text_of(name), text_of(attributes.get(stem + "description")), attribute_or_text(attributes.get(stem + "parameters")), out);
    num_inner_ = num_inner;
  }
}

// Messages as events of a span: all in one gen_ai.content.prompt, or one each in gen_ai.user.message and its like.
void LogParser::append_span_events(const MaybeJson& events, recipe::Conversation& out) {
  constexpr std::string_view kPrefix = "gen_ai.", kSuffix = ".message";
  simdjson::dom::array list, messages;
  if (!events || events->get(list) != simdjson::SUCCESS) return;
  for (const Json event : list) {
    std::string_view name = text_of(member(event, "name"));
    const Attributes attributes(member(event, "attributes"));
    const size_t num_inner = num_inner_;
    if (name == "gen_ai.content.prompt") {
      const MaybeJson prompt = attribute_or_text(attributes.get("gen_ai.prompt"));
      if (prompt && prompt->get(messages) == simdjson::SUCCESS) {
        for (const Json message : messages) append_otel_message(message, out);
      }
    } else if (name.starts_with(kPrefix) && name.ends_with(kSuffix) && name.size() > kPrefix.size() + kSuffix.size()) {
      name = name.substr(kPrefix.size(), name.size() - kPrefix.size() - kSuffix.size());
      if (const MaybeJson body = attribute_or_text(attributes.get("gen_ai.event.content")); is_object(body)) append_chat_message(*body, name, out);
      else append_anthropic_message(name, attributes.get("content"), out);
    }
    num_inner_ = num_inner;
  }
}

// --- HTTP archives and taps

std::optional<Skip> LogParser::parse_har(const Json& har, std::vector<LogRecord>& out) {
  simdjson::dom::array entries;
  std::optional<Skip> skip = Skip::kNoRequest;
  const MaybeJson list = member_at(har, "log.entries");
  if (!list || list->get(entries) != simdjson::SUCCESS) return skip;
  for (const Json entry : entries) {
    num_inner_ = 0;
    const auto why = parse_har_entry(entry, out);
    if (!why) skip.reset();
    else if (skip && *why == Skip::kNoCall) skip = why;
  }
  return skip;
}

std::optional<Skip> LogParser::parse_har_entry(const Json& entry, std::vector<LogRecord>& out) {
  if (was_refused(entry)) return Skip::kNoCall;
  LogRecord record = record_of(LogFormat::kHar);
  read_frame(entry, record);
  const MaybeJson body = object_or_text(member_at(entry, "request.postData.text"));
  const auto format = body_format(body);
  if (!format) return Skip::kNoRequest;
  const MaybeJson answer = member_at(entry, "response.content.text");
  if (text_of(member_at(entry, "response.content.encoding")) == "base64") {
    read_answer_text(decode_base64(text_of(answer)).value_or(""), record.usage);
  } else {
    read_answer(answer, record.usage);
  }
  if (!read_body(*body, *format, record)) return Skip::kNoPrompt;
  record.format = LogFormat::kHar;
  out.push_back(std::move(record));
  return std::nullopt;
}

std::optional<Skip> LogParser::parse_envoy_tap(const Json& value, std::vector<LogRecord>& out) {
  LogRecord record = record_of(LogFormat::kEnvoyTap);
  read_frame(value, record);
  const MaybeJson trace = member(value, "http_buffered_trace");
  if (!record.time_us && options_.time_field.empty()) record.time_us = time_us_of(first_member(trace, {"request.headers_received_time", "request.start_time"}));
  const auto text_at = [&](std::string_view side) {
    const MaybeJson body = member_at(trace, side);
    if (const std::string_view text = text_of(member(body, "as_string")); !text.empty()) return std::string(text);
    return decode_base64(text_of(member(body, "as_bytes"))).value_or("");
  };
  const MaybeJson body = parse_inner(text_at("request.body"));
  const auto format = body_format(body);
  if (!format) return Skip::kNoRequest;
  read_answer_text(text_at("response.body"), record.usage);
  if (!read_body(*body, *format, record)) return Skip::kNoPrompt;
  out.push_back(std::move(record));
  return std::nullopt;
}

}  // namespace deepinfer::trace
