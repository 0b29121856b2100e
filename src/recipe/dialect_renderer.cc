// Prompts of the DeepSeek dialects. The grammar:
//
//   prompt    = BOS head turn* tail
//   head      = v4.1: [System] effort     System if there is effort or the first turn is a system turn
//               else: effort
//   system    = text at the front, v4.1 later: System text
//   user      = prefix content            prefix: two newlines after a user or tool turn, else User
//   tool      = prefix "<tool_result>" content "</tool_result>"
//   reminder  = latest_reminder content
//   assistant = Assistant think content ["\n\n" calls] EOS
//   tail      = Assistant (<think> or </think>) ["\n\n<" DSML block ">\n" if a call is required]
//
// Names without quotes are control tokens, written as ids; no text of a client is ever looked at for them.
#include <array>
#include <utility>

#include "recipe/dialect.h"
#include "recipe/dialect_rules.h"
#include "recipe/json_text.h"
#include "recipe/turns.h"

namespace deepinfer::recipe {
namespace {

struct Control {
  TokenId id = -1;
  std::string_view spelling;
};

struct Tokens {
  Control bos, eos, user, assistant, system, reminder, think, think_end, dsml, image, extracted_url;
  std::array<Control, 7> tasks;  // by Task; kNone unused
};

constexpr std::array<std::string_view, 7> kTaskSpellings = {"",           "<｜action｜>", "<｜query｜>",   "<｜authority｜>",
                                                            "<｜domain｜>", "<｜title｜>",  "<｜read_url｜>"};

// Segments in the making: neighbouring texts are one.
class Writer {
 public:
  explicit Writer(const std::vector<Image>& images) : images_(images) {}

  void control(const Control& token) {
    prompt.segments.push_back({.kind = Segment::Kind::kSpecial, .id = token.id, .text = std::string(token.spelling)});
  }
  // Room for a text that comes in parts, so that its first part is not moved for the next.
  void reserve_text(size_t bytes) {
    if (prompt.segments.empty() || prompt.segments.back().kind != Segment::Kind::kPlain) prompt.segments.push_back({});
    std::string& text = prompt.segments.back().text;
    text.reserve(text.size() + bytes);
  }
  void text(std::string_view text) {
    if (text.empty()) return;
    if (prompt.segments.empty() || prompt.segments.back().kind != Segment::Kind::kPlain) prompt.segments.push_back({});
    prompt.segments.back().text += text;
  }
  void image(const Control& token, uint32_t index) {
    prompt.segments.push_back({.kind = Segment::Kind::kImage, .id = token.id, .text = std::string(token.spelling),
                               .image = static_cast<uint32_t>(prompt.images.size())});
    prompt.images.push_back(images_[index]);
  }

  Prompt prompt;

 private:
  const std::vector<Image>& images_;
};

std::string tool_schema(const ToolDefinition& tool, NumberStyle numbers) {
  std::string out = "{\"name\": \"";
  append_json_escaped(tool.name, out);
  out += "\", \"description\": \"";
  append_json_escaped(tool.description, out);
  out.append("\", \"parameters\": ").append(format_json(tool.parameters, numbers)).append("}");
  return out;
}

class DialectRenderer final : public PromptRenderer {
 public:
  DialectRenderer(const DialectRules& rules, const Tokens& tokens, const DialectOptions& options)
      : rules_(rules), tokens_(tokens), options_(options), tool_block_head_(tool_block_head(rules.names)) {}

  Result<Prompt> render(const Conversation& conversation) const override;

 private:
  struct Plan {
    const Conversation& conversation;
    std::deque<std::string> texts;  // of turns that are no message's own
    std::vector<Turn> turns;
    bool thinking;
    size_t keep_from;  // reasoning of turns from here on is written
  };

  bool active(const Control& token) const { return token.id >= 0; }
  Plan plan(const Conversation& conversation) const;
  Result<> check_tasks(const Conversation& conversation) const;
  void write_additions(const Conversation& conversation, Writer& out) const;
  void write_own_text(std::string_view text, Writer& out) const;
  void write_content(const Turn& turn, Writer& out) const;
  void write_user_prefix(const Plan& plan, size_t i, Writer& out) const;
  void write_user(const Plan& plan, size_t i, Writer& out) const;
  void write_assistant(const Plan& plan, size_t i, Writer& out) const;
  void write_tag(std::string_view begin, std::string_view rest, Writer& out) const;
  void write_calls(const std::vector<ToolCall>& calls, Writer& out) const;
  void write_arguments(const ToolCall& call, Writer& out) const;
  void write_continued(const Plan& plan, const Turn& turn, Writer& out) const;
  void write_tail(const Plan& plan, Writer& out) const;

  const DialectRules& rules_;
  const Tokens tokens_;
  const DialectOptions options_;
  const std::string tool_block_head_;
};

// Reasoning is kept from the turn behind the last one that is not the assistant's, unless tools or the operator say to keep it all. The
// first turn's never is: an assistant turn there follows no question.
DialectRenderer::Plan DialectRenderer::plan(const Conversation& conversation) const {
  const DeveloperAs developer = options_.developer_as == DeveloperAs::kDialect ? rules_.developer : options_.developer_as;
  const bool needs_system = conversation.tools_active() || conversation.response_format.kind != ResponseFormat::Kind::kText;
  Plan plan{.conversation = conversation, .texts = {}, .turns = {}, .thinking = conversation.thinking.value_or(true), .keep_from = 1};
  plan.turns = make_turns(conversation, rules_, developer, needs_system, plan.texts);
  const HistoryReasoning history = conversation.history_reasoning.value_or(options_.history_reasoning);
  if (history == HistoryReasoning::kReference && !conversation.tools_active()) {
    for (size_t i = 1; i < plan.turns.size(); ++i) {
      const Role role = plan.turns[i].role;
      if (role == Role::kUser || role == Role::kTool || role == Role::kSystem) plan.keep_from = i + 1;
    }
  }
  return plan;
}

// What stands below the first system message: tools, and what the answer has to look like.
void DialectRenderer::write_additions(const Conversation& conversation, Writer& out) const {
  if (conversation.tools_active()) {
    out.text("\n\n");
    write_own_text(tool_block_head_, out);
    for (size_t i = 0; i < conversation.tools.size(); ++i) {
      if (i > 0) out.text("\n");
      out.text(tool_schema(conversation.tools[i], rules_.numbers));
    }
    out.text(tool_block_tail());
  }
  switch (conversation.response_format.kind) {
    case ResponseFormat::Kind::kText: break;
    case ResponseFormat::Kind::kJsonObject:
      out.text("\n\n");
      out.text(rules_.json_mode);
      break;
    case ResponseFormat::Kind::kJsonSchema:
      out.text("\n\n");
      out.text(schema_intro());
      out.text(format_json(conversation.response_format.schema, rules_.numbers));
      break;
  }
}

// Text of ours, in which control tokens are spelt. Never to be given a client's text.
void DialectRenderer::write_own_text(std::string_view text, Writer& out) const {
  const std::array<const Control*, 3> controls = {&tokens_.dsml, &tokens_.think, &tokens_.think_end};
  while (!text.empty()) {
    size_t first = std::string_view::npos;
    const Control* found = nullptr;
    for (const Control* control : controls) {
      const size_t at = text.find(control->spelling);
      if (at < first) {
        first = at;
        found = control;
      }
    }
    out.text(text.substr(0, first));
    if (found == nullptr) return;
    out.control(*found);
    text.remove_prefix(first + found->spelling.size());
  }
}

void DialectRenderer::write_content(const Turn& turn, Writer& out) const {
  size_t done = 0;
  for (const PlacedImage& placed : turn.images) {
    out.text(std::string_view(turn.content).substr(done, placed.offset - done));
    out.image(tokens_.image, placed.image);
    done = placed.offset;
  }
  out.text(std::string_view(turn.content).substr(done));
}

void DialectRenderer::write_user_prefix(const Plan& plan, size_t i, Writer& out) const {
  const bool goes_on = i > 0 && (plan.turns[i - 1].role == Role::kUser || plan.turns[i - 1].role == Role::kTool);
  if (goes_on) {
    out.text("\n\n");
  } else {
    out.control(tokens_.user);
  }
}

void DialectRenderer::write_user(const Plan& plan, size_t i, Writer& out) const {
  const Turn& turn = plan.turns[i];
  const Task task = turn.message != nullptr ? turn.message->task : Task::kNone;
  write_user_prefix(plan, i, out);
  if (task == Task::kReadUrl) out.control(tokens_.extracted_url);
  write_content(turn, out);
  if (task != Task::kNone && task != Task::kAction) out.control(tokens_.tasks[static_cast<size_t>(task)]);
}

// "<" or "</", the markup token, and what follows it.
void DialectRenderer::write_tag(std::string_view begin, std::string_view rest, Writer& out) const {
  out.text(begin);
  out.control(tokens_.dsml);
  out.text(rest);
}

void DialectRenderer::write_arguments(const ToolCall& call, Writer& out) const {
  std::optional<std::vector<JsonMember>> members = json_members(call.arguments, rules_.numbers);
  // What is no JSON object is shown as it came: a model's broken call must not make its conversation unusable.
  if (!members) members = {{JsonMember{.key = "arguments", .is_string = true, .text = call.arguments}}};
  for (size_t i = 0; i < members->size(); ++i) {
    const JsonMember& member = (*members)[i];
    if (i > 0) out.text("\n");
    write_tag("<", rules_.names.parameter, out);
    out.text(" name=\"");
    out.text(member.key);
    out.text(member.is_string ? "\" string=\"true\">" : "\" string=\"false\">");
    out.text(member.text);
    write_tag("</", rules_.names.parameter, out);
    out.text(">");
  }
  if (!members->empty() || rules_.empty_line_in_empty_call) out.text("\n");
}

void DialectRenderer::write_calls(const std::vector<ToolCall>& calls, Writer& out) const {
  out.text("\n\n");
  write_tag("<", rules_.names.block, out);
  out.text(">\n");
  for (const ToolCall& call : calls) {
    write_tag("<", rules_.names.invoke, out);
    out.text(" name=\"");
    out.text(call.name);
    out.text("\">\n");
    write_arguments(call, out);
    write_tag("</", rules_.names.invoke, out);
    out.text(">\n");
  }
  write_tag("</", rules_.names.block, out);
  out.text(">");
}

void DialectRenderer::write_assistant(const Plan& plan, size_t i, Writer& out) const {
  const Turn& turn = plan.turns[i];
  out.control(tokens_.assistant);
  if (plan.thinking && i >= plan.keep_from) {
    out.control(tokens_.think);
    out.text(turn.message->reasoning.value_or(std::string()));
  }
  out.control(tokens_.think_end);
  write_content(turn, out);
  if (!turn.message->tool_calls.empty()) write_calls(turn.message->tool_calls, out);
  out.control(tokens_.eos);
  if (turn.message->task == Task::kTitle) out.control(tokens_.tasks[static_cast<size_t>(Task::kTitle)]);
}

// The last turn, left open. Without content the reasoning is what goes on.
void DialectRenderer::write_continued(const Plan& plan, const Turn& turn, Writer& out) const {
  out.control(tokens_.assistant);
  out.prompt.syntax.trim_start = false;
  if (plan.thinking) {
    out.control(tokens_.think);
    out.text(turn.message->reasoning.value_or(std::string()));
    if (turn.content.empty()) {
      out.prompt.syntax.start = AnswerSyntax::Start::kReasoning;
      return;
    }
  }
  out.control(tokens_.think_end);
  out.text(turn.content);
}

void DialectRenderer::write_tail(const Plan& plan, Writer& out) const {
  const Conversation& conversation = plan.conversation;
  const Task task = conversation.messages.empty() ? Task::kNone : conversation.messages.back().task;
  if (task != Task::kNone && task != Task::kAction) return;  // the task token asks
  out.control(tokens_.assistant);
  out.control(plan.thinking ? tokens_.think : tokens_.think_end);
  if (plan.thinking) out.prompt.syntax.start = AnswerSyntax::Start::kReasoning;
  if (task == Task::kAction) out.control(tokens_.tasks[static_cast<size_t>(task)]);
  if (conversation.tool_choice == ToolChoice::kRequired && conversation.tools_active()) {
    out.text("\n\n");
    write_tag("<", rules_.names.block, out);
    out.text(">\n");
    out.prompt.syntax.start = AnswerSyntax::Start::kToolCalls;
  }
}

// Tasks are an extension whose tokens not every vocabulary has.
Result<> DialectRenderer::check_tasks(const Conversation& conversation) const {
  for (const Message& message : conversation.messages) {
    if (message.task == Task::kNone) continue;
    const bool fits = message.role == (message.task == Task::kTitle ? Role::kAssistant : Role::kUser);
    if (!fits || &message != &conversation.messages.back()) {
      return Error{Code::kInvalidArgument, "a task is for the last message: title an assistant's, the others a user's"};
    }
    if (!active(tokens_.tasks[static_cast<size_t>(message.task)]) || (message.task == Task::kReadUrl && !active(tokens_.extracted_url))) {
      return Error{Code::kInvalidArgument, "this model's vocabulary has no token for this task"};
    }
  }
  return {};
}

void declare_tools(const Conversation& conversation, AnswerSyntax& syntax) {
  for (const ToolDefinition& tool : conversation.tools) {
    DeclaredTool declared{.name = tool.name};
    const boost::json::object* parameters = tool.parameters.if_object();
    const boost::json::value* properties = parameters != nullptr ? parameters->if_contains("properties") : nullptr;
    if (properties != nullptr && properties->is_object()) {
      for (const auto& [name, schema] : properties->get_object()) declared.properties.emplace_back(name);
    }
    syntax.tools.push_back(std::move(declared));
  }
}

}  // namespace

Result<Prompt> DialectRenderer::render(const Conversation& conversation) const {
  DI_TRY(check_tasks(conversation));
  const Plan plan = this->plan(conversation);
  Writer out(conversation.images);
  out.prompt.segments.reserve(8 + 6 * plan.turns.size());
  AnswerSyntax& syntax = out.prompt.syntax;
  syntax.trim_start = true;
  syntax.hides_added_tokens = true;
  syntax.parse_json = conversation.response_format.kind == ResponseFormat::Kind::kJsonObject;
  syntax.parse_tool_calls = conversation.tools_active();
  if (syntax.parse_tool_calls) declare_tools(conversation, syntax);

  out.control(tokens_.bos);
  const std::string effort = plan.thinking ? effort_text(rules_.dialect, conversation) : std::string();
  const bool system_first = !plan.turns.empty() && plan.turns.front().role == Role::kSystem;
  if (rules_.system == SystemPlacement::kInPlace && (!effort.empty() || system_first)) out.control(tokens_.system);
  out.text(effort);
  bool open = false;
  for (size_t i = 0; i < plan.turns.size(); ++i) {
    const Turn& turn = plan.turns[i];
    switch (turn.role) {
      case Role::kSystem:
      case Role::kDeveloper:
        if (i > 0) out.control(tokens_.system);
        write_content(turn, out);
        if (i == 0) write_additions(conversation, out);
        break;
      case Role::kUser: write_user(plan, i, out); break;
      case Role::kTool:
        write_user_prefix(plan, i, out);
        out.reserve_text(turn.content.size() + 32);
        out.text("<tool_result>");
        write_content(turn, out);
        out.text("</tool_result>");
        break;
      case Role::kLatestReminder:
        out.control(tokens_.reminder);
        write_content(turn, out);
        break;
      case Role::kAssistant:
        open = turn.message->prefix;
        if (open) {
          write_continued(plan, turn, out);
        } else {
          write_assistant(plan, i, out);
        }
        break;
    }
  }
  if (!open) write_tail(plan, out);
  if (syntax.parse_json && syntax.start == AnswerSyntax::Start::kAnswer) syntax.start = AnswerSyntax::Start::kJson;
  return std::move(out.prompt);
}

Result<std::unique_ptr<PromptRenderer>> make_dialect_renderer(Dialect dialect, const tokenizer::Tokenizer& tokenizer,
                                                              const DialectOptions& options) {
  const DialectRules& rules = rules_of(dialect);
  std::string missing;
  const auto optional = [&](std::string_view spelling) { return Control{tokenizer.special_id(spelling).value_or(-1), spelling}; };
  const auto required = [&](std::string_view spelling) {
    const Control token = optional(spelling);
    if (token.id < 0 && missing.empty()) missing = spelling;
    return token;
  };
  const bool v41 = dialect == Dialect::kV41;
  Tokens tokens{.bos = required(spelling::kBos),
                .eos = required(spelling::kEos),
                .user = required(spelling::kUser),
                .assistant = required(spelling::kAssistant),
                .system = v41 ? required(spelling::kSystem) : Control{},
                .reminder = required(spelling::kReminder),
                .think = required(spelling::kThink),
                .think_end = required(spelling::kThinkEnd),
                .dsml = required(spelling::kDsml),
                .image = v41 ? required(spelling::kImage) : Control{},
                .extracted_url = optional(spelling::kExtractedUrl),
                .tasks = {}};
  for (size_t i = 1; i < tokens.tasks.size(); ++i) tokens.tasks[i] = optional(kTaskSpellings[i]);
  if (!missing.empty()) {
    return Error{Code::kUnsupported, "the vocabulary has no token " + missing + ", without which the dialect " +
                                         std::string(dialect_name(dialect)) + " cannot be written"};
  }
  return std::unique_ptr<PromptRenderer>(std::make_unique<DialectRenderer>(rules, tokens, options));
}

}  // namespace deepinfer::recipe
