#include "recipe/template_context.h"

#include <array>
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>

#include "recipe/json_reader.h"

namespace deepinfer::recipe {
namespace json = boost::json;
namespace {

constexpr std::array<std::string_view, 12> kReservedKeys = {"messages",  "tools",     "documents", "add_generation_prompt",
                                                            "bos_token", "eos_token", "unk_token", "pad_token",
                                                            "raise_exception", "strftime_now", "namespace", "__now"};

std::string_view role_name(Role role, std::string_view source) {
  switch (role) {
    case Role::kSystem: return "system";
    case Role::kDeveloper: return source.find("developer") == std::string_view::npos ? "system" : "developer";
    case Role::kUser: return "user";
    case Role::kAssistant: return "assistant";
    case Role::kTool: return "tool";
    case Role::kLatestReminder: return {};  // refused before
  }
  return "user";
}

// Templates iterate over arguments or print them as JSON, so they get the object. Text that is not a JSON object stays text: a model's
// broken call must not make its conversation unusable.
json::value arguments_value(const std::string& arguments) {
  std::optional<json::value> value = parse_json(arguments);
  if (!value || !value->is_object()) return json::value(arguments);
  return std::move(*value);
}

json::object message_object(const Message& message, std::string_view source, const TemplateTraits& traits) {
  json::object out;
  out["role"] = role_name(message.role, source);
  out["content"] = message.content;
  if (traits.null_content && message.null_content && !message.tool_calls.empty()) out["content"] = nullptr;
  if (message.reasoning) out["reasoning_content"] = *message.reasoning;
  if (!message.name.empty()) out["name"] = message.name;
  if (!message.tool_call_id.empty()) out["tool_call_id"] = message.tool_call_id;
  if (!message.tool_calls.empty()) {
    json::array calls;
    for (const ToolCall& call : message.tool_calls) {
      json::value arguments = traits.string_arguments ? json::value(call.arguments) : arguments_value(call.arguments);
      calls.push_back(json::object{
          {"id", call.id}, {"type", "function"}, {"function", {{"name", call.name}, {"arguments", std::move(arguments)}}}});
    }
    out["tool_calls"] = std::move(calls);
  }
  return out;
}

json::value tool_value(const ToolDefinition& tool) {
  if (tool.raw.is_object()) return tool.raw;
  return json::object{{"type", "function"},
                      {"function", {{"name", tool.name}, {"description", tool.description}, {"parameters", tool.parameters}}}};
}

// Ends in a letter, so that a template that trims white space or punctuation leaves it alone.
std::string unused_mark(const std::string& context) {
  std::string mark = "ContinueHere";
  while (context.find(mark) != std::string::npos) mark += "X";
  return mark;
}

}  // namespace

Result<TemplateContext> template_context(const Conversation& conversation, std::string_view source, const TemplateTraits& traits) {
  json::object out;
  json::array messages;
  bool continues = false;
  if (!conversation.images.empty()) return Error{Code::kInvalidArgument, "this model reads text only: its chat template takes no images"};
  for (const Message& message : conversation.messages) {
    if (message.role == Role::kLatestReminder) return Error{Code::kInvalidArgument, "this model knows no messages with the role latest_reminder"};
    if (message.prefix) {
      if (message.role != Role::kAssistant || &message != &conversation.messages.back()) {
        return Error{Code::kInvalidArgument, "prefix is for the last message, and an assistant's"};
      }
      continues = true;
    }
    messages.push_back(message_object(message, source, traits));
  }
  out["messages"] = std::move(messages);
  // Null, not absent: transformers passes None, and templates ask `tools is not none`.
  out["tools"] = nullptr;
  out["documents"] = nullptr;
  if (conversation.tools_active()) {
    json::array tools;
    for (const ToolDefinition& tool : conversation.tools) tools.push_back(tool_value(tool));
    out["tools"] = std::move(tools);
  }
  out["add_generation_prompt"] = conversation.add_generation_prompt && !continues;
  if (conversation.thinking) out["enable_thinking"] = *conversation.thinking;
  for (const auto& [key, value] : conversation.template_kwargs) {
    for (const std::string_view reserved : kReservedKeys) {
      if (key == reserved) return Error{Code::kInvalidArgument, "chat_template_kwargs: " + std::string(key) + " is set by the server"};
    }
    if (key == "enable_thinking" && conversation.thinking) continue;  // the request's own field is the stronger wish
    out[key] = value;
  }

  TemplateContext context{.json = json::serialize(out), .cut_mark = {}};
  if (continues) {
    context.cut_mark = unused_mark(context.json);
    json::object& last = out["messages"].as_array().back().as_object();
    last["content"] = conversation.messages.back().content + context.cut_mark;
    context.json = json::serialize(out);
  }
  return context;
}

}  // namespace deepinfer::recipe
