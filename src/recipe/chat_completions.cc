#include "recipe/chat_completions.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "recipe/request_parts.h"

namespace deepinfer::recipe {
namespace json = boost::json;
namespace {

// --- messages

std::optional<Role> role_of(std::string_view name) {
  constexpr std::pair<std::string_view, Role> kRoles[] = {{"system", Role::kSystem},       {"developer", Role::kDeveloper},
                                                          {"user", Role::kUser},           {"assistant", Role::kAssistant},
                                                          {"tool", Role::kTool},           {"latest_reminder", Role::kLatestReminder}};
  for (const auto& [spelling, role] : kRoles) {
    if (spelling == name) return role;
  }
  return std::nullopt;
}

// The messages of one request.
class MessageReader {
 public:
  MessageReader(const OptionsContext& context, Problems& problems, Conversation& out) : context_(context), problems_(problems), out_(out) {}

  Message read(const json::value& value, const std::string& path);

 private:
  // A string, or blocks joined with two newlines. False: absent.
  bool read_content(FieldReader& message, std::string_view role, Message& out);
  void read_block(const json::value& value, const std::string& path, std::string_view role, ContentBuilder& content);
  void read_image(FieldReader& block, const std::string& path, ContentBuilder& content);
  void read_file(FieldReader& block, const std::string& path, ContentBuilder& content);
  void read_assistant(FieldReader& message, bool has_content, Message& out);
  void read_task(FieldReader& message, Message& out);

  const OptionsContext& context_;
  Problems& problems_;
  Conversation& out_;
};

void MessageReader::read_block(const json::value& value, const std::string& path, std::string_view role, ContentBuilder& content) {
  const json::object* object = value.if_object();
  if (object == nullptr) return problems_.report(path, path + " must be an object with a type");
  FieldReader block(*object, path, problems_);
  const json::string* type = block.string("type");
  if (problems_.any()) return;
  if (type == nullptr) return problems_.report(path + ".type", path + ".type is missing");
  const std::string_view name(*type);
  if (name == "image_url" || name == "file") {
    if (role != "user" && role != "tool") return problems_.report(path, fmt::format("Image in {} message is unsupported", role));
    return name == "file" ? read_file(block, path, content) : read_image(block, path, content);
  }
  if (name == "input_audio" || name == "video_url") {
    return problems_.report(path, fmt::format("content of type {} is not supported: this model reads no sound and no films", name));
  }
  const bool refusal = name == "refusal" && role == "assistant";
  if (name != "text" && !refusal) return problems_.report(path + ".type", fmt::format("content type \"{}\" is unknown", quotable(name)));
  const std::string_view key = refusal ? "refusal" : "text";
  const json::string* text = block.string(key);
  if (problems_.any()) return;
  if (text == nullptr) return block.fail(key, fmt::format("{}.{} is missing", path, key));
  content.add_text(*text);
}

void MessageReader::read_image(FieldReader& block, const std::string& path, ContentBuilder& content) {
  const json::object* image_url = block.object("image_url");
  if (problems_.any()) return;
  if (image_url == nullptr) return block.fail("image_url", path + ".image_url is missing");
  FieldReader inner(*image_url, path + ".image_url", problems_);
  const json::string* url = inner.string("url");
  const json::string* detail = inner.string("detail");
  if (problems_.any()) return;
  if (url == nullptr) return inner.fail("url", path + ".image_url.url is missing");
  std::optional<Image> image = read_image_url(*url, detail != nullptr ? std::string_view(*detail) : "", path, context_, problems_);
  if (image) content.add_image(std::move(*image));
}

// The data stand in the block itself or inside `file`.
void MessageReader::read_file(FieldReader& block, const std::string& path, ContentBuilder& content) {
  const json::object* file = block.object("file");
  const json::string* data = block.string("file_data");
  const json::string* id = block.string("file_id");
  if (file != nullptr) {
    FieldReader inner(*file, path + ".file", problems_);
    if (data == nullptr) data = inner.string("file_data");
    if (id == nullptr) id = inner.string("file_id");
  }
  if (problems_.any()) return;
  if (id != nullptr) return block.fail("", path + ": files by id are not supported");
  if (data == nullptr) return block.fail("file_data", path + ".file_data is missing");
  std::optional<Image> image = read_image_url(*data, "", path, context_, problems_);
  if (image) content.add_image(std::move(*image));
}

bool MessageReader::read_content(FieldReader& message, std::string_view role, Message& out) {
  const json::value* content = message.value("content");
  if (content == nullptr) return false;
  if (const json::string* text = content->if_string()) {
    out.content = std::string(*text);
    return true;
  }
  const json::array* blocks = content->if_array();
  if (blocks == nullptr) {
    message.fail("content", message.path_of("content") + " must be a string or an array of content blocks");
    return false;
  }
  const std::string path = message.path_of("content");
  ContentBuilder builder(out_);
  for (size_t i = 0; i < blocks->size() && !problems_.any(); ++i) read_block((*blocks)[i], element_path(path, i), role, builder);
  builder.move_to(out);
  return !blocks->empty() || role != "assistant";  // an empty list is an empty text; of an assistant it is as good as null
}

void read_tool_call(const json::value& value, const std::string& path, Problems& problems, Message& out) {
  const json::object* object = value.if_object();
  if (object == nullptr) return problems.report(path, path + " must be an object");
  FieldReader call(*object, path, problems);
  call.choice("type", {"function"});
  const json::string* id = call.string("id");
  const json::object* function = call.object("function");
  if (problems.any()) return;
  if (id == nullptr) return problems.report(path + ".id", path + ".id is missing");
  if (function == nullptr) return problems.report(path + ".function", path + ".function is missing");
  FieldReader inner(*function, path + ".function", problems);
  const json::string* name = inner.string("name");
  const json::string* arguments = inner.string("arguments");
  if (problems.any()) return;
  if (name == nullptr || name->empty()) return inner.fail("name", path + ".function.name is missing");
  const bool repeated = std::any_of(out.tool_calls.begin(), out.tool_calls.end(),
                                    [&](const ToolCall& other) { return other.id == std::string_view(*id); });
  if (repeated) return problems.report(path + ".id", fmt::format("tool call id \"{}\" appears twice", quotable(*id)));
  out.tool_calls.push_back({.id = std::string(*id), .name = std::string(*name),
                            .arguments = arguments != nullptr ? std::string(*arguments) : "{}"});
}

void MessageReader::read_assistant(FieldReader& message, bool has_content, Message& out) {
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
    for (size_t i = 0; i < calls->size(); ++i) read_tool_call((*calls)[i], element_path(path, i), problems_, out);
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

void MessageReader::read_task(FieldReader& message, Message& out) {
  constexpr std::pair<std::string_view, Task> kTasks[] = {{"action", Task::kAction}, {"query", Task::kQuery}, {"authority", Task::kAuthority},
                                                          {"domain", Task::kDomain}, {"title", Task::kTitle}, {"read_url", Task::kReadUrl}};
  if (!context_.enable_tasks) return;
  const std::string_view name = message.choice("task", {"", "action", "query", "authority", "domain", "title", "read_url"});
  for (const auto& [spelling, task] : kTasks) {
    if (spelling == name) out.task = task;
  }
}

Message MessageReader::read(const json::value& value, const std::string& path) {
  Message out;
  const json::object* object = value.if_object();
  if (object == nullptr) {
    problems_.report(path, path + " must be an object");
    return out;
  }
  FieldReader message(*object, path, problems_);
  const json::string* role_name = message.string("role");
  const std::optional<Role> role = role_name != nullptr ? role_of(*role_name) : std::nullopt;
  if (!role) message.fail("role", path + ".role must be one of system, developer, user, assistant, tool, latest_reminder");
  if (message.failed()) return out;
  out.role = *role;
  const bool has_content = read_content(message, *role_name, out);
  if (const json::string* name = message.string("name")) out.name = std::string(*name);
  read_task(message, out);
  if (out.role == Role::kAssistant) {
    read_assistant(message, has_content, out);
  } else if (!has_content && !message.failed()) {
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
      return problems.report(element_path("messages", i), "a tool message must follow an assistant message with tool_calls");
    }
    std::set<std::string> open;
    for (const ToolCall& call : messages[i].tool_calls) open.insert(call.id);
    for (++i; !open.empty(); ++i) {
      if (i == messages.size() || messages[i].role != Role::kTool) {
        return problems.report(i < messages.size() ? element_path("messages", i) : "messages",
                               fmt::format("the result of tool call \"{}\" is missing", quotable(*open.begin())));
      }
      if (open.erase(messages[i].tool_call_id) == 0) {
        return problems.report(element_path("messages", i) + ".tool_call_id",
                               fmt::format("tool_call_id \"{}\" does not answer an open tool call", quotable(messages[i].tool_call_id)));
      }
    }
  }
}

void read_messages(FieldReader& fields, const OptionsContext& context, Conversation& out) {
  const json::array* messages = fields.array("messages");
  if (fields.failed()) return;
  if (messages == nullptr) return fields.fail("messages", "messages is missing");
  if (messages->empty()) return fields.fail("messages", "messages must not be empty");
  MessageReader reader(context, fields.problems(), out);
  out.messages.reserve(messages->size());
  for (size_t i = 0; i < messages->size() && !fields.failed(); ++i) {
    const std::string path = element_path("messages", i);
    out.messages.push_back(reader.read((*messages)[i], path));
    const bool last = i + 1 == messages->size();
    if (out.messages.back().prefix && !last) fields.problems().report(path + ".prefix", "prefix is allowed on the last message only");
    if (out.messages.back().task != Task::kNone && !last) fields.problems().report(path + ".task", "task is allowed on the last message only");
  }
  if (!fields.failed()) check_tool_results(out.messages, fields.problems());
}

// --- tools

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
  const std::optional<bool> strict = inner.boolean("strict");
  if (problems.any()) return;
  if (name == nullptr) return inner.fail("name", path + ".function.name is missing");
  add_tool(inner,
           {.name = std::string(*name),
            .description = description != nullptr ? std::string(*description) : std::string(),
            .strict = strict,
            .raw = value},
           parameters, "parameters", out);
}

void read_tool_choice(FieldReader& fields, const OptionsContext& context, Conversation& out) {
  const json::value* choice = fields.value("tool_choice");
  if (choice == nullptr) return;
  if (const json::string* word = choice->if_string()) {
    if (*word == "auto") return;
    if (*word == "none") {
      out.tool_choice = ToolChoice::kNone;
    } else if (*word == "required") {
      force_tools(fields, "", context, out);
    } else {
      fields.fail("tool_choice", "tool_choice must be none, auto, required or a named function");
    }
    return;
  }
  const json::object* object = choice->if_object();
  if (object == nullptr) return fields.fail("tool_choice", "tool_choice must be a string or an object");
  FieldReader named(*object, "tool_choice", fields.problems());
  if (named.choice("type", {"function"}).empty()) return named.fail("type", "tool_choice.type must be function");
  const json::object* function = named.object("function");
  if (function == nullptr) return named.fail("function", "tool_choice.function is missing");
  FieldReader inner(*function, "tool_choice.function", fields.problems());
  const json::string* name = inner.string("name");
  if (name == nullptr || name->empty()) return inner.fail("name", "tool_choice.function.name is missing");
  force_tools(fields, *name, context, out);
}

void read_tools(FieldReader& fields, const OptionsContext& context, Conversation& out) {
  for (const std::string_view legacy : {"functions", "function_call"}) {
    if (fields.value(legacy) != nullptr) fields.fail(legacy, fmt::format("{} is not supported; use tools", legacy));
  }
  const json::array* tools = fields.array("tools");
  if (tools != nullptr) {
    for (size_t i = 0; i < tools->size() && !fields.failed(); ++i) read_tool((*tools)[i], element_path("tools", i), fields.problems(), out.tools);
  }
  read_tool_choice(fields, context, out);
  if (!fields.failed() && out.tools_active() && out.messages.back().prefix) fields.fail("messages", "a message can be continued only without tools");
}

// --- thinking

// A word as in reasoning_effort, or a number, which v4.1 takes as it is.
void read_kwargs_effort(FieldReader& kwargs, Conversation& out) {
  const json::value* effort = kwargs.value("reasoning_effort");
  if (effort == nullptr) return;
  if (effort->is_number()) {
    if (const std::optional<int64_t> number = kwargs.integer("reasoning_effort", 1, 100)) out.effort_number = static_cast<int32_t>(*number);
    return;
  }
  apply_effort(kwargs.choice("reasoning_effort", kEfforts), out);
}

// Later sources win: reasoning_effort, then chat_template_kwargs, then `thinking`.
void read_reasoning(FieldReader& fields, const OptionsContext& context, Conversation& out) {
  apply_effort(fields.choice("reasoning_effort", kEfforts), out);
  if (const json::object* kwargs = fields.object("chat_template_kwargs")) {
    FieldReader inner(*kwargs, "chat_template_kwargs", fields.problems());
    for (const std::string_view name : {"thinking", "enable_thinking"}) {
      if (const std::optional<bool> on = inner.boolean(name)) out.thinking = on;
    }
    for (const auto& [key, value] : *kwargs) {
      if (key != "thinking" && key != "enable_thinking") out.template_kwargs[key] = value;
    }
    if (context.dialect != Dialect::kTemplate) {  // a template means by these names what it likes
      read_kwargs_effort(inner, out);
      if (const std::optional<bool> drop = inner.boolean("drop_thinking")) {
        out.history_reasoning = *drop ? HistoryReasoning::kReference : HistoryReasoning::kKeep;
      }
    }
  }
  read_thinking(fields, out);
}

// --- the form of the answer

void read_response_format(FieldReader& fields, ResponseFormat& out) {
  const json::object* format = fields.object("response_format");
  if (format == nullptr) return;
  FieldReader inner(*format, "response_format", fields.problems());
  const std::string_view type = inner.choice("type", {"text", "json_object", "json_schema", "regex", "structural_tag"});
  if (fields.failed()) return;
  if (type.empty()) return inner.fail("type", "response_format.type is missing");
  if (type == "json_object") out.kind = ResponseFormat::Kind::kJsonObject;
  if (type != "json_schema") return;
  const json::object* given = inner.object("json_schema");
  if (given == nullptr) return inner.fail("json_schema", "response_format.json_schema is missing");
  read_json_schema(FieldReader(*given, "response_format.json_schema", fields.problems()), out);
}

void refuse_unsupported(FieldReader& fields) {
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

Conversation parse_conversation(FieldReader& fields, const OptionsContext& context) {
  Conversation out;
  read_messages(fields, context, out);
  read_reasoning(fields, context, out);
  read_tools(fields, context, out);
  read_response_format(fields, out.response_format);
  check_response_format(fields, "response_format", out);
  // Chat templates have a default text for conversations without a system message; DeepSeek's dialects have none.
  if (context.dialect != Dialect::kTemplate) {
    std::erase_if(out.messages, [](const Message& message) { return message.role == Role::kSystem && message.content.empty() && message.images.empty(); });
  }
  return out;
}

std::optional<ChatRequest> parse_chat_request(const json::object& body, const OptionsContext& context, Problems& problems) {
  FieldReader fields(body, "", problems);
  ChatRequest out;
  out.conversation = parse_conversation(fields, context);
  out.options = read_generation_options(fields, context);
  if (const json::object* format = fields.object("response_format")) {
    FieldReader inner(*format, "response_format", problems);
    read_format_extension(inner, out.options.output_format);
  }
  out.options.thinking_budget = thinking_budget(fields);
  out.options.single_tool_call = !fields.boolean("parallel_tool_calls").value_or(true);
  read_logprobs(fields, out.options.sampling);
  refuse_unsupported(fields);
  if (out.options.n != 1 && context.dialect != Dialect::kTemplate) fields.fail("n", "this model gives one choice; n must be 1");
  if (problems.any()) return std::nullopt;
  return out;
}

}  // namespace deepinfer::recipe
