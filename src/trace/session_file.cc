#include "trace/session_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <unordered_map>
#include <utility>

#include "trace/request_body.h"

namespace deepinfer::trace {
namespace {

using recipe::Conversation;
using recipe::Message;

class ClaudeCodeFile final : public SessionFile {
 public:
  void finish(const std::function<void(LogRecord)>& take) override {
    shown_for_.assign(turns_.size(), -1);
    for (size_t i = 0; i < calls_.size(); ++i) {
      const Call& call = calls_[i];
      LogRecord record;
      record.format = LogFormat::kClaudeCode;
      record.incomplete = true;
      record.tenant = call.tenant;
      record.session = call.session;
      record.model = call.model;
      record.call_id = call.id;
      record.usage = call.usage;
      record.time_us = call.time_us;
      Conversation conversation = conversation_before(static_cast<int32_t>(i));
      if (conversation.messages.empty()) continue;
      record.prompt = std::move(conversation);
      take(std::move(record));
    }
  }

 protected:
  std::optional<Skip> add(const Json& line) override {
    const std::string_view type = text_of(member(line, "type"));
    const std::string uuid(text_of(member(line, "uuid")));
    if (uuid.empty()) return Skip::kSessionLine;
    const auto parent = ids_.find(std::string(text_of(member(line, "parentUuid"))));
    const auto number = static_cast<int32_t>(turns_.size());
    Turn turn;
    turn.parent = parent != ids_.end() ? parent->second : -1;
    turn.time_us = time_of(line);
    const MaybeJson message = member(line, "message");
    std::optional<Skip> skip = Skip::kSessionLine;
    if (type == "user" && message) {
      Conversation one;
      append_anthropic_message("user", member(message, "content"), one);
      turn.messages = std::move(one.messages);
      if (!turn.messages.empty() && turn.messages.front().role == recipe::Role::kTool && turn.parent >= 0) {
        turns_[static_cast<size_t>(turn.parent)].results.push_back(number);
      }
    } else if (type == "assistant" && message && !member(line, "isApiErrorMessage")) {
      Message answer{.role = recipe::Role::kAssistant, .null_content = true};
      append_assistant_blocks(member(message, "content"), answer);
      turn.messages.push_back(std::move(answer));
      // What the agent says in the model's name is of no call.
      if (text_of(member(message, "model")) != "<synthetic>") {
        turn.answer = add_call(line, *message, turn);
        calls_[static_cast<size_t>(turn.answer)].lines.push_back(number);
        skip.reset();
      }
    }
    ids_[uuid] = number;
    turns_.push_back(std::move(turn));
    return skip;
  }

 private:
  struct Turn {
    int32_t parent = -1;
    int32_t answer = -1;           // number of the call whose answer this is
    std::optional<int64_t> time_us;
    std::vector<Message> messages;
    std::vector<int32_t> results;  // of this line's tool calls: turns whose parent it is
  };
  struct Call {
    int32_t parent;
    std::string id, tenant, session, model;
    LoggedUsage usage;
    std::optional<int64_t> time_us;
    std::vector<int32_t> lines;  // of its answer
  };

  // What the model was shown before it answered. Each result of parallel tool calls hangs under the line of its own call, so that the way up
  // from the next turn passes one of them only: where it meets an answer, the whole answer is shown and all results behind it.
  Conversation conversation_before(int32_t number) {
    std::vector<int32_t> chain;
    // A damaged file may hold a circle: no chain is longer than the file.
    for (int32_t at = calls_[static_cast<size_t>(number)].parent; at >= 0 && chain.size() <= turns_.size(); at = turns_[static_cast<size_t>(at)].parent) {
      chain.push_back(at);
    }
    std::reverse(chain.begin(), chain.end());
    Conversation out;
    const auto show = [&](int32_t turn) { return std::exchange(shown_for_[static_cast<size_t>(turn)], number) != number; };
    for (const int32_t at : chain) {
      const Turn& turn = turns_[static_cast<size_t>(at)];
      if (turn.answer >= 0 && turn.answer != number) {
        append_answer(calls_[static_cast<size_t>(turn.answer)], show, out);
      } else if (show(at)) {
        out.messages.insert(out.messages.end(), turn.messages.begin(), turn.messages.end());
      }
    }
    return out;
  }

  template <class Show>
  void append_answer(const Call& call, const Show& show, Conversation& out) const {
    bool begun = false;
    for (const int32_t line : call.lines) {
      if (!show(line)) return;  // shown already, as a whole
      for (const Message& message : turns_[static_cast<size_t>(line)].messages) {
        if (std::exchange(begun, true)) merge(message, out.messages.back());
        else out.messages.push_back(message);
      }
    }
    for (const int32_t line : call.lines) {
      for (const int32_t result : turns_[static_cast<size_t>(line)].results) {
        if (!show(result)) continue;
        const std::vector<Message>& messages = turns_[static_cast<size_t>(result)].messages;
        out.messages.insert(out.messages.end(), messages.begin(), messages.end());
      }
    }
  }

  // Lines of one answer are one message. A line that is written again, as some gateways' are, says nothing new.
  static void merge(const Message& from, Message& into) {
    if (!from.content.empty() && from.content != into.content) into.content += (into.content.empty() ? "" : "\n\n") + from.content;
    if (from.reasoning && from.reasoning != into.reasoning) into.reasoning = into.reasoning ? *into.reasoning + "\n\n" + *from.reasoning : *from.reasoning;
    into.null_content = into.null_content && from.null_content;
    for (const recipe::ToolCall& call : from.tool_calls) {
      const bool known = !call.id.empty() && std::any_of(into.tool_calls.begin(), into.tool_calls.end(), [&](const recipe::ToolCall& other) { return other.id == call.id; });
      if (!known) into.tool_calls.push_back(call);
    }
  }

  // The call that a line answers: a new one, or that of an earlier line with the same message id.
  int32_t add_call(const Json& line, const Json& message, const Turn& turn) {
    const std::string id(text_of(member(message, "id")));
    const auto [at, fresh] = call_of_.try_emplace(id.empty() ? "line " + std::to_string(turns_.size()) : id, static_cast<int32_t>(calls_.size()));
    if (fresh) {
      Call call{.parent = turn.parent};
      // A copy of it in another file, as resumed and forked sessions have them, tells the same.
      const std::string_view request(text_of(member(line, "requestId"))), when(text_of(member(line, "timestamp")));
      if (!id.empty()) call.id = fmt::format("{} {}", id, request.empty() ? when : request);
      call.tenant = tenant_of(line);
      call.session = text_of(member(line, "sessionId"));
      // A subagent's lines bear the session that it was started from.
      if (const std::string_view agent = text_of(member(line, "agentId")); !agent.empty()) call.session.append("/").append(agent);
      call.model = text_of(member(message, "model"));
      // The request left when the turn before the answer was written.
      call.time_us = turn.parent >= 0 && turns_[static_cast<size_t>(turn.parent)].time_us ? turns_[static_cast<size_t>(turn.parent)].time_us : turn.time_us;
      calls_.push_back(std::move(call));
    }
    read_usage(member(message, "usage"), calls_[static_cast<size_t>(at->second)].usage);  // the last line's counts are the final ones
    return at->second;
  }

  std::vector<Turn> turns_;
  std::vector<Call> calls_;
  std::vector<int32_t> shown_for_;  // by turn: the last call whose prompt it was put into
  std::unordered_map<std::string, int32_t> ids_, call_of_;
};

class CodexFile final : public SessionFile {
 public:
  void finish(const std::function<void(LogRecord)>& take) override {
    for (Call& call : calls_) {
      Conversation conversation;
      const std::vector<Message>& history = histories_[call.history];
      conversation.messages.assign(history.begin(), history.begin() + static_cast<ptrdiff_t>(call.num_messages));
      call.record.prompt = std::move(conversation);
      take(std::move(call.record));
    }
    calls_.clear();
  }

 protected:
  std::optional<Skip> add(const Json& line) override {
    const std::string_view type = text_of(member(line, "type"));
    const MaybeJson payload = member(line, "payload");
    if (const auto time = time_of(line)) time_us_ = time;
    if (std::string tenant = tenant_of(line); !tenant.empty()) tenant_ = std::move(tenant);  // some lines tell it, for all behind them
    if (type == "session_meta") {
      session_ = text_of(member(payload, "id"));
      const MaybeJson instructions = first_member(payload, {"base_instructions.text", "base_instructions", "instructions"});
      if (const std::string_view text = text_of(instructions); !text.empty()) {
        history().push_back({.role = recipe::Role::kSystem, .content = std::string(text)});
      }
      return Skip::kSessionLine;
    }
    if (type == "turn_context") {
      if (const std::string_view model = text_of(member(payload, "model")); !model.empty()) model_ = model;
      return Skip::kSessionLine;
    }
    if (type == "event_msg") return add_event(payload);
    if (type == "compacted") {
      // What stood before is replaced by its summary. Earlier calls keep what they saw.
      Conversation after;
      for (const Message& m : history()) {
        if (m.role == recipe::Role::kSystem || m.role == recipe::Role::kDeveloper) after.messages.push_back(m);
      }
      if (const MaybeJson replacement = member(payload, "replacement_history")) append_response_items(*replacement, after);
      else after.messages.push_back({.role = recipe::Role::kUser, .content = std::string(text_of(member(payload, "message")))});
      histories_.push_back(std::move(after.messages));
      answering_ = false;
      return Skip::kSessionLine;
    }
    if (type == "response_item" && payload) return add_item(*payload);
    return Skip::kSessionLine;
  }

 private:
  std::optional<Skip> add_event(const MaybeJson& payload) {
    if (text_of(member(payload, "type")) == "token_count" && !calls_.empty()) {
      read_usage(member_at(payload, "info.last_token_usage"), calls_.back().record.usage);
    }
    return Skip::kSessionLine;
  }

  std::optional<Skip> add_item(const Json& item) {
    const std::string_view type = text_of(member(item, "type"));
    if (type == "ghost_snapshot") return Skip::kSessionLine;  // the agent's own note, which no model is shown
    // A search that the provider ran stands within an answer.
    const bool answer = type == "reasoning" || type.ends_with("_call") || text_of(member(item, "role")) == "assistant";
    std::optional<Skip> skip = Skip::kSessionLine;
    if (answer && !answering_) {
      LogRecord record;
      record.format = LogFormat::kCodex;
      record.incomplete = true;
      record.tenant = tenant_;
      record.session = session_;
      record.model = model_;
      record.time_us = input_time_us_ ? input_time_us_ : time_us_;
      // A forked session begins with copies, written at another time. Short ids are of servers that count.
      if (const std::string_view id = text_of(first_member(item, {"id", "call_id"})); id.size() >= kLeastUniqueId) record.call_id = id;
      if (!history().empty()) {
        calls_.push_back({std::move(record), histories_.size() - 1, history().size()});
        skip.reset();
      }
    }
    Conversation added;
    bool open = false;
    append_response_item(item, added, open);
    const bool continues = answer && answering_ && !history().empty() && history().back().role == recipe::Role::kAssistant;
    for (Message& message : added.messages) {
      if (continues) merge(std::move(message), history().back());
      else history().push_back(std::move(message));
    }
    answering_ = answer;
    if (!answer) input_time_us_ = time_us_;
    return skip;
  }

  static void merge(Message from, Message& into) {
    if (!from.content.empty()) into.content += (into.content.empty() ? "" : "\n\n") + from.content;
    if (from.reasoning) into.reasoning = std::move(from.reasoning);
    into.null_content = into.null_content && from.null_content;
    into.tool_calls.insert(into.tool_calls.end(), from.tool_calls.begin(), from.tool_calls.end());
  }

  static constexpr size_t kLeastUniqueId = 20;

  struct Call {
    LogRecord record;
    size_t history, num_messages;  // its prompt: the first of that history's messages
  };
  std::vector<Message>& history() { return histories_.back(); }

  std::vector<std::vector<Message>> histories_ = std::vector<std::vector<Message>>(1);  // a new one with each compaction
  std::vector<Call> calls_;
  std::string tenant_, session_, model_;
  std::optional<int64_t> time_us_, input_time_us_;
  bool answering_ = false;
};

}  // namespace

std::optional<LogFormat> session_format(std::string_view line) {
  simdjson::dom::parser parser;
  Json value;
  if (parser.parse(line.data(), line.size(), true).get(value) != simdjson::SUCCESS || !value.is_object()) return std::nullopt;
  const std::string_view type = text_of(member(value, "type"));
  if (member(value, "payload") && (type == "session_meta" || type == "response_item" || type == "event_msg" || type == "turn_context" || type == "compacted")) {
    return LogFormat::kCodex;
  }
  const bool claude_type = type == "user" || type == "assistant" || type == "system" || type == "attachment" || type == "progress";
  if (member(value, "uuid") && member(value, "sessionId") && claude_type) return LogFormat::kClaudeCode;
  if (type == "file-history-snapshot" || type == "queue-operation" || (type == "summary" && member(value, "leafUuid"))) return LogFormat::kClaudeCode;
  return std::nullopt;
}

std::unique_ptr<SessionFile> SessionFile::create(LogFormat format, const ParserOptions& options) {
  std::unique_ptr<SessionFile> out;
  if (format == LogFormat::kClaudeCode) out = std::make_unique<ClaudeCodeFile>();
  else out = std::make_unique<CodexFile>();
  out->options_ = options;
  return out;
}

std::optional<int64_t> SessionFile::time_of(const Json& line) const { return time_us_of(member_at(line, options_.time_field.empty() ? "timestamp" : options_.time_field)); }

std::string SessionFile::tenant_of(const Json& line) const { return options_.tenant_field.empty() ? "" : name_of(member_at(line, options_.tenant_field)); }

std::optional<Skip> SessionFile::add_line(std::string_view text) {
  Json value;
  const simdjson::error_code error = parser_.parse(text.data(), text.size(), false).get(value);
  if (error == simdjson::DEPTH_ERROR) return Skip::kTooDeep;
  if (error != simdjson::SUCCESS || !value.is_object()) return Skip::kNotJson;
  return add(value);
}

}  // namespace deepinfer::trace
