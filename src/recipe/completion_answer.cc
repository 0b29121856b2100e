// text_completion, whole and in chunks. Reasoning is text here like any other: these requests have no conversation.
#include <boost/json/value.hpp>

#include "recipe/choices_answer.h"

namespace deepinfer::recipe {
namespace json = boost::json;
namespace {

int64_t num_code_points(std::string_view text) {
  int64_t count = 0;
  for (const char c : text) count += (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  return count;
}

class CompletionAnswer final : public ChoicesAnswer {
 public:
  CompletionAnswer(AnswerInfo info, const tokenizer::Tokenizer& tokenizer) : ChoicesAnswer(std::move(info), tokenizer) {}

 protected:
  std::string_view object_name() const override { return "text_completion"; }

  void collect(Choice& choice, const OutputEvent& event) override {
    choice.text += event.text;
    choice.tokens.insert(choice.tokens.end(), event.tokens.begin(), event.tokens.end());
    if (!choice.detokenizer) choice.detokenizer.emplace(tokenizer());
    // A token in the middle of a character begins where that does.
    for (const TokenEvent& token : event.tokens) {
      std::string text;
      choice.offsets.push_back(choice.next_offset);
      choice.detokenizer->push(token.token, text);
      choice.next_offset += num_code_points(text);
    }
  }

  json::value first_chunk(const Choice&, int32_t) const override { return nullptr; }

  json::value delta_chunk(const Choice& choice, int32_t index, const OutputEvent& event) const override {
    json::value logprobs;
    if (info().logprobs) logprobs = token_lists(choice, choice.tokens.size() - event.tokens.size());  // which are the last ones
    return entry(index, event.text, std::move(logprobs), nullptr);
  }

  json::value finish_chunk(const Choice& choice, int32_t index) const override {
    return entry(index, "", nullptr, json::value(choice.finish_reason));
  }

  json::value whole_choice(const Choice& choice, int32_t index) const override {
    json::value logprobs = info().logprobs ? token_lists(choice, 0) : json::value();
    return entry(index, choice.text, std::move(logprobs), json::value(choice.finish_reason));
  }

 private:
  static json::value entry(int32_t index, std::string_view text, json::value logprobs, json::value finish_reason) {
    json::object out;
    out["index"] = index;
    out["text"] = text;
    out["logprobs"] = std::move(logprobs);
    out["finish_reason"] = std::move(finish_reason);
    return out;
  }

  // Parallel lists of the choice's tokens from `begin` on.
  json::value token_lists(const Choice& choice, size_t begin) const {
    json::array tokens, token_logprobs, top_logprobs, text_offset;
    for (size_t i = begin; i < choice.tokens.size(); ++i) {
      const TokenEvent& event = choice.tokens[i];
      tokens.push_back(json::value(token_text(event.token, tokenizer())));
      token_logprobs.push_back(finite_logprob(event.logprob));
      text_offset.push_back(choice.offsets[i]);
      json::object top;
      for (int32_t k = 0; k < event.num_top; ++k) {
        const TokenLogprob& other = event.top[static_cast<size_t>(k)];
        top[token_text(other.token, tokenizer())] = finite_logprob(other.logprob);
      }
      top_logprobs.push_back(std::move(top));
    }
    json::object out;
    out["tokens"] = std::move(tokens);
    out["token_logprobs"] = std::move(token_logprobs);
    out["top_logprobs"] = std::move(top_logprobs);
    out["text_offset"] = std::move(text_offset);
    return out;
  }
};

}  // namespace

std::unique_ptr<Answer> make_completion_answer(AnswerInfo info, const tokenizer::Tokenizer& tokenizer) {
  return std::make_unique<CompletionAnswer>(std::move(info), tokenizer);
}

}  // namespace deepinfer::recipe
