// From output events to what a client is sent: the JSON of a complete answer, or the frames of a stream. One object a request, all its
// choices; not thread-safe. A protocol is a subclass: it shapes what the base class counts. A complete answer and the frames of a
// stream come from the same events in the same order, so that the one equals the other joined.
// Lost: building frames without an object model by hand; a step takes milliseconds, a frame takes microseconds.
#pragma once

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "recipe/output.h"
#include "recipe/protocol.h"

namespace deepinfer::recipe {

struct AnswerInfo {
  std::string id, model, system_fingerprint;
  int64_t created_unix_s = 0;
  int32_t n = 1;                     // Chat and text completions; else 1
  bool stream = false;
  bool include_usage = false;        // Chat and text streams: a usage chunk before [DONE]
  bool logprobs = false;
  bool starts_in_reasoning = false;  // Prompt::starts_in_reasoning()
  boost::json::object echo;          // Responses: members of the answer that repeat the request (Incoming::echo)
  std::vector<ToolNames> tool_names; // Responses: how tools are called back (Incoming::tool_names)
  std::function<std::string(std::string_view reasoning)> seal;  // Responses: makes encrypted_content; empty: none is sent
};

class Answer {
 public:
  virtual ~Answer() = default;

  // Streams: the frames before all output, with the prompt's counts, which the engine knows with its first event. Called once, before
  // on_output; not called when nothing came but a fault.
  virtual void begin_stream(const Usage& prompt, std::string& out);
  // Takes an event of a choice. Streams: appends the frames that it makes to `out`. Complete answers: only collects.
  void on_output(int32_t choice, const OutputEvent& event, std::string& out);

  bool finished() const { return num_finished_ == info_.n; }  // every choice has its kFinished
  // Set once a choice ended in an error or was cancelled without the client's wish: no answer that looks whole may follow.
  bool failed() const { return failed_; }
  bool cancelled() const { return cancelled_; }  // failed, but by no fault
  const std::string& error() const { return error_; }

  // From now on a cancelled choice is one that its client ended: an end like others.
  void allow_cancel() { cancel_allowed_ = true; }
  // The answer could not be kept, though it was to be (Responses).
  virtual void mark_unkept() {}

  // Streams, after finished(): the last frames.
  virtual void end_stream(std::string& out) = 0;
  // Streams, instead of end_stream(): says what went wrong. error: in the protocol's own shape.
  virtual void fail_stream(const boost::json::object& error, std::string_view message, std::string& out) = 0;
  // Streams: what shows a silent client that the answer is being made.
  virtual std::string_view keep_alive() const;
  // After finished(), also of a stream: the whole answer, JSON.
  virtual std::string body() const = 0;

  // Summed over the choices so far; the prompt counts once.
  const Usage& usage() const { return usage_; }
  int32_t reasoning_tokens() const { return reasoning_tokens_; }
  // What the first choice ended with, as the protocol says it ("stop", "length"); empty before.
  virtual std::string_view finish_reason() const = 0;

 protected:
  Answer(AnswerInfo info, const tokenizer::Tokenizer& tokenizer);

  // An event of a choice that is neither failed nor over.
  virtual void write(int32_t choice, const OutputEvent& event, std::string& out) = 0;

  const AnswerInfo& info() const { return info_; }
  const tokenizer::Tokenizer& tokenizer() const { return tokenizer_; }
  // The part of info().id behind its prefix, which makes the ids of what is inside the answer: "call_" + stem + "_0".
  std::string_view id_stem() const;

 private:
  void count(int32_t choice, const OutputEvent& event);

  const AnswerInfo info_;
  const tokenizer::Tokenizer& tokenizer_;
  std::vector<bool> ended_;
  int32_t num_finished_ = 0;
  bool failed_ = false, cancelled_ = false, cancel_allowed_ = false;
  std::string error_;
  Usage usage_;
  int32_t reasoning_tokens_ = 0;
};

std::unique_ptr<Answer> make_answer(Protocol protocol, AnswerInfo info, const tokenizer::Tokenizer& tokenizer);

// Why a choice ended, in the order in which it is decided: a stop string, a limit, a filter, its client, complete tool calls, the model's
// own end.
enum class Ending : uint8_t { kStopString, kLength, kContext, kFilter, kCancelled, kToolCalls, kStop };
Ending ending_of(const OutputEvent& finished);

// Appends one server-sent event, with a name for protocols that have names. The data are one line, whatever they hold.
void append_sse(const boost::json::object& data, std::string& out);
void append_sse(std::string_view event, const boost::json::object& data, std::string& out);
constexpr std::string_view kSseDone = "data: [DONE]\n\n";
constexpr std::string_view kSseKeepAlive = ": keep-alive\n\n";

// What is wrong, in the shape that OpenAI's clients read, and in that of Messages. An empty param is null.
boost::json::object openai_error_json(std::string_view type, std::string_view code, std::string_view message, std::string_view param = "");
boost::json::object messages_error_json(std::string_view type, std::string_view message);

boost::json::object usage_json(const Usage& usage, int32_t reasoning_tokens);  // of Chat and text completions
// A token as clients see it in logprobs: {token, logprob, bytes}. JSON has no -inf; the field's word for it is -9999.
boost::json::object token_logprob_json(TokenId token, float logprob, const tokenizer::Tokenizer& tokenizer);
// The tokens of an event with their alternatives: [{token, logprob, bytes, top_logprobs}].
boost::json::array token_logprobs_json(const std::vector<TokenEvent>& tokens, const tokenizer::Tokenizer& tokenizer);
float finite_logprob(float logprob);
std::string token_text(TokenId token, const tokenizer::Tokenizer& tokenizer);  // valid UTF-8

}  // namespace deepinfer::recipe
