// Responses requests (OpenAI) to conversations. Input items become messages: reasoning waits for the assistant turn that it belongs to,
// calls in a row join one turn, and each call has its output before anybody speaks again.
#include <fmt/format.h>

#include <boost/json/serialize.hpp>
#include <algorithm>
#include <set>

#include "recipe/apply_patch.h"
#include "recipe/protocol.h"
#include "recipe/request_parts.h"

namespace deepinfer::recipe {
namespace json = boost::json;
namespace {

constexpr int64_t kMaxInt32 = std::numeric_limits<int32_t>::max();

std::string_view view(const json::string* text) { return text != nullptr ? std::string_view(*text) : std::string_view(); }

// --- input items

class ItemReader {
 public:
  ItemReader(const RequestContext& context, Problems& problems, Conversation& out) : context_(context), problems_(problems), out_(out) {}

  // path: of the item in the request, for messages about it.
  void read(const json::value& item, const std::string& path, std::vector<json::value>& more_tools);
  void finish();

 private:
  void read_reference(FieldReader& item, const std::string& path, std::vector<json::value>& more_tools);
  void read_message(FieldReader& item, const std::string& path);
  void read_reasoning(FieldReader& item, const std::string& path);
  void read_call(FieldReader& item, bool custom, const std::string& path);
  void read_output(FieldReader& item, const std::string& path);
  // A string, or blocks. in_assistant: of a turn of the model's own.
  void read_content(FieldReader& item, std::string_view key, bool in_assistant, const std::string& path, Message& message);
  void read_block(const json::value& value, bool in_assistant, const std::string& path, ContentBuilder& content);
  void need_outputs(const std::string& path);
  void add(Message message);

  const RequestContext& context_;
  Problems& problems_;
  Conversation& out_;
  std::optional<std::string> reasoning_;  // waits for its turn
  std::vector<std::string> open_;         // call ids without an output
  std::set<std::string> known_;           // all call ids
};

void ItemReader::read(const json::value& value, const std::string& path, std::vector<json::value>& more_tools) {
  const json::object* object = value.if_object();
  if (object == nullptr) return problems_.report(path, path + " must be an object");
  FieldReader item(*object, path, problems_);
  const json::string* given = item.string("type");
  if (problems_.any()) return;
  const std::string_view type = given != nullptr ? view(given) : "message";
  if (type == "message") return read_message(item, path);
  if (type == "reasoning") return read_reasoning(item, path);
  if (type == "function_call") return read_call(item, false, path);
  if (type == "custom_tool_call") return read_call(item, true, path);
  if (type == "function_call_output" || type == "custom_tool_call_output") return read_output(item, path);
  if (type == "additional_tools") {
    if (const json::array* tools = item.array("tools")) more_tools.insert(more_tools.end(), tools->begin(), tools->end());
    return;
  }
  if (type == "item_reference") return read_reference(item, path, more_tools);
  // Others are what another provider's tools did; they say nothing to this model.
}

void ItemReader::read_reference(FieldReader& item, const std::string& path, std::vector<json::value>& more_tools) {
  const json::string* id = item.string("id");
  if (problems_.any()) return;
  if (id == nullptr) return item.fail("id", path + ".id is missing");
  const std::optional<json::value> stored = context_.stored_item ? context_.stored_item(std::string(*id)) : std::nullopt;
  const json::value* type = stored && stored->is_object() ? stored->get_object().if_contains("type") : nullptr;
  if (type == nullptr || *type == "item_reference") {  // a reference is followed once
    return item.fail("id", context_.stored_item ? fmt::format("the item \"{}\" is not kept, or no longer; send the item itself", quotable(*id))
                                                : fmt::format("the item \"{}\" is not kept: this server keeps no responses; send the item itself, as "
                                                              "clients do that ask with store false", quotable(*id)));
  }
  read(*stored, path, more_tools);
}

void ItemReader::need_outputs(const std::string& path) {
  if (!open_.empty()) problems_.report(path, fmt::format("the output of call \"{}\" is missing", quotable(open_.front())));
}

void ItemReader::finish() {
  if (!problems_.any()) need_outputs("input");
}

void ItemReader::add(Message message) {
  if (message.role == Role::kAssistant) message.reasoning = std::exchange(reasoning_, std::nullopt);
  reasoning_.reset();  // reasoning that no turn of the model followed says nothing
  out_.messages.push_back(std::move(message));
}

void ItemReader::read_message(FieldReader& item, const std::string& path) {
  const std::string_view role = item.choice("role", {"user", "assistant", "system", "developer"});
  if (problems_.any()) return;
  if (role.empty()) return item.fail("role", path + ".role is missing");
  need_outputs(path);
  Message message{.role = role == "user"        ? Role::kUser
                          : role == "assistant" ? Role::kAssistant
                          : role == "system"    ? Role::kSystem
                                                : Role::kDeveloper};
  read_content(item, "content", message.role == Role::kAssistant, path + ".content", message);
  if (problems_.any()) return;
  const bool joins = message.role == Role::kAssistant && !reasoning_ && !out_.messages.empty() &&
                     out_.messages.back().role == Role::kAssistant && out_.messages.back().tool_calls.empty();
  if (joins) {
    out_.messages.back().content += "\n\n" + message.content;
  } else {
    add(std::move(message));
  }
}

void ItemReader::read_content(FieldReader& item, std::string_view key, bool in_assistant, const std::string& path, Message& message) {
  const json::value* content = item.value(key);
  if (problems_.any()) return;
  if (content == nullptr) return item.fail(key, path + " is missing");
  if (const json::string* text = content->if_string()) {
    message.content = std::string(*text);
    return;
  }
  const json::array* blocks = content->if_array();
  if (blocks == nullptr) return item.fail(key, path + " must be a string or an array of content parts");
  ContentBuilder builder(out_);
  for (size_t i = 0; i < blocks->size() && !problems_.any(); ++i) read_block((*blocks)[i], in_assistant, element_path(path, i), builder);
  builder.move_to(message);
}

void ItemReader::read_block(const json::value& value, bool in_assistant, const std::string& path, ContentBuilder& content) {
  const json::object* object = value.if_object();
  if (object == nullptr) return problems_.report(path, path + " must be an object with a type");
  FieldReader block(*object, path, problems_);
  const json::string* type = block.string("type");
  if (problems_.any()) return;
  if (type == nullptr) return block.fail("type", path + ".type is missing");
  const bool refusal = in_assistant && *type == "refusal";
  if (refusal || *type == "input_text" || *type == "output_text" || *type == "text") {
    const std::string_view key = refusal ? "refusal" : "text";
    const json::string* text = block.string(key);
    if (text == nullptr) return block.fail(key, fmt::format("{}.{} is missing", path, key));
    return content.add_text(*text);
  }
  if (*type == "input_file") return content.add_text("[Unsupported Document]");
  if (*type != "input_image") {
    return block.fail("type", fmt::format("content type \"{}\" is unknown", quotable(*type)));
  }
  if (in_assistant) return block.fail("", "Image in assistant message is unsupported");
  const json::string* url = block.string("image_url");
  const json::string* detail = block.string("detail");
  if (url == nullptr) return block.fail("image_url", path + ".image_url is missing; files by id are not supported");
  std::optional<Image> image = read_image_url(*url, view(detail), path, context_.options, problems_);
  if (image) content.add_image(std::move(*image));
}

// Texts of {type, text} parts, joined with a newline.
std::string joined_texts(const json::array& parts, const std::string& path, Problems& problems) {
  std::string out;
  for (size_t i = 0; i < parts.size(); ++i) {
    const json::object* object = parts[i].if_object();
    const json::value* text = object != nullptr ? object->if_contains("text") : nullptr;
    if (text == nullptr || !text->is_string()) {
      problems.report(element_path(path, i), element_path(path, i) + " must be an object with a text");
      return {};
    }
    if (i > 0) out += '\n';
    out += std::string_view(text->get_string());
  }
  return out;
}

// The content as sent, else what this server sealed, else the summary.
void ItemReader::read_reasoning(FieldReader& item, const std::string& path) {
  const json::array* content = item.array("content");
  const json::array* summary = item.array("summary");
  const json::string* sealed = item.string("encrypted_content");
  if (problems_.any()) return;
  std::string text;
  if (content != nullptr && !content->empty()) {
    text = joined_texts(*content, path + ".content", problems_);
  } else if (sealed != nullptr && !sealed->empty()) {
    std::optional<std::string> opened = context_.open_reasoning ? context_.open_reasoning(*sealed) : std::nullopt;
    if (!opened) return item.fail("encrypted_content", path + ".encrypted_content was not made by this server, or was changed");
    text = std::move(*opened);
  } else if (summary != nullptr) {
    text = joined_texts(*summary, path + ".summary", problems_);
  }
  if (reasoning_) text = *reasoning_ + "\n" + text;
  reasoning_ = std::move(text);
}

void ItemReader::read_call(FieldReader& item, bool custom, const std::string& path) {
  const json::string* id = item.string("call_id");
  const json::string* name = item.string("name");
  const json::string* name_space = item.string("namespace");
  const std::string_view key = custom ? "input" : "arguments";
  const json::string* arguments = item.string(key);
  if (problems_.any()) return;
  if (id == nullptr || id->empty()) return item.fail("call_id", path + ".call_id is missing");
  if (name == nullptr || name->empty()) return item.fail("name", path + ".name is missing");
  if (custom && arguments == nullptr) return item.fail(key, path + ".input is missing");
  if (!known_.emplace(*id).second) return item.fail("call_id", fmt::format("the call id \"{}\" appears twice", quotable(*id)));
  // A turn of the model goes on as long as nobody answered.
  const Message* last = out_.messages.empty() ? nullptr : &out_.messages.back();
  const bool joins = last != nullptr && last->role == Role::kAssistant && !reasoning_;
  if (!joins) {
    need_outputs(path);
    if (problems_.any()) return;
    add({.role = Role::kAssistant, .null_content = true});
  }
  open_.emplace_back(*id);
  ToolCall call{.id = std::string(*id), .name = qualified_tool_name(view(name_space), *name, context_.options.dialect)};
  if (custom) {
    call.arguments = json::serialize(json::object{{"input", *arguments}});
  } else {
    call.arguments = arguments != nullptr ? std::string(*arguments) : "{}";
  }
  out_.messages.back().tool_calls.push_back(std::move(call));
}

void ItemReader::read_output(FieldReader& item, const std::string& path) {
  const json::string* id = item.string("call_id");
  if (problems_.any()) return;
  if (id == nullptr || id->empty()) return item.fail("call_id", path + ".call_id is missing");
  const auto open = std::find(open_.begin(), open_.end(), view(id));
  if (open == open_.end()) {
    const bool answered = known_.contains(std::string(*id));
    return item.fail("call_id", fmt::format("the call \"{}\" {}", quotable(*id), answered ? "is answered twice" : "does not exist"));
  }
  open_.erase(open);
  Message message{.role = Role::kTool, .tool_call_id = std::string(*id)};
  read_content(item, "output", false, path + ".output", message);
  if (!problems_.any()) add(std::move(message));
}

// --- tools

class ToolReader {
 public:
  ToolReader(const RequestContext& context, Problems& problems, Conversation& out, std::vector<ToolNames>& names)
      : dialect_(context.options.dialect), problems_(problems), out_(out), names_(names) {}

  void read(const json::value& value, const std::string& path);
  // The name that the model sees of a tool that the client names; empty: there is none.
  std::string_view seen_name(std::string_view name, bool custom) const;

 private:
  struct Space {
    std::string_view name, description;
  };
  void read_function(FieldReader& tool, const std::string& path, const Space& space);
  void read_custom(FieldReader& tool, const std::string& path);
  void read_namespace(FieldReader& tool, const std::string& path);

  const Dialect dialect_;
  Problems& problems_;
  Conversation& out_;
  std::vector<ToolNames>& names_;
};

void ToolReader::read(const json::value& value, const std::string& path) {
  const json::object* object = value.if_object();
  if (object == nullptr) return problems_.report(path, path + " must be an object");
  FieldReader tool(*object, path, problems_);
  const json::string* type = tool.string("type");
  if (problems_.any()) return;
  if (type == nullptr) return tool.fail("type", path + ".type is missing");
  if (*type == "function") return read_function(tool, path, {});
  if (*type == "custom") return read_custom(tool, path);
  if (*type == "namespace") return read_namespace(tool, path);
  // Others run at another provider; the model is not told of them.
}

void ToolReader::read_function(FieldReader& tool, const std::string& path, const Space& space) {
  const json::string* name = tool.string("name");
  const json::string* description = tool.string("description");
  const json::object* parameters = tool.object("parameters");
  const std::optional<bool> strict = tool.boolean("strict");
  if (problems_.any()) return;
  if (name == nullptr) return tool.fail("name", path + ".name is missing");
  ToolDefinition definition{.name = std::string(*name), .description = std::string(view(description)), .strict = strict};
  if (space.name.empty()) return add_tool(tool, std::move(definition), parameters, "parameters", out_.tools);
  if (!is_tool_name(*name)) return tool.fail("name", path + ".name is not a tool name");
  if (dialect_ == Dialect::kV41 && !space.description.empty()) definition.description = fmt::format("{}\n{}", space.description, definition.description);
  // Flattened names may meet: the later ones get a number.
  const std::string wanted = qualified_tool_name(space.name, *name, dialect_);
  definition.name = wanted;
  const auto taken = [&] {
    return std::any_of(out_.tools.begin(), out_.tools.end(), [&](const ToolDefinition& other) { return other.name == definition.name; });
  };
  for (int i = 1; taken(); ++i) definition.name = fmt::format("{}_{}", wanted, i);
  definition.parameters = parameters != nullptr ? json::value(*parameters) : json::value(json::object());
  names_.push_back({.name = definition.name, .client_name = std::string(*name), .name_space = std::string(space.name)});
  out_.tools.push_back(std::move(definition));
}

void ToolReader::read_custom(FieldReader& tool, const std::string& path) {
  const json::string* name = tool.string("name");
  if (problems_.any()) return;
  if (name == nullptr) return tool.fail("name", path + ".name is missing");
  // A tool that takes text is more than a schema: its description has to say how to write it. Of one tool the model knows that.
  if (*name != kApplyPatchName) return tool.fail("name", fmt::format("the only custom tool that this model knows is {}", kApplyPatchName));
  ToolDefinition definition{.name = std::string(*name), .description = apply_patch_description(dialect_)};
  const json::object parameters = apply_patch_parameters();
  const size_t before = out_.tools.size();
  add_tool(tool, std::move(definition), &parameters, "name", out_.tools);
  if (out_.tools.size() > before) names_.push_back({.name = std::string(*name), .client_name = std::string(*name), .custom = true});
}

void ToolReader::read_namespace(FieldReader& tool, const std::string& path) {
  const json::string* name = tool.string("name");
  const json::string* description = tool.string("description");
  const json::array* tools = tool.array("tools");
  if (problems_.any()) return;
  if (name == nullptr || !is_tool_name(*name)) return tool.fail("name", path + ".name is missing or is not a name");
  if (tools == nullptr) return tool.fail("tools", path + ".tools is missing");
  for (size_t i = 0; i < tools->size() && !problems_.any(); ++i) {
    const std::string at = element_path(path + ".tools", i);
    const json::object* object = (*tools)[i].if_object();
    if (object == nullptr) return problems_.report(at, at + " must be an object");
    FieldReader inner(*object, at, problems_);
    const json::string* type = inner.string("type");
    if (type != nullptr && *type == "function") read_function(inner, at, {.name = *name, .description = view(description)});
  }
}

std::string_view ToolReader::seen_name(std::string_view name, bool custom) const {
  for (const ToolNames& names : names_) {
    if (names.custom == custom && (names.client_name == name || names.name == name)) return names.name;
  }
  if (custom) return {};
  for (const ToolDefinition& tool : out_.tools) {
    if (tool.name == name) return tool.name;
  }
  return {};
}

// --- tool_choice

void allow_only(FieldReader& choice, const ToolReader& tools, Conversation& out) {
  const json::array* allowed = choice.array("tools");
  if (allowed == nullptr) return choice.fail("tools", "tool_choice.tools is missing");
  std::set<std::string> names;
  for (size_t i = 0; i < allowed->size(); ++i) {
    const std::string path = element_path("tool_choice.tools", i);
    const json::object* object = (*allowed)[i].if_object();
    if (object == nullptr) return choice.problems().report(path, path + " must be an object");
    FieldReader tool(*object, path, choice.problems());
    const json::string* type = tool.string("type");
    const json::string* name = tool.string("name");
    if (choice.failed()) return;
    if (name == nullptr) continue;  // a tool of another provider
    const std::string_view seen = tools.seen_name(*name, type != nullptr && *type == "custom");
    if (seen.empty()) return tool.fail("name", fmt::format("tool_choice names the tool \"{}\", which is not declared", quotable(*name)));
    names.emplace(seen);
  }
  std::erase_if(out.tools, [&](const ToolDefinition& tool) { return !names.contains(tool.name); });
}

void read_tool_choice(FieldReader& fields, const ToolReader& tools, const RequestContext& context, Conversation& out) {
  const json::value* choice = fields.value("tool_choice");
  if (choice == nullptr) return;
  if (const json::string* word = choice->if_string()) {
    if (*word == "none") out.tool_choice = ToolChoice::kNone;
    if (*word == "required") force_tools(fields, "", context.options, out);
    if (*word != "none" && *word != "auto" && *word != "required") fields.fail("tool_choice", "tool_choice must be none, auto, required or an object");
    return;
  }
  const json::object* object = choice->if_object();
  if (object == nullptr) return fields.fail("tool_choice", "tool_choice must be a string or an object");
  FieldReader inner(*object, "tool_choice", fields.problems());
  const std::string_view type = inner.choice("type", {"function", "custom", "allowed_tools"});
  if (fields.failed()) return;
  if (type.empty()) return inner.fail("type", "tool_choice.type is missing");
  if (type == "allowed_tools") {
    const std::string_view mode = inner.choice("mode", {"auto", "required"});
    allow_only(inner, tools, out);
    if (mode == "required") force_tools(fields, "", context.options, out);
    return;
  }
  const json::string* name = inner.string("name");
  if (name == nullptr) return inner.fail("name", "tool_choice.name is missing");
  const std::string_view seen = tools.seen_name(*name, type == "custom");
  force_tools(fields, seen.empty() ? std::string_view(*name) : seen, context.options, out);
}

// --- the rest

// The items of this request, as an array: a text is one user message.
std::optional<json::array> input_items(FieldReader& fields) {
  const json::value* input = fields.value("input");
  if (fields.failed()) return std::nullopt;
  if (input == nullptr) return json::array();
  if (const json::string* text = input->if_string()) {
    return json::array{{{"type", "message"}, {"role", "user"}, {"content", json::array{{{"type", "input_text"}, {"text", *text}}}}}};
  }
  const json::array* items = input->if_array();
  if (items == nullptr) fields.fail("input", "input must be a string or an array of items");
  if (items != nullptr && items->empty()) fields.fail("input", "input must not be empty");
  return fields.failed() ? std::nullopt : std::optional<json::array>(*items);
}

void refuse_unsupported(FieldReader& fields) {
  if (fields.boolean("background").value_or(false)) fields.fail("background", "background responses are not supported");
  for (const std::string_view key : {"conversation", "prompt"}) {
    if (fields.value(key) != nullptr) fields.fail(key, fmt::format("{} is not supported: this server keeps none", key));
  }
}

void read_reasoning_options(FieldReader& fields, Conversation& out) {
  const json::object* reasoning = fields.object("reasoning");
  if (reasoning == nullptr) return;
  FieldReader inner(*reasoning, "reasoning", fields.problems());
  apply_effort(inner.choice("effort", kEfforts), out);
}

void read_text_options(FieldReader& fields, Conversation& out) {
  const json::object* text = fields.object("text");
  if (text == nullptr) return;
  FieldReader inner(*text, "text", fields.problems());
  inner.choice("verbosity", {"low", "medium", "high"});
  const json::object* format = inner.object("format");
  if (format == nullptr) return;
  FieldReader reader(*format, "text.format", fields.problems());
  const std::string_view type = reader.choice("type", {"text", "json_object", "json_schema"});
  if (fields.failed()) return;
  if (type.empty()) return reader.fail("type", "text.format.type is missing");
  if (type == "json_object") out.response_format.kind = ResponseFormat::Kind::kJsonObject;
  if (type == "json_schema") read_json_schema(reader, out.response_format);
}

// `include` names things that an answer may hold besides. Those that this server never has are nobody's business.
void read_include(FieldReader& fields, ParsedRequest& out) {
  const json::array* include = fields.array("include");
  bool logprobs = false;
  if (include != nullptr) {
    for (const json::value& value : *include) {
      const json::string* name = value.if_string();
      if (name == nullptr) return fields.fail("include", "include must hold strings");
      if (*name == "reasoning.encrypted_content") out.seal_reasoning = true;
      if (*name == "message.output_text.logprobs") logprobs = true;
    }
  }
  const std::optional<int64_t> top = fields.integer("top_logprobs", 0, kMaxTopLogprobs);
  out.logprobs = logprobs || top.value_or(0) > 0;
  if (out.logprobs) out.options.sampling.top_logprobs = static_cast<int32_t>(top.value_or(0));
}

// What the answer repeats of the request.
json::object echo_of(FieldReader& fields, const ParsedRequest& request) {
  const auto value_or = [&](std::string_view key, json::value otherwise) {
    const json::value* value = fields.value(key);
    return value != nullptr ? *value : otherwise;
  };
  json::object out;
  for (const std::string_view key : {"instructions", "max_output_tokens", "previous_response_id", "prompt_cache_key", "safety_identifier", "user"}) {
    out[key] = value_or(key, nullptr);
  }
  out["metadata"] = value_or("metadata", json::object());
  out["parallel_tool_calls"] = !request.options.single_tool_call;
  const json::object* reasoning = fields.object("reasoning");
  const json::value* effort = reasoning != nullptr ? reasoning->if_contains("effort") : nullptr;
  out["reasoning"] = json::object{{"effort", effort != nullptr ? *effort : json::value()}, {"summary", nullptr}};
  const json::object* text = fields.object("text");
  const json::value* format = text != nullptr ? text->if_contains("format") : nullptr;
  out["text"] = json::object{{"format", format != nullptr && !format->is_null() ? *format : json::value(json::object{{"type", "text"}})}};
  out["temperature"] = value_or("temperature", 1.0);
  out["top_p"] = value_or("top_p", 1.0);
  out["tool_choice"] = value_or("tool_choice", "auto");
  out["tools"] = value_or("tools", json::array());
  out["top_logprobs"] = value_or("top_logprobs", 0);
  out["store"] = false;  // the server says otherwise when it keeps the answer
  return out;
}

// Reads items of an earlier response, then those of this request.
void read_items(FieldReader& fields, const RequestContext& context, ParsedRequest& request, Conversation& out, std::vector<json::value>& more_tools) {
  Problems& problems = fields.problems();
  ItemReader reader(context, problems, out);
  if (const json::string* id = fields.string("previous_response_id")) {
    request.previous_id = std::string(*id);
    const std::optional<json::array> stored = context.stored_items ? context.stored_items(*request.previous_id) : std::nullopt;
    if (!stored) {
      return fields.fail("previous_response_id",
                         context.stored_items ? fmt::format("the response \"{}\" does not exist, or is no longer kept", quotable(*id))
                                              : "previous_response_id is not supported: this server keeps no responses");
    }
    for (const json::value& item : *stored) reader.read(item, "previous_response_id", more_tools);
  }
  for (size_t i = 0; i < request.items.size() && !problems.any(); ++i) reader.read(request.items[i], element_path("input", i), more_tools);
  reader.finish();
}

}  // namespace

std::optional<ParsedRequest> parse_responses_request(const json::object& body, const RequestContext& context, Problems& problems) {
  FieldReader fields(body, "", problems);
  ParsedRequest out;
  Conversation& conversation = out.prompt.emplace<Conversation>();
  refuse_unsupported(fields);
  const json::string* instructions = fields.string("instructions");
  if (instructions != nullptr) conversation.messages.push_back({.role = Role::kSystem, .content = std::string(*instructions)});
  if (std::optional<json::array> items = input_items(fields)) out.items = std::move(*items);
  if (!problems.any() && out.items.empty() && instructions == nullptr) fields.fail("input", "input is missing");
  std::vector<json::value> more_tools;
  read_items(fields, context, out, conversation, more_tools);
  read_reasoning_options(fields, conversation);
  read_text_options(fields, conversation);
  check_response_format(fields, "text.format", conversation);

  ToolReader tools(context, problems, conversation, out.tool_names);
  if (const json::array* declared = fields.array("tools")) {
    for (size_t i = 0; i < declared->size() && !problems.any(); ++i) tools.read((*declared)[i], element_path("tools", i));
  }
  for (size_t i = 0; i < more_tools.size() && !problems.any(); ++i) tools.read(more_tools[i], element_path("additional_tools", i));
  read_tool_choice(fields, tools, context, conversation);

  read_sampling(fields, context.options, out.options.sampling);
  read_cache_salt(fields, out.options.cache_salt);
  read_retention(fields, out.options.retention);
  read_output_format(fields, out.options.output_format);
  out.options.single_tool_call = !fields.boolean("parallel_tool_calls").value_or(true);
  if (const std::optional<int64_t> max = fields.integer("max_output_tokens", 1, kMaxInt32)) out.options.max_tokens = static_cast<int32_t>(*max);
  out.options.stream = fields.boolean("stream").value_or(false);
  read_stop(fields, out.options.stop);
  fields.object("stream_options");
  fields.object("metadata");
  for (const std::string_view key : {"user", "prompt_cache_key", "safety_identifier", "truncation", "service_tier"}) fields.string(key);
  out.store = fields.boolean("store").value_or(true);
  read_include(fields, out);
  if (problems.any()) return std::nullopt;
  out.echo = echo_of(fields, out);
  return out;
}

}  // namespace deepinfer::recipe
