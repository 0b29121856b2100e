#include "recipe/messages_answer.h"

#include <fmt/format.h>

#include <boost/json/serialize.hpp>
#include <boost/json/value.hpp>

#include "recipe/json_text.h"

namespace deepinfer::recipe {
namespace json = boost::json;
namespace {

using Kind = OutputEvent::Kind;

// Names of clients' SDKs: `ping` may come anywhere, but message_start must be the first event that means something.
constexpr std::string_view kPing = "event: ping\ndata: {\"type\":\"ping\"}\n\n";

std::string_view stop_reason(Ending ending) {
  switch (ending) {
    case Ending::kStopString: return "stop_sequence";
    case Ending::kLength: return "max_tokens";
    case Ending::kContext: return "model_context_window_exceeded";
    case Ending::kFilter: return "refusal";
    case Ending::kToolCalls: return "tool_use";
    case Ending::kCancelled:
    case Ending::kStop: break;
  }
  return "end_turn";
}

json::object messages_usage(const Usage& usage, int32_t completion_tokens) {
  json::object out;
  out["input_tokens"] = usage.prompt_tokens - usage.cached_tokens;
  out["cache_read_input_tokens"] = usage.cached_tokens;
  out["cache_creation_input_tokens"] = 0;
  out["output_tokens"] = completion_tokens;
  return out;
}

// The arguments of a call as the text of an object, digit by digit what the model wrote. What a limit cut in the middle is none; the stream had
// the pieces.
std::string_view input_text(std::string_view arguments) {
  return json_members(arguments, NumberStyle::kPython) ? arguments : "{}";
}

class MessagesAnswer final : public Answer {
 public:
  MessagesAnswer(AnswerInfo info, const tokenizer::Tokenizer& tokenizer) : Answer(std::move(info), tokenizer) {
    if (this->info().starts_in_reasoning && !this->info().stream) open({.type = Type::kThinking}, unsent_);
  }

  void begin_stream(const Usage& prompt, std::string& out) override {
    begun_ = true;
    json::object message = envelope();
    message["usage"] = messages_usage(prompt, 0);
    send(out, "message_start", {{"message", std::move(message)}});
    if (info().starts_in_reasoning) open({.type = Type::kThinking}, out);
  }

  void end_stream(std::string& out) override {
    json::object delta{{"stop_reason", stop_reason(ending_)}, {"stop_sequence", stop_sequence()}};
    send(out, "message_delta", {{"delta", std::move(delta)}, {"usage", whole_usage()}});
    send(out, "message_stop", {});
  }

  void fail_stream(const json::object& error, std::string_view, std::string& out) override { append_sse("error", error, out); }
  std::string_view keep_alive() const override { return begun_ ? kPing : kSseKeepAlive; }

  std::string body() const override {
    json::object out = envelope();
    out["stop_reason"] = stop_reason(ending_);
    out["stop_sequence"] = stop_sequence();
    out["usage"] = whole_usage();
    std::string content;
    for (const Block& block : blocks_) {
      if (!content.empty()) content += ',';
      content += block.type == Type::kToolUse ? text_with_member(whole(block), "input", input_text(block.text)) : json::serialize(whole(block));
    }
    return text_with_member(out, "content", '[' + content + ']');
  }

  std::string_view finish_reason() const override { return finished() ? stop_reason(ending_) : std::string_view(); }

 protected:
  void write(int32_t, const OutputEvent& event, std::string& out) override {
    std::string& sink = info().stream ? out : unsent_;
    switch (event.kind) {
      case Kind::kReasoning: fill(Type::kThinking, "thinking_delta", "thinking", event.text, sink); break;
      case Kind::kContent: fill(Type::kText, "text_delta", "text", event.text, sink); break;
      case Kind::kCallStart:
        open({.type = Type::kToolUse, .id = fmt::format("toolu_{}_{}", id_stem(), event.call), .name = event.text}, sink);
        break;
      case Kind::kArguments: fill(Type::kToolUse, "input_json_delta", "partial_json", event.text, sink); break;
      case Kind::kCallEnd: break;  // the next block, or the end, closes it
      case Kind::kFinished:
        ending_ = ending_of(event);
        stop_string_ = event.stop_string;
        close(sink);
        break;
    }
    unsent_.clear();
  }

 private:
  enum class Type : uint8_t { kThinking, kText, kToolUse };
  struct Block {
    Type type;
    std::string id, name;  // kToolUse
    std::string text;      // kToolUse: the arguments
  };

  json::object envelope() const {
    json::object out;
    out["id"] = info().id;
    out["type"] = "message";
    out["role"] = "assistant";
    out["model"] = info().model;
    out["content"] = json::array();
    out["stop_reason"] = nullptr;
    out["stop_sequence"] = nullptr;
    return out;
  }

  json::value stop_sequence() const { return ending_ == Ending::kStopString ? json::value(*stop_string_) : json::value(); }

  json::object whole_usage() const {
    json::object out = messages_usage(usage(), usage().completion_tokens);
    out["output_tokens_details"] = json::object{{"thinking_tokens", reasoning_tokens()}};
    return out;
  }

  // But for the input of a call.
  json::object whole(const Block& block) const {
    switch (block.type) {
      case Type::kThinking: return {{"type", "thinking"}, {"thinking", block.text}, {"signature", info().id}};
      case Type::kText: return {{"type", "text"}, {"text", block.text}};
      case Type::kToolUse: break;
    }
    return {{"type", "tool_use"}, {"id", block.id}, {"name", block.name}, {"input", json::object()}};
  }

  // A block as it stands in content_block_start.
  json::object empty(const Block& block) const {
    json::object out = whole(block);
    if (block.type == Type::kThinking) out["signature"] = "";
    return out;
  }

  void open(Block block, std::string& out) {
    close(out);
    blocks_.push_back(std::move(block));
    open_ = true;
    send(out, "content_block_start", {{"index", blocks_.size() - 1}, {"content_block", empty(blocks_.back())}});
    if (blocks_.size() == 1) out += kPing;
  }

  void close(std::string& out) {
    if (!open_) return;
    open_ = false;
    if (blocks_.back().type == Type::kThinking) send_delta(out, {{"type", "signature_delta"}, {"signature", info().id}});
    send(out, "content_block_stop", {{"index", blocks_.size() - 1}});
  }

  void fill(Type type, std::string_view delta_type, std::string_view member, const std::string& text, std::string& out) {
    if (!open_ || blocks_.back().type != type) open({.type = type}, out);
    blocks_.back().text += text;
    send_delta(out, {{"type", delta_type}, {member, text}});
  }

  void send_delta(std::string& out, json::object delta) {
    send(out, "content_block_delta", {{"index", blocks_.size() - 1}, {"delta", std::move(delta)}});
  }

  void send(std::string& out, std::string_view type, json::object data) const {
    if (!info().stream) return;
    json::object whole{{"type", type}};
    for (auto& [key, value] : data) whole[key] = std::move(value);
    append_sse(type, whole, out);
  }

  std::vector<Block> blocks_;
  bool open_ = false, begun_ = false;
  Ending ending_ = Ending::kStop;
  std::optional<std::string> stop_string_;
  std::string unsent_;  // complete answers: events that nobody is sent
};

}  // namespace

std::unique_ptr<Answer> make_messages_answer(AnswerInfo info, const tokenizer::Tokenizer& tokenizer) {
  return std::make_unique<MessagesAnswer>(std::move(info), tokenizer);
}

}  // namespace deepinfer::recipe
