// chat.completion and chat.completion.chunk. A choice is "thinking" when its prompt ended inside an open <think>, or when the first
// thing that came out was reasoning; only then do its deltas carry reasoning_content.
#include <fmt/format.h>

#include <boost/json/value.hpp>

#include "recipe/choices_answer.h"

namespace deepinfer::recipe {
namespace json = boost::json;
namespace {

using Kind = OutputEvent::Kind;

json::value nullable(const json::array& list) { return list.empty() ? json::value() : json::value(list); }

json::value logprobs_json(const json::array& content, const json::array& reasoning, bool thinking) {
  json::object out;
  out["content"] = nullable(content);
  if (thinking) out["reasoning_content"] = nullable(reasoning);
  out["refusal"] = nullptr;
  return out;
}

class ChatAnswer final : public ChoicesAnswer {
 public:
  ChatAnswer(AnswerInfo info, const tokenizer::Tokenizer& tokenizer) : ChoicesAnswer(std::move(info), tokenizer) {}

 protected:
  std::string_view object_name() const override { return info().stream ? "chat.completion.chunk" : "chat.completion"; }

  void collect(Choice& choice, const OutputEvent& event) override {
    switch (event.kind) {
      case Kind::kReasoning: choice.reasoning += event.text; break;
      case Kind::kContent: choice.text += event.text; break;
      case Kind::kCallStart: choice.calls.push_back({.id = fmt::format("call_{}_{}", id_stem(), num_calls_++), .name = event.text}); break;
      case Kind::kArguments: choice.calls.back().arguments += event.text; break;
      default: break;
    }
    if (!info().logprobs) return;
    json::array& list = event.kind == Kind::kReasoning ? choice.reasoning_logprobs : choice.logprobs;
    for (json::value& token : token_logprobs_json(event.tokens, tokenizer())) list.push_back(std::move(token));
  }

  json::value first_chunk(const Choice& choice, int32_t index) const override {
    json::object delta{{"role", "assistant"}};
    if (choice.thinking) {
      delta["content"] = nullptr;
      delta["reasoning_content"] = "";
    } else {
      delta["content"] = "";
    }
    return chunk(index, std::move(delta), nullptr, nullptr);
  }

  json::value delta_chunk(const Choice& choice, int32_t index, const OutputEvent& event) const override {
    json::object delta;
    json::value logprobs;
    switch (event.kind) {
      case Kind::kReasoning:
        delta["content"] = nullptr;
        delta["reasoning_content"] = event.text;
        if (info().logprobs) logprobs = logprobs_json({}, token_logprobs_json(event.tokens, tokenizer()), true);
        break;
      case Kind::kContent:
        delta["content"] = event.text;
        if (choice.thinking) delta["reasoning_content"] = nullptr;
        if (info().logprobs) logprobs = logprobs_json(token_logprobs_json(event.tokens, tokenizer()), {}, choice.thinking);
        break;
      case Kind::kCallStart:  // id, type and name come once: client libraries concatenate what comes again
        delta["tool_calls"] = json::array{{{"index", event.call},
                                           {"id", choice.calls.back().id},
                                           {"type", "function"},
                                           {"function", {{"name", event.text}, {"arguments", ""}}}}};
        break;
      case Kind::kArguments:
        delta["tool_calls"] = json::array{{{"index", event.call}, {"function", {{"arguments", event.text}}}}};
        break;
      default: return nullptr;
    }
    return chunk(index, std::move(delta), std::move(logprobs), nullptr);
  }

  json::value finish_chunk(const Choice& choice, int32_t index) const override {
    return chunk(index, json::object{{"content", ""}}, nullptr, json::value(choice.finish_reason));
  }

  json::value whole_choice(const Choice& choice, int32_t index) const override {
    json::object message{{"role", "assistant"}};
    message["content"] = choice.text.empty() && !choice.calls.empty() ? json::value() : json::value(choice.text);
    if (choice.thinking) message["reasoning_content"] = choice.reasoning;
    if (!choice.calls.empty()) {
      json::array& calls = message["tool_calls"].emplace_array();
      for (const Call& call : choice.calls) {
        calls.push_back({{"id", call.id}, {"type", "function"}, {"function", {{"name", call.name}, {"arguments", call.arguments}}}});
      }
    }
    json::object out{{"index", index}, {"message", std::move(message)}};
    out["logprobs"] = info().logprobs ? logprobs_json(choice.logprobs, choice.reasoning_logprobs, choice.thinking) : json::value();
    out["finish_reason"] = choice.finish_reason;
    return out;
  }

 private:
  static json::value chunk(int32_t index, json::object delta, json::value logprobs, json::value finish_reason) {
    json::object out;
    out["index"] = index;
    out["delta"] = std::move(delta);
    out["logprobs"] = std::move(logprobs);
    out["finish_reason"] = std::move(finish_reason);
    return out;
  }

  int32_t num_calls_ = 0;  // of all choices: ids are unique in an answer
};

}  // namespace

std::unique_ptr<Answer> make_chat_answer(AnswerInfo info, const tokenizer::Tokenizer& tokenizer) {
  return std::make_unique<ChatAnswer>(std::move(info), tokenizer);
}

}  // namespace deepinfer::recipe
