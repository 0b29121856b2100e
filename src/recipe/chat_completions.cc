#include "recipe/chat_completions.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

namespace deepinfer::recipe {
namespace json = boost::json;
namespace {

constexpr size_t kMaxToolNameBytes = 128;

std::string element(std::string_view path, size_t idx) { return fmt::format("{}[{}]", path, idx); }

// --- messages

std::optional<Role> role_of(std::string_view name) {
  if (name == "system") return Role::kSystem;
  if (name == "developer") return Role::kDeveloper;
  if (name == "user") return Role::kUser;
  if (name == "assistant") return Role::kAssistant;
  if (name == "tool") return Role::kTool;
  return std::nullopt;
}

// One block of a content array.
void append_block(const json::value& value, const std::string& path, bool first, Problems& problems, std::string& out) {
  const json::object* object = value.if_object();
  if (object == nullptr) return problems.report(path, path + " must be an object with a type");
  FieldReader block(*object, path, problems);
  const json::string* type = block.string("type");
  if (problems.any()) return;
  if (type == nullptr) return problems.report(path + ".type", path + ".type is missing");
  const std::string_view name(*type);
  if (name == "image_url" || name == "input_audio" || name == "file" || name == "video_url") {
    return problems.report(path, fmt::format("content of type {} is not supported: this model reads text only", name));
  }
  if (name != "text") {
    return problems.report(path + ".type", fmt::format("content type \"{}\" is unknown", name.substr(0, 64)));
  }
  const json::string* text = block.string("text");
  if (problems.any()) return;
  if (text == nullptr) return problems.report(path + ".text", path + ".text is missing");
  if (!first) out += "\n\n";
  out += std::string_view(*text);
}

// A string, or blocks joined with two newlines. False: absent.
bool read_content(FieldReader& message, std::string& out) {
  const json::value* content = message.value("content");
  if (content == nullptr) return false;
  if (const json::string* text = content->if_string()) {
    out = std::string_view(*text);
    return true;
  }
  const json::array* blocks = content->if_array();
  if (blocks == nullptr) {
    message.fail("content", message.path_of("content") + " must be a string or an array of content blocks");
    return false;
  }
  const std::string path = message.path_of("content");
  for (size_t i = 0; i < blocks->size(); ++i) append_block((*blocks)[i], element(path, i), i == 0, message.problems(), out);
  return !blocks->empty();
}

void read_tool_call(const json::value& value, const std::string& path, Problems& problems, Message& out) {
  const json::object* object = value.if_object();
  if (object == nullptr) return problems.report(path, path + " must be an object");
  FieldReader call(*object, path, problems);
  call.choice("type", {"function"});
  const json::string* id = call.string("id");
  const json::object* function = call.object("function");
  if (problems.any()) return;
  if (id == nullptr || id->empty()) return problems.report(path + ".id", path + ".id is missing");
  if (function == nullptr) return problems.report(path + ".function", path + ".function is missing");
  FieldReader inner(*function, path + ".function", problems);
  const json::string* name = inner.string("name");
  const json::string* arguments = inner.string("arguments");
  if (problems.any()) return;
  if (name == nullptr || name->empty()) return inner.fail("name", path + ".function.name is missing");
  const bool repeated = std::any_of(out.tool_calls.begin(), out.tool_calls.end(),
                                    [&](const ToolCall& other) { return other.id == std::string_view(*id); });
  if (repeated) return problems.report(path + ".id", fmt::format("tool call id \"{}\" appears twice", std::string_view(*id)));
  out.tool_calls.push_back({.id = std::string(*id), .name = std::string(*name),
                            .arguments = arguments != nullptr ? std::string(*arguments) : "{}"});
}

void read_assistant(FieldReader& message, bool has_content, Message& out) {
  out.null_content = !has_content;
  const json::string* reasoning = message.string("reasoning_content");
  if (reasoning == nullptr) reasoning = message.string("reasoning");
  if (reasoning != nullptr) out.reasoning = std::string(*reasoning);
  out.prefix = message.boolean("prefix").value_or(false);
  const json::array* calls = message.array("tool_calls");
  if (message.failed()) return;
  if (calls != nullptr) {
    const std::string path = message.path_of("tool_calls");
    if (calls->empty()) return message.fail("tool_calls", path + " must not be empty");
    for (size_t i = 0; i < calls->size(); ++i) read_tool_call((*calls)[i], element(path, i), message.problems(), out);
  }
  if (message.value("function_call") != nullptr) {
    return message.fail("function_call", "function_call is not supported; use tool_calls");
  }
  if (message.failed()) return;
  if (!has_content && out.tool_calls.empty()) {
    return message.fail("content", "an assistant message needs content or tool_calls");
  }
  if (out.prefix && !out.tool_calls.empty()) message.fail("prefix", "a message to be continued cannot hold tool_calls");
}

Message read_message(const json::value& value, const std::string& path, Problems& problems) {
  Message out;
  const json::object* object = value.if_object();
  if (object == nullptr) {
    problems.report(path, path + " must be an object");
    return out;
  }
  FieldReader message(*object, path, problems);
  const json::string* role_name = message.string("role");
  const std::optional<Role> role = role_name != nullptr ? role_of(*role_name) : std::nullopt;
  if (!role) message.fail("role", path + ".role must be one of system, developer, user, assistant, tool");
  const bool has_content = read_content(message, out.content);
  if (const json::string* name = message.string("name")) out.name = std::string(*name);
  if (message.failed()) return out;
  out.role = *role;
  if (out.role == Role::kAssistant) {
    read_assistant(message, has_content, out);
  } else if (!has_content) {
    message.fail("content", path + ".content is missing");
  }
  if (out.role == Role::kTool) {
    const json::string* id = message.string("tool_call_id");
    if (id == nullptr) {
      message.fail("tool_call_id", path + ".tool_call_id is missing");
    } else {
      out.tool_call_id = std::string(*id);
    }
  }
  return out;
}

// After a message with calls come exactly its results, in any order, and tool messages stand nowhere else.
void check_tool_results(const std::vector<Message>& messages, Problems& problems) {
  size_t i = 0;
  while (i < messages.size() && !problems.any()) {
    if (messages[i].role == Role::kTool) {
      return problems.report(element("messages", i), "a tool message must follow an assistant message with tool_calls");
    }
    std::set<std::string> open;
    for (const ToolCall& call : messages[i].tool_calls) open.insert(call.id);
    for (++i; !open.empty(); ++i) {
      if (i == messages.size() || messages[i].role != Role::kTool) {
        return problems.report(i < messages.size() ? element("messages", i) : "messages",
                               fmt::format("the result of tool call \"{}\" is missing", *open.begin()));
      }
      if (open.erase(messages[i].tool_call_id) == 0) {
        return problems.report(element("messages", i) + ".tool_call_id",
                               fmt::format("tool_call_id \"{}\" does not answer an open tool call", messages[i].tool_call_id));
      }
    }
  }
}

void read_messages(FieldReader& fields, Conversation& out) {
  const json::array* messages = fields.array("messages");
  if (fields.failed()) return;
  if (messages == nullptr) return fields.fail("messages", "messages is missing");
  if (messages->empty()) return fields.fail("messages", "messages must not be empty");
  out.messages.reserve(messages->size());
  for (size_t i = 0; i < messages->size() && !fields.failed(); ++i) {
    out.messages.push_back(read_message((*messages)[i], element("messages", i), fields.problems()));
    if (out.messages.back().prefix && i + 1 != messages->size()) {
      fields.problems().report(element("messages", i) + ".prefix", "prefix is allowed on the last message only");
    }
  }
  if (!fields.failed()) check_tool_results(out.messages, fields.problems());
}

// --- tools

bool is_tool_name(std::string_view name) {
  return !name.empty() && name.size() <= kMaxToolNameBytes && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
  });
}

void read_tool(const json::value& value, const std::string& path, Problems& problems, std::vector<ToolDefinition>& out) {
  const json::object* object = value.if_object();
  if (object == nullptr) return problems.report(path, path + " must be an object");
  FieldReader tool(*object, path, problems);
  if (tool.choice("type", {"function"}).empty()) return tool.fail("type", path + ".type is missing");
  const json::object* function = tool.object("function");
  if (problems.any()) return;
  if (function == nullptr) return tool.fail("function", path + ".function is missing");
  FieldReader inner(*function, path + ".function", problems);
  const json::string* name = inner.string("name");
  const json::string* description = inner.string("description");
  const json::object* parameters = inner.object("parameters");
  inner.boolean("strict");
  if (problems.any()) return;
  if (name == nullptr || !is_tool_name(*name)) {
    return inner.fail("name", fmt::format("{}.function.name must be 1 to {} of the characters A-Z a-z 0-9 _ -", path, kMaxToolNameBytes));
  }
  if (parameters != nullptr) {
    const json::value* type = parameters->if_contains("type");
    if (type != nullptr && *type != "object") return inner.fail("parameters", path + ".function.parameters must have the type object");
  }
  const bool repeated = std::any_of(out.begin(), out.end(), [&](const ToolDefinition& other) { return other.name == std::string_view(*name); });
  if (repeated) return inner.fail("name", fmt::format("tool \"{}\" is declared twice", std::string_view(*name)));
  out.push_back({.name = std::string(*name),
                 .description = description != nullptr ? std::string(*description) : std::string(),
                 .parameters = parameters != nullptr ? json::value(*parameters) : json::value(json::object()),
                 .raw = value});
}

// True: the tools stay out of the prompt.
bool read_tool_choice(FieldReader& fields, const std::vector<ToolDefinition>& tools) {
  const json::value* choice = fields.value("tool_choice");
  if (choice == nullptr) return false;
  if (const json::string* name = choice->if_string()) {
    if (*name == "none") return true;
    if (*name == "auto") return false;
    if (*name != "required") {
      fields.fail("tool_choice", "tool_choice must be none, auto, required or a named function");
      return false;
    }
    if (tools.empty()) fields.fail("tool_choice", "tool_choice required needs tools");
  } else if (!choice->is_object()) {
    fields.fail("tool_choice", "tool_choice must be a string or an object");
  }
  fields.fail("tool_choice", "this tool_choice is not supported by this model yet; use none or auto");
  return false;
}

void read_tools(FieldReader& fields, Conversation& out) {
  for (const std::string_view legacy : {"functions", "function_call"}) {
    if (fields.value(legacy) != nullptr) fields.fail(legacy, fmt::format("{} is not supported; use tools", legacy));
  }
  const json::array* tools = fields.array("tools");
  if (tools != nullptr) {
    for (size_t i = 0; i < tools->size() && !fields.failed(); ++i) read_tool((*tools)[i], element("tools", i), fields.problems(), out.tools);
  }
  const bool leave_out = read_tool_choice(fields, out.tools);
  fields.boolean("parallel_tool_calls");
  if (!fields.failed() && !out.tools.empty() && !leave_out && out.messages.back().prefix) {
    fields.fail("messages", "a message can be continued only without tools");
  }
  if (leave_out) out.tools.clear();
}

// --- thinking

// Later sources win: reasoning_effort, then chat_template_kwargs, then `thinking`.
void read_thinking(FieldReader& fields, Conversation& out) {
  const std::string_view effort =
      fields.choice("reasoning_effort", {"none", "minimal", "low", "medium", "high", "xhigh", "max", "ultra"});
  if (effort == "none") {
    out.thinking = false;
  } else if (!effort.empty()) {
    out.template_kwargs["reasoning_effort"] = effort;  // templates that know efforts read it under this name
  }
  if (const json::object* kwargs = fields.object("chat_template_kwargs")) {
    FieldReader inner(*kwargs, "chat_template_kwargs", fields.problems());
    for (const std::string_view name : {"thinking", "enable_thinking"}) {
      if (const std::optional<bool> on = inner.boolean(name)) out.thinking = on;
    }
    for (const auto& [key, value] : *kwargs) {
      if (key != "thinking" && key != "enable_thinking") out.template_kwargs[key] = value;
    }
  }
  if (const json::object* thinking = fields.object("thinking")) {
    FieldReader inner(*thinking, "thinking", fields.problems());
    const std::string_view type = inner.choice("type", {"enabled", "adaptive", "disabled"});
    inner.integer("budget_tokens", 0, std::numeric_limits<int64_t>::max());
    if (!type.empty()) out.thinking = type != "disabled";
  }
}

// --- what only text can answer

void refuse_unsupported(FieldReader& fields) {
  if (const json::object* format = fields.object("response_format")) {
    FieldReader inner(*format, "response_format", fields.problems());
    const std::string_view type = inner.choice("type", {"text", "json_object", "json_schema", "regex"});
    if (!fields.failed() && type != "text") {
      fields.fail("response_format", type.empty() ? std::string("response_format.type is missing")
                                                  : fmt::format("response_format {} is not supported by this model yet", type));
    }
  }
  if (const json::array* modalities = fields.array("modalities")) {
    for (const json::value& value : *modalities) {
      if (value != "text") fields.fail("modalities", "only the modality text is supported");
    }
  }
  if (fields.value("audio") != nullptr) fields.fail("audio", "audio is not supported: this model writes text only");
}

void read_logprobs(FieldReader& fields, SamplingParams& out) {
  const bool logprobs = fields.boolean("logprobs").value_or(false);
  const std::optional<int64_t> top = fields.integer("top_logprobs", 0, kMaxTopLogprobs);
  if (top && !logprobs) return fields.fail("top_logprobs", "top_logprobs needs logprobs to be true");
  out.top_logprobs = logprobs ? static_cast<int32_t>(top.value_or(0)) : -1;
}

}  // namespace

Conversation parse_conversation(FieldReader& fields) {
  Conversation out;
  read_messages(fields, out);
  read_tools(fields, out);
  read_thinking(fields, out);
  return out;
}

std::optional<ChatRequest> parse_chat_request(const json::object& body, const OptionsContext& context, Problems& problems) {
  FieldReader fields(body, "", problems);
  ChatRequest out;
  out.conversation = parse_conversation(fields);
  out.options = read_generation_options(fields, context);
  read_logprobs(fields, out.options.sampling);
  refuse_unsupported(fields);
  if (problems.any()) return std::nullopt;
  return out;
}

}  // namespace deepinfer::recipe
