// From output events to what a client is sent: the JSON of a complete answer, or the frames of a stream. One object a request,
// all its choices; not thread-safe. Chat and text completions differ only in the shape of a choice, which their subclasses give.
// Lost: building frames without an object model by hand; a step takes milliseconds, a frame takes microseconds.
#pragma once

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "recipe/output.h"

namespace deepinfer::recipe {

struct AnswerInfo {
  std::string id, model, system_fingerprint;
  int64_t created_unix_s = 0;
  int32_t n = 1;
  bool stream = false;
  bool include_usage = false;        // streams: a usage chunk before [DONE]
  bool logprobs = false;
  bool starts_in_reasoning = false;  // Prompt::starts_in_reasoning
};

class Answer {
 public:
  virtual ~Answer() = default;

  // Takes an event of a choice. Streams: appends the frames that it makes to `out`. Complete answers: only collects.
  void on_output(int32_t choice, const OutputEvent& event, std::string& out);

  bool finished() const { return num_finished_ == info_.n; }  // every choice has its kFinished
  // Set once a choice ended in an error or was cancelled without the client's wish: no answer that looks whole may follow.
  bool failed() const { return failed_; }
  bool cancelled() const { return cancelled_; }  // failed, but by no fault
  const std::string& error() const { return error_; }

  // Streams, after finished(): the usage chunk if asked for, and the end mark.
  void end_stream(std::string& out) const;
  // Complete answers, after finished(): the body.
  std::string body() const;

  // Summed over the choices so far; the prompt counts once.
  const Usage& usage() const { return usage_; }
  int32_t reasoning_tokens() const { return reasoning_tokens_; }
  // What the first choice ended with, as the protocol says it ("stop", "length"); empty before.
  std::string_view finish_reason() const { return choices_.front().finish_reason; }

 protected:
  struct Choice {
    bool started = false;   // the first chunk went out
    bool thinking = false;  // reasoning_content is part of this choice
    std::string text, reasoning;
    boost::json::array logprobs, reasoning_logprobs;  // chat only
    std::vector<TokenEvent> tokens;                   // text completions only
    std::string_view finish_reason;
  };

  Answer(AnswerInfo info, const tokenizer::Tokenizer& tokenizer);

  virtual std::string_view object_name() const = 0;  // "chat.completion.chunk", …
  // Streams. first: before anything else of a choice; may be null. delta: text of one event; finish: the last.
  virtual boost::json::value first_chunk(Choice& choice, int32_t index) const = 0;
  virtual boost::json::value delta_chunk(Choice& choice, int32_t index, const OutputEvent& event) const = 0;
  virtual boost::json::value finish_chunk(Choice& choice, int32_t index) const = 0;
  // Complete answers.
  virtual void collect(Choice& choice, const OutputEvent& event) const = 0;
  virtual boost::json::value whole_choice(const Choice& choice, int32_t index) const = 0;

  const AnswerInfo& info() const { return info_; }
  const tokenizer::Tokenizer& tokenizer() const { return tokenizer_; }

 private:
  void finish_choice(Choice& choice, const OutputEvent& event);
  boost::json::object envelope() const;
  void append_frame(boost::json::value choice, std::string& out) const;

  AnswerInfo info_;
  const tokenizer::Tokenizer& tokenizer_;
  std::vector<Choice> choices_;
  int32_t num_finished_ = 0;
  bool failed_ = false, cancelled_ = false;
  std::string error_;
  Usage usage_;
  int32_t reasoning_tokens_ = 0;
};

std::unique_ptr<Answer> make_chat_answer(AnswerInfo info, const tokenizer::Tokenizer& tokenizer);
std::unique_ptr<Answer> make_completion_answer(AnswerInfo info, const tokenizer::Tokenizer& tokenizer);

// Appends one server-sent event.
void append_sse(const boost::json::value& data, std::string& out);
constexpr std::string_view kSseDone = "data: [DONE]\n\n";
constexpr std::string_view kSseKeepAlive = ": keep-alive\n\n";

boost::json::object usage_json(const Usage& usage, int32_t reasoning_tokens);
// A token as clients see it in logprobs: {token, logprob, bytes}. JSON has no -inf; the field's word for it is -9999.
boost::json::object token_logprob_json(TokenId token, float logprob, const tokenizer::Tokenizer& tokenizer);
float finite_logprob(float logprob);
std::string token_text(TokenId token, const tokenizer::Tokenizer& tokenizer);  // valid UTF-8

}  // namespace deepinfer::recipe
