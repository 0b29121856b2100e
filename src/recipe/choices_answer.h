// Answers of Chat and text completions, which hold one or more choices and differ only in the shape of a choice.
#pragma once

#include <optional>

#include "recipe/answer.h"

namespace deepinfer::recipe {

class ChoicesAnswer : public Answer {
 public:
  void end_stream(std::string& out) override;
  void fail_stream(const boost::json::object& error, std::string_view message, std::string& out) override;
  std::string body() const override;
  std::string_view finish_reason() const override { return choices_.front().finish_reason; }

 protected:
  struct Call {
    std::string id, name, arguments;
  };
  struct Choice {
    bool started = false;   // the first chunk went out
    bool thinking = false;  // chat: reasoning_content is part of this choice
    std::string text, reasoning;
    std::vector<Call> calls;                          // chat
    boost::json::array logprobs, reasoning_logprobs;  // chat
    std::vector<TokenEvent> tokens;                   // text completions
    std::vector<int64_t> offsets;                     // of these tokens in the text, in code points
    std::optional<tokenizer::Detokenizer> detokenizer;
    int64_t next_offset = 0;
    std::string_view finish_reason;
  };

  ChoicesAnswer(AnswerInfo info, const tokenizer::Tokenizer& tokenizer);

  virtual std::string_view object_name() const = 0;  // "chat.completion.chunk", …
  // Adds an event to what is known of a choice.
  virtual void collect(Choice& choice, const OutputEvent& event) = 0;
  // Streams. first: before anything else of a choice; may be null. delta: of one event, null for none; finish: the last.
  virtual boost::json::value first_chunk(const Choice& choice, int32_t index) const = 0;
  virtual boost::json::value delta_chunk(const Choice& choice, int32_t index, const OutputEvent& event) const = 0;
  virtual boost::json::value finish_chunk(const Choice& choice, int32_t index) const = 0;
  virtual boost::json::value whole_choice(const Choice& choice, int32_t index) const = 0;

 private:
  void write(int32_t choice, const OutputEvent& event, std::string& out) override;
  boost::json::object envelope() const;
  void append_frame(boost::json::value choice, std::string& out) const;

  std::vector<Choice> choices_;
};

std::unique_ptr<Answer> make_chat_answer(AnswerInfo info, const tokenizer::Tokenizer& tokenizer);
std::unique_ptr<Answer> make_completion_answer(AnswerInfo info, const tokenizer::Tokenizer& tokenizer);

}  // namespace deepinfer::recipe
