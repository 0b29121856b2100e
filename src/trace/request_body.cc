#include "trace/request_body.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <boost/json/monotonic_resource.hpp>

namespace deepinfer::trace {
namespace {

using recipe::Conversation;
using recipe::Message;
using recipe::Role;

constexpr size_t kSchemaBytes = 8 << 10;  // of the first piece of memory

Role role_of(std::string_view name) {
  if (name == "system") return Role::kSystem;
  if (name == "developer") return Role::kDeveloper;
  if (name == "assistant" || name == "model" || name == "ai") return Role::kAssistant;
  if (name == "tool" || name == "function") return Role::kTool;
  return Role::kUser;
}

void join(std::string_view text, std::string& out) {
  if (!out.empty() && !text.empty()) out += "\n\n";
  out += text;
}

// A block of content as text: its text if it has one, else its kind and a digest, so that another picture is another prompt. What a
// picture costs in tokens differs between models and is not counted.
std::string block_text(const Json& block) {
  if (const std::string_view plain = text_of(block); !plain.empty()) return std::string(plain);
  if (const MaybeJson text = member(block, "text"); text && text->is_string()) return std::string(text_of(text));
  if (const MaybeJson text = member(block, "refusal"); text && text->is_string()) return std::string(text_of(text));
  const std::string bytes = json_text(block);
  return fmt::format("[{} {:016x}]", text_of(member(block, "type")), XXH3_64bits(bytes.data(), bytes.size()));
}

std::string content_text(const MaybeJson& content) {
  if (!content) return {};
  if (content->is_string()) return std::string(text_of(content));
  std::string out;
  simdjson::dom::array blocks;
  if (content->get(blocks) == simdjson::SUCCESS) {
    for (const Json block : blocks) join(block_text(block), out);
  } else {
    out = json_text(*content);
  }
  return out;
}

// Arguments as JSON text, whichever way a protocol carries them.
std::string arguments_text(const MaybeJson& arguments) {
  if (!arguments) return "{}";
  if (arguments->is_string()) return std::string(text_of(arguments));
  return json_text(*arguments);
}

// Items of one answer that follow each other are one assistant message.
Message& open_assistant(Conversation& out, bool& open) {
  if (!open) out.messages.push_back({.role = Role::kAssistant, .null_content = true});
  open = true;
  return out.messages.back();
}

std::string reasoning_text(const Json& item) {
  std::string out;
  for (const std::string_view key : {"content", "summary"}) {
    simdjson::dom::array parts;
    const MaybeJson list = member(item, key);
    if (!list || list->get(parts) != simdjson::SUCCESS) continue;
    for (const Json part : parts) join(text_of(member(part, "text")), out);
    if (!out.empty()) break;
  }
  return out;
}

bool read_chat(const Json& body, LogRecord& out) {
  Conversation conversation;
  const MaybeJson messages = member(body, "messages");
  if (!is_array(messages)) return false;
  append_chat_messages(*messages, conversation);
  const std::string_view choice = text_of(member(body, "tool_choice"));
  if (const MaybeJson tools = first_member(body, {"tools", "functions"}); tools && choice != "none") append_tools(*tools, conversation);
  const bool empty = conversation.messages.empty();
  out.prompt = std::move(conversation);
  return !empty;
}

bool read_anthropic(const Json& body, LogRecord& out) {
  Conversation conversation;
  if (const MaybeJson system = member(body, "system")) {
    conversation.messages.push_back({.role = Role::kSystem, .content = content_text(system)});
  }
  simdjson::dom::array messages;
  const MaybeJson list = member(body, "messages");
  if (!list || list->get(messages) != simdjson::SUCCESS) return false;
  for (const Json message : messages) append_anthropic_message(text_of(member(message, "role")), member(message, "content"), conversation);
  if (const MaybeJson tools = member(body, "tools"); tools && text_of(member_at(body, "tool_choice.type")) != "none") {
    append_tools(*tools, conversation);
  }
  const bool empty = conversation.messages.empty();
  out.prompt = std::move(conversation);
  return !empty;
}

bool read_responses(const Json& body, LogRecord& out) {
  Conversation conversation;
  if (const MaybeJson instructions = member(body, "instructions")) {
    conversation.messages.push_back({.role = Role::kSystem, .content = content_text(instructions)});
  }
  const MaybeJson input = member(body, "input");
  if (!input) return false;
  if (input->is_string()) conversation.messages.push_back({.role = Role::kUser, .content = std::string(text_of(input))});
  else append_response_items(*input, conversation);
  const std::string_view choice = text_of(member(body, "tool_choice"));
  if (const MaybeJson tools = member(body, "tools"); tools && choice != "none") append_tools(*tools, conversation);
  out.incomplete |= member(body, "previous_response_id").has_value() || member(body, "conversation").has_value();
  const bool empty = conversation.messages.empty();
  out.prompt = std::move(conversation);
  return !empty;
}

bool read_completion(const Json& body, LogRecord& out) {
  const MaybeJson prompt = member(body, "prompt");
  if (!prompt) return false;
  if (prompt->is_string()) {
    out.prompt = std::string(text_of(prompt));
    return !text_of(prompt).empty();
  }
  simdjson::dom::array list;
  if (prompt->get(list) != simdjson::SUCCESS || list.size() == 0) return false;
  std::vector<TokenId> ids;
  for (const Json element : list) {
    if (element.is_string()) {
      out.prompt = std::string(text_of(element));  // several prompts in one request: the first stands for it
      return true;
    }
    simdjson::dom::array inner;
    if (element.get(inner) == simdjson::SUCCESS) {
      for (const Json id : inner) ids.push_back(static_cast<TokenId>(integer_of(id).value_or(0)));
      break;
    }
    ids.push_back(static_cast<TokenId>(integer_of(element).value_or(0)));
  }
  const bool empty = ids.empty();
  out.prompt = std::move(ids);
  return !empty;
}

// Blocks that only Anthropic's messages have.
bool has_anthropic_blocks(const MaybeJson& messages) {
  simdjson::dom::array list;
  if (!messages || messages->get(list) != simdjson::SUCCESS) return false;
  for (const Json message : list) {
    const MaybeJson content = member(message, "content");
    simdjson::dom::array blocks;
    if (!content || content->get(blocks) != simdjson::SUCCESS) continue;
    for (const Json block : blocks) {
      const std::string_view type = text_of(member(block, "type"));
      if (type == "tool_use" || type == "tool_result" || type == "thinking" || type == "redacted_thinking") return true;
      if (member(block, "cache_control")) return true;
    }
  }
  return false;
}

bool has_anthropic_tools(const MaybeJson& tools) {
  simdjson::dom::array list;
  if (!tools || tools->get(list) != simdjson::SUCCESS) return false;
  for (const Json tool : list) {
    if (member(tool, "input_schema")) return true;
  }
  return false;
}

}  // namespace

void append_chat_message(const Json& value, std::string_view role, Conversation& out) {
  Message message;
  const std::string_view own_role = text_of(member(value, "role"));
  message.role = role_of(own_role.empty() ? role : own_role);
  const MaybeJson content = member(value, "content");
  // OpenTelemetry's messages hold `parts`; a protocol that mixes blocks of Anthropic's kind into chat messages does the same in content.
  message.content = content_text(content);
  message.null_content = !content;
  message.name = text_of(member(value, "name"));
  message.tool_call_id = text_of(message.role == Role::kTool ? first_member(value, {"tool_call_id", "id"}) : member(value, "tool_call_id"));
  if (message.role == Role::kAssistant) {
    if (const MaybeJson reasoning = first_member(value, {"reasoning_content", "reasoning"}); reasoning && reasoning->is_string()) {
      message.reasoning = std::string(text_of(reasoning));
    }
    message.prefix = false;
    const MaybeJson calls = member(value, "tool_calls");
    simdjson::dom::array list;
    if (calls && calls->get(list) == simdjson::SUCCESS) {
      for (const Json call : list) {
        const MaybeJson function = member(call, "function");
        const MaybeJson from = function ? function : MaybeJson(call);
        message.tool_calls.push_back({std::string(text_of(member(call, "id"))), std::string(text_of(member(from, "name"))),
                                      arguments_text(first_member(from, {"arguments", "args"}))});
      }
    }
    if (const MaybeJson call = member(value, "function_call"); is_object(call)) {
      message.tool_calls.push_back({"", std::string(text_of(member(call, "name"))), arguments_text(member(call, "arguments"))});
    }
  }
  out.messages.push_back(std::move(message));
}

void append_response_item(const Json& item, Conversation& out, bool& open) {
  const std::string_view type = text_of(member(item, "type"));
  if (type == "reasoning") {
    Message& message = open_assistant(out, open);
    std::string text = reasoning_text(item);
    if (!text.empty()) message.reasoning = std::move(text);
  } else if (type == "function_call" || type == "custom_tool_call" || type == "local_shell_call") {
    Message& message = open_assistant(out, open);
    const std::string_view name = text_of(member(item, "name"));
    message.tool_calls.push_back({std::string(text_of(first_member(item, {"call_id", "id"}))), std::string(name.empty() ? type : name),
                                  arguments_text(first_member(item, {"arguments", "input", "action"}))});
  } else if (type == "function_call_output" || type == "custom_tool_call_output" || type == "local_shell_call_output") {
    open = false;
    out.messages.push_back({.role = Role::kTool, .content = content_text(member(item, "output")),
                            .tool_call_id = std::string(text_of(member(item, "call_id")))});
  } else if (const MaybeJson role = member(item, "role")) {
    const Role as = role_of(text_of(role));
    if (as != Role::kAssistant) {
      open = false;
      out.messages.push_back({.role = as, .content = content_text(member(item, "content"))});
      return;
    }
    Message& message = open_assistant(out, open);
    join(content_text(member(item, "content")), message.content);
    message.null_content = false;
  } else if (!type.empty() && type != "item_reference") {
    Message& message = open_assistant(out, open);  // searches, images and other calls that the server ran itself
    join(json_text(item), message.content);
  }
}

void append_chat_messages(const Json& messages, Conversation& out) {
  simdjson::dom::array list;
  if (messages.get(list) != simdjson::SUCCESS) return;
  for (const Json message : list) {
    if (message.is_object()) append_chat_message(message, "", out);
  }
}

void append_response_items(const Json& items, Conversation& out) {
  simdjson::dom::array list;
  bool open = false;
  if (items.get(list) != simdjson::SUCCESS) return;
  for (const Json item : list) append_response_item(item, out, open);
}

void append_assistant_blocks(const MaybeJson& content, Message& out) {
  simdjson::dom::array blocks;
  if (!content || content->get(blocks) != simdjson::SUCCESS) {
    join(content_text(content), out.content);
    out.null_content = out.null_content && !content;
    return;
  }
  for (const Json block : blocks) {
    const std::string_view type = text_of(member(block, "type"));
    if (type == "tool_use" || type == "server_tool_use") {
      out.tool_calls.push_back({std::string(text_of(member(block, "id"))), std::string(text_of(member(block, "name"))),
                                arguments_text(member(block, "input"))});
    } else if (type == "thinking") {
      std::string reasoning = out.reasoning.value_or("");
      join(text_of(member(block, "thinking")), reasoning);
      out.reasoning = std::move(reasoning);
    } else if (type != "redacted_thinking") {
      join(block_text(block), out.content);
      out.null_content = false;
    }
  }
}

void append_anthropic_message(std::string_view role, const MaybeJson& content, Conversation& out) {
  const Role as = role_of(role);
  if (as == Role::kAssistant) {
    Message message{.role = Role::kAssistant, .null_content = true};
    append_assistant_blocks(content, message);
    out.messages.push_back(std::move(message));
    return;
  }
  simdjson::dom::array blocks;
  if (!content || content->get(blocks) != simdjson::SUCCESS) {
    out.messages.push_back({.role = as, .content = content_text(content)});
    return;
  }
  // Results first, each a message of its own; what else the user says is one message after them, as the protocol demands.
  Message rest{.role = as};
  bool has_rest = false;
  for (const Json block : blocks) {
    if (text_of(member(block, "type")) == "tool_result") {
      out.messages.push_back({.role = Role::kTool, .content = content_text(member(block, "content")),
                              .tool_call_id = std::string(text_of(member(block, "tool_use_id")))});
    } else {
      join(block_text(block), rest.content);
      has_rest = true;
    }
  }
  if (has_rest) out.messages.push_back(std::move(rest));
}

void append_tools(const Json& tools, Conversation& out) {
  simdjson::dom::array list;
  if (tools.get(list) != simdjson::SUCCESS) return;
  // Schemas are many small values that live and die together: one piece of memory for all.
  const boost::json::storage_ptr memory = boost::json::make_shared_resource<boost::json::monotonic_resource>(kSchemaBytes);
  for (const Json tool : list) {
    const MaybeJson function = member(tool, "function");
    const MaybeJson from = function ? function : MaybeJson(tool);
    append_tool(text_of(first_member(from, {"name", "type"})), text_of(member(from, "description")), first_member(from, {"parameters", "input_schema"}), out, memory);
  }
}

void append_tool(std::string_view name, std::string_view description, const MaybeJson& parameters, Conversation& out, const boost::json::storage_ptr& memory) {
  out.tools.push_back({.name = std::string(name), .description = std::string(description),
                       .parameters = parameters ? to_boost(*parameters, memory) : boost::json::value(boost::json::object())});
}

std::optional<LogFormat> body_format(const MaybeJson& body) {
  if (!is_object(body)) return std::nullopt;
  const MaybeJson messages = member(body, "messages");
  if (is_array(messages)) {
    const bool anthropic = member(body, "system") || member(body, "anthropic_version") || has_anthropic_tools(member(body, "tools")) ||
                           has_anthropic_blocks(messages);
    return anthropic ? LogFormat::kMessages : LogFormat::kChat;
  }
  const MaybeJson input = member(body, "input");
  if (input && (input->is_string() || input->is_array()) && (member(body, "model") || member(body, "instructions"))) return LogFormat::kResponses;
  const MaybeJson prompt = member(body, "prompt");
  if (prompt && (prompt->is_string() || prompt->is_array())) return LogFormat::kCompletions;
  return std::nullopt;
}

bool read_body(const Json& body, LogFormat format, LogRecord& out) {
  if (const std::string_view model = text_of(member(body, "model")); !model.empty()) out.model = model;
  if (const MaybeJson session = first_member(body, {"metadata.session_id", "session_id", "prompt_cache_key"}); out.session.empty()) {
    out.session = text_of(session);
  }
  if (const MaybeJson user = first_member(body, {"user", "metadata.user_id", "safety_identifier"}); out.tenant.empty()) out.tenant = text_of(user);
  switch (format) {
    case LogFormat::kMessages: return read_anthropic(body, out);
    case LogFormat::kResponses: return read_responses(body, out);
    case LogFormat::kCompletions: return read_completion(body, out);
    default: return read_chat(body, out);
  }
}

void read_usage(const MaybeJson& usage, LoggedUsage& out) {
  if (!is_object(usage)) return;
  // What no prompt has is damage: bounded, so that sums stay numbers.
  const auto read = [&](std::initializer_list<std::string_view> paths) {
    const auto count = integer_of(first_member(usage, paths));
    return count && *count >= 0 ? std::optional(std::min(*count, kMaxLoggedTokens)) : std::nullopt;
  };
  const auto read_apart = read({"cache_read_input_tokens", "input_cached_tokens", "input_cache_read"});
  const auto written = read({"cache_creation_input_tokens", "cache_write_tokens", "input_cache_creation"});
  // Anthropic's input_tokens and Langfuse's input are those that were neither read from a cache nor written to one; everybody else's are all.
  if (const auto input = read({"prompt_tokens", "input_tokens", "promptTokens", "inputTokens", "input", "prompt", "gen_ai.usage.input_tokens"})) {
    const bool apart = !member(usage, "prompt_tokens") && (read_apart || written) && !member_at(usage, "input_tokens_details.cached_tokens");
    out.input = *input + (apart ? read_apart.value_or(0) + written.value_or(0) : 0);
  }
  const auto cached = read({"prompt_tokens_details.cached_tokens", "input_tokens_details.cached_tokens", "prompt_cache_hit_tokens", "cached_tokens",
                            "cached_input_tokens"});
  if (cached || read_apart) out.cached = cached ? *cached : *read_apart;
  if (written) out.written = *written;
  if (const auto hour = read({"cache_creation.ephemeral_1h_input_tokens"})) out.written_1h = *hour;
  if (const auto output = read({"completion_tokens", "output_tokens", "completionTokens", "outputTokens", "output", "completion"})) out.output = *output;
}

}  // namespace deepinfer::trace
