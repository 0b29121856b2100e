// Messages requests (Anthropic) to conversations. Each text of a user message becomes a user message of its own; the renderer joins them.
#include <fmt/format.h>

#include <boost/json/serialize.hpp>
#include <algorithm>
#include <set>

#include "recipe/protocol.h"
#include "recipe/request_parts.h"

namespace deepinfer::recipe {
namespace json = boost::json;
namespace {

// A line that coding agents put first, with a value that changes with each request: no prefix could ever be found in the cache again.
constexpr std::string_view kBillingLine = "x-anthropic-billing-header:";
constexpr int64_t kMaxInt32 = std::numeric_limits<int32_t>::max();

// Without the billing line at its start.
std::string_view without_billing(std::string_view text) {
  if (!text.starts_with(kBillingLine)) return text;
  const size_t end = text.find('\n');
  return end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
}

class MessagesReader {
 public:
  MessagesReader(FieldReader& fields, const RequestContext& context, Conversation& out)
      : fields_(fields), problems_(fields.problems()), context_(context.options), out_(out) {}

  void read_system();
  void read_messages();

 private:
  void read_message(const json::value& value, const std::string& path);
  void read_user(const json::array& blocks, const std::string& path);
  void read_assistant(const json::array& blocks, const std::string& path);
  void read_tool_use(FieldReader& block, const std::string& path, Message& out);
  void read_tool_result(FieldReader& block, const std::string& path);
  // text, image, document, tool_reference: what may stand in user messages and in tool results. False: another type.
  bool read_shared(FieldReader& block, std::string_view type, const std::string& path, ContentBuilder& content);
  void read_image(FieldReader& block, const std::string& path, ContentBuilder& content);
  // Content blocks until one is wrong: read(block, type, path of the block).
  template <class Read>
  void each_block(const json::array& blocks, const std::string& path, Read read);
  // A string or text blocks. billing: a billing line at the beginning is left out.
  std::string read_texts(const json::value& value, const std::string& path, bool billing);
  void add_user(std::string text) { out_.messages.push_back({.role = Role::kUser, .content = std::move(text)}); }
  void need_results(const std::string& path);

  FieldReader& fields_;
  Problems& problems_;
  const OptionsContext& context_;
  Conversation& out_;
  std::vector<std::string> open_;  // tool_use ids without a result
};

const json::object* as_block(const json::value& value, const std::string& path, Problems& problems) {
  if (!value.is_object()) problems.report(path, path + " must be an object with a type");
  return value.if_object();
}

std::string MessagesReader::read_texts(const json::value& value, const std::string& path, bool billing) {
  if (const json::string* text = value.if_string()) return std::string(billing ? without_billing(*text) : std::string_view(*text));
  const json::array* blocks = value.if_array();
  if (blocks == nullptr) {
    problems_.report(path, path + " must be a string or an array of text blocks");
    return {};
  }
  std::string out;
  bool first = true;
  for (size_t i = 0; i < blocks->size() && !problems_.any(); ++i) {
    const std::string at = element_path(path, i);
    const json::object* object = as_block((*blocks)[i], at, problems_);
    if (object == nullptr) return {};
    FieldReader block(*object, at, problems_);
    if (block.choice("type", {"text"}).empty()) block.fail("type", at + ".type must be text");
    const json::string* text = block.string("text");
    if (text == nullptr) block.fail("text", at + ".text is missing");
    if (problems_.any()) return {};
    const std::string_view shown = billing && i == 0 ? without_billing(*text) : std::string_view(*text);
    if (billing && i == 0 && shown.empty() && !text->empty()) continue;  // nothing else was in the block
    if (!first) out += "\n\n";
    first = false;
    out += shown;
  }
  return out;
}

template <class Read>
void MessagesReader::each_block(const json::array& blocks, const std::string& path, Read read) {
  for (size_t i = 0; i < blocks.size() && !problems_.any(); ++i) {
    const std::string at = element_path(path, i);
    const json::object* object = as_block(blocks[i], at, problems_);
    if (object == nullptr) return;
    FieldReader block(*object, at, problems_);
    const json::string* type = block.string("type");
    if (type == nullptr) return block.fail("type", at + ".type is missing");
    read(block, std::string_view(*type), at);
  }
}

void MessagesReader::read_system() {
  const json::value* system = fields_.value("system");
  if (system == nullptr) return;
  std::string text = read_texts(*system, "system", /*billing=*/true);
  if (!text.empty()) out_.messages.push_back({.role = Role::kSystem, .content = std::move(text)});
}

void MessagesReader::read_messages() {
  const json::array* messages = fields_.array("messages");
  if (fields_.failed()) return;
  if (messages == nullptr) return fields_.fail("messages", "messages is missing");
  if (messages->empty()) return fields_.fail("messages", "messages must not be empty");
  for (size_t i = 0; i < messages->size() && !problems_.any(); ++i) read_message((*messages)[i], element_path("messages", i));
  if (problems_.any()) return;
  need_results("messages");
  // The turn that the answer goes on with. Blanks at its end would be tokenised apart from what follows, but they are the client's.
  if (!out_.messages.empty() && out_.messages.back().role == Role::kAssistant) out_.messages.back().prefix = true;
}

void MessagesReader::need_results(const std::string& path) {
  if (!open_.empty()) problems_.report(path, fmt::format("the tool_use \"{}\" has no tool_result in the message after it", quotable(open_.front())));
}

void MessagesReader::read_message(const json::value& value, const std::string& path) {
  const json::object* object = value.if_object();
  if (object == nullptr) return problems_.report(path, path + " must be an object");
  FieldReader message(*object, path, problems_);
  const std::string_view role = message.choice("role", {"user", "assistant", "system"});
  const json::value* content = message.value("content");
  if (problems_.any()) return;
  if (role.empty()) return message.fail("role", path + ".role is missing");
  if (content == nullptr) return message.fail("content", path + ".content is missing");
  const std::string content_path = path + ".content";
  if (role == "system") {
    need_results(path);
    std::string text = read_texts(*content, content_path, false);
    if (problems_.any()) return;
    // The dialects before v4.1 have no system turn inside a conversation.
    if (context_.dialect == Dialect::kV41) {
      out_.messages.push_back({.role = Role::kSystem, .content = std::move(text)});
    } else {
      add_user("<system-reminder>\n" + text + "\n</system-reminder>");
    }
    return;
  }
  json::array text_block;
  const json::array* blocks = content->if_array();
  if (const json::string* text = content->if_string()) {
    text_block.push_back({{"type", "text"}, {"text", *text}});
    blocks = &text_block;
  }
  if (blocks == nullptr) return problems_.report(content_path, content_path + " must be a string or an array of content blocks");
  if (role == "user") {
    read_user(*blocks, content_path);
    if (!problems_.any()) need_results(path);
  } else {
    need_results(path);
    if (!problems_.any()) read_assistant(*blocks, content_path);
  }
}

void MessagesReader::read_user(const json::array& blocks, const std::string& path) {
  each_block(blocks, path, [&](FieldReader& block, std::string_view type, const std::string& at) {
    if (type == "tool_result") return read_tool_result(block, at);
    ContentBuilder content(out_);
    const bool known = read_shared(block, type, at, content);
    if (!known) return block.fail("type", fmt::format("Unsupported content block \"{}\" in a user message", quotable(type)));
    if (content.empty()) return;  // nothing of it is shown to the model
    Message& message = out_.messages.emplace_back(Message{.role = Role::kUser});
    content.move_to(message);
  });
}

bool MessagesReader::read_shared(FieldReader& block, std::string_view type, const std::string& path, ContentBuilder& content) {
  if (type == "text") {
    const json::string* text = block.string("text");
    if (text == nullptr) {
      block.fail("text", path + ".text is missing");
    } else {
      content.add_text(*text);
    }
  } else if (type == "image") {
    read_image(block, path, content);
  } else if (type == "document") {
    const json::object* source = block.object("source");
    if (source == nullptr) {
      block.fail("source", path + ".source is missing");
      return true;
    }
    FieldReader inner(*source, path + ".source", problems_);
    const json::string* media_type = inner.string("media_type");
    content.add_text(fmt::format("[Unsupported document type: {}]", media_type != nullptr ? std::string_view(*media_type) : "unknown"));
  } else if (type == "tool_reference") {
    const json::string* name = block.string("tool_name");
    if (name == nullptr) {
      block.fail("tool_name", path + ".tool_name is missing");
    } else {
      content.add_text(*name);
    }
  } else {
    return type == "server_tool_use" || type == "web_search_tool_result";  // what another server's tools did
  }
  return true;
}

void MessagesReader::read_image(FieldReader& block, const std::string& path, ContentBuilder& content) {
  const json::object* source = block.object("source");
  if (source == nullptr) return block.fail("source", path + ".source is missing");
  const std::string source_path = path + ".source";
  FieldReader inner(*source, source_path, problems_);
  const std::string_view kind = inner.choice("type", {"base64", "url"});
  if (kind.empty()) return inner.fail("type", source_path + ".type must be base64 or url");
  std::string url;
  if (kind == "url") {
    const json::string* given = inner.string("url");
    if (given == nullptr) return inner.fail("url", source_path + ".url is missing");
    url = std::string(*given);
  } else {
    const std::string_view media_type = inner.choice("media_type", {"image/png", "image/jpeg", "image/gif", "image/webp"});
    const json::string* data = inner.string("data");
    if (media_type.empty()) inner.fail("media_type", source_path + ".media_type is missing");
    if (data == nullptr) inner.fail("data", source_path + ".data is missing");
    if (problems_.any()) return;
    url = fmt::format("data:{};base64,{}", media_type, std::string_view(*data));
  }
  std::optional<Image> image = read_image_url(url, "", source_path, context_, problems_);
  if (image) content.add_image(std::move(*image));
}

void MessagesReader::read_tool_result(FieldReader& block, const std::string& path) {
  const json::string* id = block.string("tool_use_id");
  block.boolean("is_error");
  if (id == nullptr) return block.fail("tool_use_id", path + ".tool_use_id is missing");
  const auto open = std::find(open_.begin(), open_.end(), std::string_view(*id));
  if (open == open_.end()) {
    return block.fail("tool_use_id", fmt::format("tool_use_id \"{}\" does not answer an open tool_use", quotable(*id)));
  }
  open_.erase(open);
  Message& message = out_.messages.emplace_back(Message{.role = Role::kTool, .tool_call_id = std::string(*id)});
  const json::value* content = block.value("content");
  if (content == nullptr) return;
  if (const json::string* text = content->if_string()) {
    message.content = std::string(*text);
    return;
  }
  const std::string content_path = path + ".content";
  const json::array* blocks = content->if_array();
  if (blocks == nullptr) return block.fail("content", content_path + " must be a string or an array of content blocks");
  ContentBuilder builder(out_);
  each_block(*blocks, content_path, [&](FieldReader& inner, std::string_view type, const std::string& at) {
    const bool known = read_shared(inner, type, at, builder);
    if (!known) inner.fail("type", fmt::format("Unsupported content block \"{}\" in a tool_result", quotable(type)));
  });
  if (problems_.any()) return;
  builder.move_to(message);
}

void MessagesReader::read_assistant(const json::array& blocks, const std::string& path) {
  Message out{.role = Role::kAssistant};
  ContentBuilder content(out_);
  each_block(blocks, path, [&](FieldReader& block, std::string_view type, const std::string& at) {
    if (type == "text") {
      const json::string* text = block.string("text");
      if (text == nullptr) return block.fail("text", at + ".text is missing");
      if (!out.tool_calls.empty()) return block.fail("", at + ": text after a tool_use in the same message is not supported");
      content.add_text(*text);
    } else if (type == "thinking") {
      const json::string* thinking = block.string("thinking");
      block.string("signature");  // any is accepted: reasoning is the model's own words, not a proof of them
      if (thinking == nullptr) return block.fail("thinking", at + ".thinking is missing");
      if (out.reasoning) *out.reasoning += "\n\n";
      out.reasoning = out.reasoning.value_or("") + std::string(*thinking);
    } else if (type == "tool_use") {
      read_tool_use(block, at, out);
    } else if (type != "server_tool_use" && type != "web_search_tool_result") {
      block.fail("type", fmt::format("Unsupported content block \"{}\" in an assistant message", quotable(type)));
    }
  });
  if (problems_.any()) return;
  out.null_content = content.empty();
  content.move_to(out);
  out_.messages.push_back(std::move(out));
}

void MessagesReader::read_tool_use(FieldReader& block, const std::string& path, Message& out) {
  const json::string* id = block.string("id");
  const json::string* name = block.string("name");
  const json::object* input = block.object("input");
  if (id == nullptr || id->empty()) block.fail("id", path + ".id is missing");
  if (name == nullptr || name->empty()) block.fail("name", path + ".name is missing");
  if (input == nullptr) block.fail("input", path + ".input is missing");
  if (problems_.any()) return;
  if (std::find(open_.begin(), open_.end(), std::string_view(*id)) != open_.end()) {
    return block.fail("id", fmt::format("the tool_use id \"{}\" appears twice", quotable(*id)));
  }
  open_.emplace_back(*id);
  out.tool_calls.push_back({.id = std::string(*id), .name = std::string(*name), .arguments = json::serialize(*input)});
}

// --- beside the messages

void read_tools(FieldReader& fields, std::vector<ToolDefinition>& out) {
  const json::array* tools = fields.array("tools");
  if (tools == nullptr) return;
  for (size_t i = 0; i < tools->size() && !fields.failed(); ++i) {
    const std::string path = element_path("tools", i);
    const json::object* object = (*tools)[i].if_object();
    if (object == nullptr) return fields.problems().report(path, path + " must be an object");
    FieldReader tool(*object, path, fields.problems());
    const json::string* type = tool.string("type");
    if (type != nullptr && *type != "custom") {
      return tool.fail("type", fmt::format("tools of type {} run at another provider; this server has none", quotable(*type)));
    }
    const json::string* name = tool.string("name");
    const json::string* description = tool.string("description");
    const json::object* schema = tool.object("input_schema");
    const std::optional<bool> strict = tool.boolean("strict");
    if (fields.failed()) return;
    if (name == nullptr) return tool.fail("name", path + ".name is missing");
    if (schema == nullptr) return tool.fail("input_schema", path + ".input_schema is missing");
    const json::value* kind = schema->if_contains("type");
    if (kind == nullptr) return tool.fail("input_schema", path + ".input_schema must have the type object");
    add_tool(tool, {.name = std::string(*name), .description = description != nullptr ? std::string(*description) : std::string(), .strict = strict},
             schema, "input_schema", out);
  }
}

void read_tool_choice(FieldReader& fields, const RequestContext& context, ParsedRequest& request, Conversation& out) {
  const json::object* choice = fields.object("tool_choice");
  if (choice == nullptr) return;
  FieldReader inner(*choice, "tool_choice", fields.problems());
  const std::string_view type = inner.choice("type", {"auto", "any", "tool", "none"});
  const json::string* name = inner.string("name");
  request.options.single_tool_call = inner.boolean("disable_parallel_tool_use").value_or(false);
  if (fields.failed()) return;
  if (type.empty()) return inner.fail("type", "tool_choice.type is missing");
  if (type == "none") out.tool_choice = ToolChoice::kNone;
  if (type == "any") return demand_call(fields, context.options, out);
  if (type != "tool") return;
  if (name == nullptr || name->empty()) return inner.fail("name", "tool_choice.name is missing");
  force_tools(fields, *name, context.options, out);
}

void read_output_config(FieldReader& fields, Conversation& out) {
  const json::object* config = fields.object("output_config");
  if (config == nullptr) return;
  FieldReader inner(*config, "output_config", fields.problems());
  apply_effort(inner.choice("effort", {"low", "medium", "high", "xhigh", "max", "ultra"}), out);
  const json::object* format = inner.object("format");
  if (format == nullptr) return;
  FieldReader reader(*format, "output_config.format", fields.problems());
  if (reader.choice("type", {"json_schema"}).empty()) return reader.fail("type", "output_config.format.type must be json_schema");
  const json::object* schema = reader.object("schema");
  if (schema == nullptr) return reader.fail("schema", "output_config.format.schema is missing");
  out.response_format = {.kind = ResponseFormat::Kind::kJsonSchema, .schema = *schema, .strict = true};
}

void read_stop_sequences(FieldReader& fields, std::vector<std::string>& out) {
  constexpr std::string_view kKey = "stop_sequences";
  const json::array* list = fields.array(kKey);
  if (list == nullptr) return;
  for (const json::value& value : *list) {
    const json::string* text = value.if_string();
    if (text == nullptr || text->empty()) return fields.fail(kKey, "stop_sequences must hold strings that are not empty");
    add_stop_string(fields, kKey, *text, out);
  }
}

}  // namespace

std::optional<ParsedRequest> parse_messages_request(const json::object& body, const RequestContext& context, Problems& problems) {
  FieldReader fields(body, "", problems);
  ParsedRequest out;
  Conversation& conversation = out.prompt.emplace<Conversation>();
  // A client that is told so sends the whole conversation instead.
  if (fields.value("thread") != nullptr) fields.fail("thread", "threads are not supported: this server keeps no messages; send the whole conversation");
  MessagesReader reader(fields, context, conversation);
  reader.read_system();
  reader.read_messages();
  read_output_config(fields, conversation);
  check_response_format(fields, "output_config.format", conversation);
  read_thinking(fields, conversation);
  out.options.thinking_budget = thinking_budget(fields);
  read_tools(fields, conversation.tools);
  read_tool_choice(fields, context, out, conversation);
  read_sampling(fields, context.options, out.options.sampling);
  read_cache_salt(fields, out.options.cache_salt);
  read_retention(fields, out.options.retention);
  read_output_format(fields, out.options.output_format);
  read_stop_sequences(fields, out.options.stop);
  if (const std::optional<int64_t> max = fields.integer("max_tokens", 1, kMaxInt32)) out.options.max_tokens = static_cast<int32_t>(*max);
  out.options.stream = fields.boolean("stream").value_or(false);
  if (problems.any()) return std::nullopt;
  return out;
}

}  // namespace deepinfer::recipe
