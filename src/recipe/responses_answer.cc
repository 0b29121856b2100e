#include "recipe/responses_answer.h"

#include <fmt/format.h>

#include <boost/json/serialize.hpp>
#include <boost/json/value.hpp>
#include <chrono>
#include <optional>

#include "recipe/custom_input.h"

namespace deepinfer::recipe {
namespace json = boost::json;
namespace {

using Kind = OutputEvent::Kind;

int64_t unix_now() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string_view incomplete_reason(Ending ending) {
  switch (ending) {
    case Ending::kLength:
    case Ending::kContext: return "max_output_tokens";
    case Ending::kFilter: return "content_filter";
    default: return {};
  }
}

json::object responses_usage(const Usage& usage, int32_t reasoning_tokens) {
  json::object out;
  out["input_tokens"] = usage.prompt_tokens;
  out["input_tokens_details"] = json::object{{"cached_tokens", usage.cached_tokens}, {"cache_write_tokens", 0}};
  out["output_tokens"] = usage.completion_tokens;
  out["output_tokens_details"] = json::object{{"reasoning_tokens", reasoning_tokens}};
  out["total_tokens"] = usage.prompt_tokens + usage.completion_tokens;
  return out;
}

class ResponsesAnswer final : public Answer {
 public:
  ResponsesAnswer(AnswerInfo info, const tokenizer::Tokenizer& tokenizer) : Answer(std::move(info), tokenizer) {}

  void begin_stream(const Usage&, std::string& out) override {
    begun_ = true;
    send(out, "response.created", {{"response", skeleton("in_progress")}});
    send(out, "response.in_progress", {{"response", skeleton("in_progress")}});
  }

  // Clients know no event of a cancelled response; it is one that is not whole.
  void end_stream(std::string& out) override {
    send(out, status() == "completed" ? "response.completed" : "response.incomplete", {{"response", response()}});
  }

  void mark_unkept() override { kept_ = false; }

  void fail_stream(const json::object& error, std::string_view message, std::string& out) override {
    if (!begun_) {  // the head was sent early: there is no response yet that could fail
      json::object data = error.at("error").as_object();
      data.erase("type");
      return send(out, "error", std::move(data));
    }
    kept_ = false;  // what failed is not
    json::object response = skeleton("failed");
    for (const json::object& item : items_) response["output"].get_array().push_back(item);
    response["error"] = json::object{{"code", "server_error"}, {"message", message}};
    send(out, "response.failed", {{"response", std::move(response)}});
  }

  std::string body() const override { return json::serialize(response()); }

  std::string_view finish_reason() const override {
    if (!finished()) return {};
    const std::string_view reason = incomplete_reason(ending_);
    return reason.empty() ? status() : reason;
  }

 protected:
  void write(int32_t, const OutputEvent& event, std::string& out) override {
    switch (event.kind) {
      case Kind::kReasoning: text(Type::kReasoning, event, out); break;
      case Kind::kContent: text(Type::kMessage, event, out); break;
      case Kind::kCallStart: start_call(event, out); break;
      case Kind::kArguments: arguments(event.text, out); break;
      case Kind::kCallEnd: close("completed", out); break;
      case Kind::kFinished: finish(event, out); break;
    }
  }

 private:
  std::string_view status() const {
    if (!finished()) return "in_progress";
    if (ending_ == Ending::kCancelled) return "cancelled";
    return incomplete_reason(ending_).empty() ? "completed" : "incomplete";
  }

  json::object response() const {
    json::object out = skeleton(status());
    out["output"] = json::array(items_.begin(), items_.end());
    if (!finished()) return out;
    if (status() == "completed") out["completed_at"] = completed_at_;
    if (status() == "incomplete") out["incomplete_details"] = json::object{{"reason", incomplete_reason(ending_)}};
    out["usage"] = responses_usage(usage(), reasoning_tokens());
    return out;
  }

  enum class Type : uint8_t { kReasoning, kMessage, kCall, kCustomCall };
  // The item that is being made. One at a time: items are closed before the next opens.
  struct Open {
    Type type;
    json::object head;  // id, type and what else does not change
    std::string text;   // so far: text, arguments, input
    json::array logprobs;
    CustomInput input;  // kCustomCall
  };

  // The response but for its outcome, in the order in which its members are known.
  json::object skeleton(std::string_view status) const {
    const auto echoed = [&](const char* key) {
      const json::value* value = info().echo.if_contains(key);
      return value != nullptr ? *value : json::value();
    };
    json::object out;
    out["id"] = info().id;
    out["object"] = "response";
    out["created_at"] = info().created_unix_s;
    out["completed_at"] = nullptr;
    out["status"] = status;
    out["background"] = false;
    out["error"] = nullptr;
    out["incomplete_details"] = nullptr;
    for (const char* key : {"instructions", "max_output_tokens"}) out[key] = echoed(key);
    out["max_tool_calls"] = nullptr;
    out["metadata"] = echoed("metadata");
    out["model"] = info().model;
    out["output"] = json::array();
    for (const char* key : {"parallel_tool_calls", "previous_response_id", "prompt_cache_key", "reasoning", "safety_identifier"}) out[key] = echoed(key);
    out["service_tier"] = "default";
    for (const char* key : {"store", "temperature", "text", "tool_choice", "tools", "top_logprobs", "top_p"}) out[key] = echoed(key);
    out["truncation"] = "disabled";
    if (!kept_) out["store"] = false;
    out["usage"] = nullptr;
    out["user"] = echoed("user");
    return out;
  }

  void text(Type type, const OutputEvent& event, std::string& out) {
    if (!open_ || open_->type != type) open(type, text_head(type), out);
    open_->text += event.text;
    json::object delta = place();
    delta["delta"] = event.text;
    if (type == Type::kMessage) {
      json::array logprobs = info().logprobs ? token_logprobs_json(event.tokens, tokenizer()) : json::array();
      open_->logprobs.insert(open_->logprobs.end(), logprobs.begin(), logprobs.end());
      delta["logprobs"] = std::move(logprobs);
    }
    send(out, type == Type::kReasoning ? "response.reasoning_text.delta" : "response.output_text.delta", std::move(delta));
  }

  void start_call(const OutputEvent& event, std::string& out) {
    const ToolNames* names = nullptr;
    for (const ToolNames& candidate : info().tool_names) {
      if (candidate.name == event.text) names = &candidate;
    }
    const bool custom = names != nullptr && names->custom;
    json::object head{{"id", next_id(custom ? "ctc" : "fc")}, {"type", custom ? "custom_tool_call" : "function_call"}};
    head["call_id"] = fmt::format("call_{}_{}", id_stem(), event.call);
    head["name"] = names != nullptr ? names->client_name : event.text;
    if (names != nullptr && !names->name_space.empty()) head["namespace"] = names->name_space;
    open(custom ? Type::kCustomCall : Type::kCall, std::move(head), out, /*commentary=*/true);
  }

  void arguments(const std::string& piece, std::string& out) {
    std::string delta = piece;
    if (open_->type == Type::kCustomCall) {
      delta.clear();
      open_->input.push(piece, delta);
    }
    send_arguments(delta, out);
  }

  void send_arguments(const std::string& delta, std::string& out) {
    if (delta.empty()) return;
    open_->text += delta;
    send(out, open_->type == Type::kCustomCall ? "response.custom_tool_call_input.delta" : "response.function_call_arguments.delta",
         {{"item_id", open_->head.at("id")}, {"output_index", items_.size()}, {"delta", delta}});
  }

  void finish(const OutputEvent& event, std::string& out) {
    ending_ = ending_of(event);
    completed_at_ = unix_now();
    // An answer holds something, if only an empty message.
    if (!open_ && items_.empty()) open(Type::kMessage, text_head(Type::kMessage), out);
    close(status() == "completed" ? "completed" : "incomplete", out);
  }

  json::object text_head(Type type) {
    if (type == Type::kReasoning) return {{"id", next_id("rs")}, {"type", "reasoning"}, {"summary", json::array()}};
    return {{"id", next_id("msg")}, {"type", "message"}, {"role", "assistant"}};
  }

  std::string next_id(std::string_view prefix) const { return fmt::format("{}_{}_{}", prefix, id_stem(), items_.size() + (open_ ? 1 : 0)); }

  // commentary: what comes now is a call, so that a message before it was not the final one.
  void open(Type type, json::object head, std::string& out, bool commentary = false) {
    close("completed", out, commentary);
    open_ = Open{.type = type, .head = std::move(head)};
    json::object item = open_->head;
    switch (type) {
      case Type::kReasoning:
      case Type::kMessage: item["content"] = json::array(); break;  // parts are added by content_part.added
      case Type::kCall: item["arguments"] = ""; break;
      case Type::kCustomCall: item["input"] = ""; break;
    }
    item["status"] = "in_progress";
    send(out, "response.output_item.added", {{"output_index", items_.size()}, {"item", std::move(item)}});
    if (type == Type::kCall || type == Type::kCustomCall) return;
    json::object added = place();
    added["part"] = part("", {});
    send(out, "response.content_part.added", std::move(added));
  }

  void close(std::string_view status, std::string& out, bool commentary = false) {
    if (!open_) return;
    json::object item = open_->head;
    switch (open_->type) {
      case Type::kReasoning:
      case Type::kMessage: close_text(item, out); break;
      case Type::kCall:
        send(out, "response.function_call_arguments.done",
             {{"item_id", item.at("id")}, {"output_index", items_.size()}, {"name", item.at("name")}, {"arguments", open_->text}});
        item["arguments"] = open_->text;
        break;
      case Type::kCustomCall: {
        std::string rest;
        open_->input.finish(rest);
        send_arguments(rest, out);
        send(out, "response.custom_tool_call_input.done", {{"item_id", item.at("id")}, {"output_index", items_.size()}, {"input", open_->text}});
        item["input"] = open_->text;
        break;
      }
    }
    item["status"] = status;
    if (open_->type == Type::kMessage) item["phase"] = commentary ? "commentary" : "final_answer";
    if (open_->type == Type::kReasoning && info().seal) item["encrypted_content"] = info().seal(open_->text);
    send(out, "response.output_item.done", {{"output_index", items_.size()}, {"item", item}});
    items_.push_back(std::move(item));
    open_.reset();
  }

  void close_text(json::object& item, std::string& out) {
    const bool reasoning = open_->type == Type::kReasoning;
    const json::object whole = part(open_->text, open_->logprobs);
    json::object done = place();
    done["text"] = open_->text;
    if (!reasoning) done["logprobs"] = open_->logprobs;
    send(out, reasoning ? "response.reasoning_text.done" : "response.output_text.done", std::move(done));
    json::object part_done = place();
    part_done["part"] = whole;
    send(out, "response.content_part.done", std::move(part_done));
    item["content"] = json::array{whole};
  }

  json::object part(std::string_view text, json::array logprobs) const {
    if (open_->type == Type::kReasoning) return {{"type", "reasoning_text"}, {"text", text}};
    json::object out{{"type", "output_text"}, {"text", text}, {"annotations", json::array()}};
    out["logprobs"] = std::move(logprobs);
    return out;
  }

  // Where in the output the open item's only part is.
  json::object place() const { return {{"item_id", open_->head.at("id")}, {"output_index", items_.size()}, {"content_index", 0}}; }

  void send(std::string& out, std::string_view type, json::object data) {
    if (!info().stream) return;
    json::object whole{{"type", type}, {"sequence_number", num_sent_++}};
    for (auto& [key, value] : data) whole[key] = std::move(value);
    append_sse(type, whole, out);
  }

  std::vector<json::object> items_;
  std::optional<Open> open_;
  bool begun_ = false, kept_ = true;
  int64_t num_sent_ = 0, completed_at_ = 0;
  Ending ending_ = Ending::kStop;
};

}  // namespace

std::unique_ptr<Answer> make_responses_answer(AnswerInfo info, const tokenizer::Tokenizer& tokenizer) {
  return std::make_unique<ResponsesAnswer>(std::move(info), tokenizer);
}

}  // namespace deepinfer::recipe
