#include "recipe/request_parts.h"

#include <fmt/format.h>

#include <algorithm>

namespace deepinfer::recipe {
namespace json = boost::json;
namespace {

constexpr std::string_view kTextOnly = "this model reads text only";

bool is_base64_char(char c) { return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '+' || c == '/'; }

bool mentions_json(std::string_view text) {
  constexpr std::string_view kWord = "json";
  const auto same = [](char a, char b) { return (a | 0x20) == b; };
  return std::search(text.begin(), text.end(), kWord.begin(), kWord.end(), same) != text.end();
}

}  // namespace

std::string element_path(std::string_view path, size_t idx) { return fmt::format("{}[{}]", path, idx); }

void ContentBuilder::add_text(std::string_view text) {
  if (num_blocks_++ > 0) text_ += "\n\n";
  text_ += text;
}

void ContentBuilder::add_image(Image image) {
  add_text("");
  images_.push_back({.offset = text_.size(), .image = static_cast<uint32_t>(conversation_.images.size())});
  conversation_.images.push_back(std::move(image));
}

void ContentBuilder::move_to(Message& message) {
  message.content = std::exchange(text_, {});
  message.images = std::exchange(images_, {});
  num_blocks_ = 0;
}

std::optional<std::string> repaired_base64(std::string_view text) {
  while (!text.empty() && text.back() == '=') text.remove_suffix(1);
  if (text.empty() || text.size() % 4 == 1 || !std::all_of(text.begin(), text.end(), is_base64_char)) return std::nullopt;
  std::string out(text);
  out.append((4 - text.size() % 4) % 4, '=');
  return out;
}

std::optional<Image> read_image_url(std::string_view url, std::string_view detail, const std::string& path, const OptionsContext& context,
                                    Problems& problems) {
  constexpr std::pair<std::string_view, ImageDetail> kDetails[] = {
      {"", ImageDetail::kHigh}, {"high", ImageDetail::kHigh}, {"low", ImageDetail::kLow}, {"original", ImageDetail::kOriginal}, {"auto", ImageDetail::kAuto}};
  const auto* known = std::find_if(std::begin(kDetails), std::end(kDetails), [&](const auto& entry) { return entry.first == detail; });
  if (known == std::end(kDetails)) {
    problems.report(path + ".detail", path + ".detail must be one of low, high, original, auto");
    return std::nullopt;
  }
  constexpr std::string_view kMark = ";base64,";
  std::string whole(url);
  if (url.starts_with("data:")) {
    const size_t mark = url.find(kMark);
    const std::optional<std::string> data = mark == std::string_view::npos ? std::nullopt : repaired_base64(url.substr(mark + kMark.size()));
    if (!data) {
      problems.report(path, path + " holds a data URL that is not data:MEDIA/TYPE;base64,DATA");
      return std::nullopt;
    }
    if (!url.substr(5).starts_with("image/")) {
      problems.report(path, fmt::format("{} holds data of type \"{}\"; images are image/png, image/jpeg, image/webp or image/gif", path, quotable(url.substr(5, mark - 5))));
      return std::nullopt;
    }
    whole = std::string(url.substr(0, mark + kMark.size())) + *data;
  } else if (!url.starts_with("http://") && !url.starts_with("https://")) {
    problems.report(path, path + " must be an http, https or data URL");
    return std::nullopt;
  }
  if (!context.accepts_images) {
    problems.report(path, fmt::format("images are not supported: {}", kTextOnly));
    return std::nullopt;
  }
  return Image{.url = std::move(whole), .detail = known->second, .path = path};
}

bool is_tool_name(std::string_view name) {
  return !name.empty() && name.size() <= kMaxToolNameBytes && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
  });
}

std::string qualified_tool_name(std::string_view name_space, std::string_view name, Dialect dialect) {
  if (name_space.empty()) return std::string(name);
  return fmt::format("{}{}{}", name_space, dialect == Dialect::kV41 ? "::" : "__", name);
}

void add_tool(FieldReader& fields, ToolDefinition tool, const json::object* parameters, std::string_view parameters_key,
              std::vector<ToolDefinition>& tools) {
  if (fields.failed()) return;
  if (!is_tool_name(tool.name)) {
    return fields.fail("name", fmt::format("{} must be 1 to {} of the characters A-Z a-z 0-9 _ -", fields.path_of("name"), kMaxToolNameBytes));
  }
  if (parameters != nullptr) {
    const json::value* type = parameters->if_contains("type");
    if (type != nullptr && *type != "object") return fields.fail(parameters_key, fields.path_of(parameters_key) + " must have the type object");
  }
  const bool repeated = std::any_of(tools.begin(), tools.end(), [&](const ToolDefinition& other) { return other.name == tool.name; });
  if (repeated) return fields.fail("name", fmt::format("tool \"{}\" is declared twice", tool.name));
  tool.parameters = parameters != nullptr ? json::value(*parameters) : json::value(json::object());
  tools.push_back(std::move(tool));
}

void demand_call(FieldReader& fields, const OptionsContext& context, Conversation& conversation) {
  constexpr std::string_view kKey = "tool_choice";
  if (fields.failed()) return;
  if (conversation.tools.empty()) return fields.fail(kKey, "this tool_choice needs tools");
  // What calls look like is known of DeepSeek's own dialects only.
  if (context.dialect == Dialect::kTemplate) return fields.fail(kKey, "this tool_choice is not supported by this model yet; use none or auto");
  conversation.tool_choice = ToolChoice::kAny;
}

void force_tools(FieldReader& fields, std::string_view name, const OptionsContext& context, Conversation& conversation) {
  constexpr std::string_view kKey = "tool_choice";
  demand_call(fields, context, conversation);
  if (fields.failed()) return;
  if (!name.empty()) {
    std::erase_if(conversation.tools, [&](const ToolDefinition& tool) { return tool.name != name; });
    if (conversation.tools.empty()) return fields.fail(kKey, fmt::format("tool_choice names the tool \"{}\", which is not declared", quotable(name)));
  }
  if (conversation.thinking.value_or(true)) return fields.fail(kKey, "Thinking mode does not support this tool_choice");
  conversation.tool_choice = ToolChoice::kRequired;
}

void apply_effort(std::string_view effort, Conversation& conversation) {
  if (effort.empty()) return;
  if (effort == "none") {
    conversation.thinking = false;
    return;
  }
  conversation.template_kwargs["reasoning_effort"] = effort;  // templates that know efforts read it under this name
  if (effort == "minimal" || effort == "low") conversation.effort = Effort::kLow;
  if (effort == "medium" || effort == "high") conversation.effort = Effort::kHigh;
  if (effort == "xhigh") conversation.effort = Effort::kXHigh;
  if (effort == "max" || effort == "ultra") conversation.effort = Effort::kMax;
}

void read_thinking(FieldReader& fields, Conversation& conversation) {
  const json::object* thinking = fields.object("thinking");
  if (thinking == nullptr) return;
  FieldReader inner(*thinking, fields.path_of("thinking"), fields.problems());
  const std::string_view type = inner.choice("type", {"enabled", "adaptive", "disabled"});
  if (!type.empty()) conversation.thinking = type != "disabled";
}

std::optional<int32_t> thinking_budget(FieldReader& fields) {
  const json::object* thinking = fields.object("thinking");
  if (thinking == nullptr) return std::nullopt;
  FieldReader inner(*thinking, fields.path_of("thinking"), fields.problems());
  const std::optional<int64_t> budget = inner.integer("budget_tokens", 0, std::numeric_limits<int64_t>::max());
  const json::string* type = inner.string("type");
  if (!budget || (type != nullptr && *type == "disabled")) return std::nullopt;
  return static_cast<int32_t>(std::min<int64_t>(*budget, std::numeric_limits<int32_t>::max()));
}

void read_json_schema(FieldReader fields, ResponseFormat& out) {
  const json::string* name = fields.string("name");
  const json::object* schema = fields.object("schema");
  const std::optional<bool> strict = fields.boolean("strict");
  if (name == nullptr) fields.fail("name", fields.path_of("name") + " is missing");
  if (schema == nullptr) fields.fail("schema", fields.path_of("schema") + " is missing");
  if (fields.failed()) return;
  out = {.kind = ResponseFormat::Kind::kJsonSchema, .name = std::string(*name), .schema = *schema, .strict = strict};
}

void check_response_format(FieldReader& fields, std::string_view key, const Conversation& conversation) {
  const ResponseFormat::Kind kind = conversation.response_format.kind;
  if (fields.failed() || kind == ResponseFormat::Kind::kText) return;
  if (kind != ResponseFormat::Kind::kJsonObject) return;
  const bool there = std::any_of(conversation.messages.begin(), conversation.messages.end(),
                                 [](const Message& message) { return mentions_json(message.content); });
  if (!there) fields.fail(key, "JSON mode needs the word \"json\" in the conversation");
}

}  // namespace deepinfer::recipe
