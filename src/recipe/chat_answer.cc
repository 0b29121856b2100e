// chat.completion and chat.completion.chunk. A choice is "thinking" when its prompt ended inside an open <think>, or when the first
// thing that came out was reasoning; only then do its deltas carry reasoning_content.
#include <boost/json/value.hpp>

#include "recipe/answer.h"

namespace deepinfer::recipe {
namespace json = boost::json;
namespace {

json::value nullable(const json::array& list) { return list.empty() ? json::value() : json::value(list); }

json::value logprobs_json(const json::array& content, const json::array& reasoning, bool thinking) {
  json::object out;
  out["content"] = nullable(content);
  if (thinking) out["reasoning_content"] = nullable(reasoning);
  out["refusal"] = nullptr;
  return out;
}

class ChatAnswer final : public Answer {
 public:
  ChatAnswer(AnswerInfo info, const tokenizer::Tokenizer& tokenizer) : Answer(std::move(info), tokenizer) {}

 protected:
  std::string_view object_name() const override { return info().stream ? "chat.completion.chunk" : "chat.completion"; }

  json::value first_chunk(Choice& choice, int32_t index) const override {
    json::object delta{{"role", "assistant"}};
    if (choice.thinking) {
      delta["content"] = nullptr;
      delta["reasoning_content"] = "";
    } else {
      delta["content"] = "";
    }
    return chunk(index, std::move(delta), nullptr, nullptr);
  }

  json::value delta_chunk(Choice& choice, int32_t index, const OutputEvent& event) const override {
    const bool reasoning = event.kind == OutputEvent::Kind::kReasoning;
    json::object delta;
    if (reasoning) {
      delta["content"] = nullptr;
      delta["reasoning_content"] = event.text;
    } else {
      delta["content"] = event.text;
      if (choice.thinking) delta["reasoning_content"] = nullptr;
    }
    json::value logprobs;
    if (info().logprobs) {
      const json::array tokens = token_list(event);
      logprobs = reasoning ? logprobs_json({}, tokens, true) : logprobs_json(tokens, {}, choice.thinking);
    }
    return chunk(index, std::move(delta), std::move(logprobs), nullptr);
  }

  json::value finish_chunk(Choice& choice, int32_t index) const override {
    return chunk(index, json::object{{"content", ""}}, nullptr, json::value(choice.finish_reason));
  }

  void collect(Choice& choice, const OutputEvent& event) const override {
    const bool reasoning = event.kind == OutputEvent::Kind::kReasoning;
    (reasoning ? choice.reasoning : choice.text) += event.text;
    if (!info().logprobs) return;
    json::array& list = reasoning ? choice.reasoning_logprobs : choice.logprobs;
    for (json::value& token : token_list(event)) list.push_back(std::move(token));
  }

  json::value whole_choice(const Choice& choice, int32_t index) const override {
    json::object message{{"role", "assistant"}, {"content", choice.text}};
    if (choice.thinking) message["reasoning_content"] = choice.reasoning;
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

  json::array token_list(const OutputEvent& event) const {
    json::array out;
    for (const TokenEvent& token : event.tokens) {
      json::object entry = token_logprob_json(token.token, token.logprob, tokenizer());
      json::array top;
      for (int32_t i = 0; i < token.num_top; ++i) {
        const TokenLogprob& other = token.top[static_cast<size_t>(i)];
        top.push_back(token_logprob_json(other.token, other.logprob, tokenizer()));
      }
      entry["top_logprobs"] = std::move(top);
      out.push_back(std::move(entry));
    }
    return out;
  }
};

}  // namespace

std::unique_ptr<Answer> make_chat_answer(AnswerInfo info, const tokenizer::Tokenizer& tokenizer) {
  return std::make_unique<ChatAnswer>(std::move(info), tokenizer);
}

}  // namespace deepinfer::recipe
