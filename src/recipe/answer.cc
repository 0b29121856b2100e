#include "recipe/answer.h"

#include <boost/json/serialize.hpp>
#include <boost/json/value.hpp>
#include <cmath>

#include "base/check.h"
#include "recipe/choices_answer.h"
#include "recipe/messages_answer.h"
#include "recipe/responses_answer.h"

namespace deepinfer::recipe {
namespace json = boost::json;

Answer::Answer(AnswerInfo info, const tokenizer::Tokenizer& tokenizer)
    : info_(std::move(info)), tokenizer_(tokenizer), ended_(static_cast<size_t>(info_.n)) {}

void Answer::begin_stream(const Usage&, std::string&) {}
std::string_view Answer::keep_alive() const { return kSseKeepAlive; }

std::string_view Answer::id_stem() const {
  const std::string_view id = info_.id;
  return id.substr(std::min(id.size(), id.find_first_of("-_") + 1));  // npos + 1 is 0
}

void Answer::on_output(int32_t choice, const OutputEvent& event, std::string& out) {
  CHECK(choice >= 0);
  CHECK(choice < info_.n);
  CHECK(!ended_[static_cast<size_t>(choice)]);
  if (event.kind == OutputEvent::Kind::kFinished) count(choice, event);
  if (!failed_) write(choice, event, out);  // else the caller ends the request; nothing that looks like success may follow
}

void Answer::count(int32_t choice, const OutputEvent& event) {
  ended_[static_cast<size_t>(choice)] = true;
  const bool cancelled = event.reason == FinishReason::kCancelled && !cancel_allowed_;
  if (cancelled || event.reason == FinishReason::kError) {
    cancelled_ = !failed_ && cancelled;
    failed_ = true;
    if (error_.empty()) error_ = event.error;
    if (error_.empty()) error_ = cancelled_ ? "the request was cancelled by the server" : "the engine failed on this request";
  }
  num_finished_ += 1;
  usage_.prompt_tokens = event.usage.prompt_tokens;
  // Choices share the prompt; only the first one's prefill says what was in cache before.
  if (choice == 0) usage_.cached_tokens = event.usage.cached_tokens;
  usage_.completion_tokens += event.usage.completion_tokens;
  reasoning_tokens_ += event.reasoning_tokens;
}

std::unique_ptr<Answer> make_answer(Protocol protocol, AnswerInfo info, const tokenizer::Tokenizer& tokenizer) {
  switch (protocol) {
    case Protocol::kChat: return make_chat_answer(std::move(info), tokenizer);
    case Protocol::kCompletions: return make_completion_answer(std::move(info), tokenizer);
    case Protocol::kResponses: return make_responses_answer(std::move(info), tokenizer);
    case Protocol::kMessages: return make_messages_answer(std::move(info), tokenizer);
  }
  CHECK(false);
}

Ending ending_of(const OutputEvent& finished) {
  if (finished.stop_string) return Ending::kStopString;
  if (finished.reason == FinishReason::kLength) return Ending::kLength;
  if (finished.reason == FinishReason::kContext) return Ending::kContext;
  if (finished.reason == FinishReason::kContentFilter) return Ending::kFilter;
  if (finished.reason == FinishReason::kCancelled) return Ending::kCancelled;
  return finished.num_calls > 0 ? Ending::kToolCalls : Ending::kStop;
}

void append_sse(const json::object& data, std::string& out) {
  out += "data: ";
  out += json::serialize(data);  // control characters are escaped
  out += "\n\n";
}

void append_sse(std::string_view event, const json::object& data, std::string& out) {
  out += "event: ";
  out += event;
  out += '\n';
  append_sse(data, out);
}

json::object openai_error_json(std::string_view type, std::string_view code, std::string_view message, std::string_view param) {
  json::object inner{{"message", message}, {"type", type}, {"param", param.empty() ? json::value() : json::value(param)}, {"code", code}};
  return {{"error", std::move(inner)}};
}

json::object messages_error_json(std::string_view type, std::string_view message) {
  return {{"type", "error"}, {"error", json::object{{"type", type}, {"message", message}}}};
}

json::object usage_json(const Usage& usage, int32_t reasoning_tokens) {
  json::object out;
  out["prompt_tokens"] = usage.prompt_tokens;
  out["completion_tokens"] = usage.completion_tokens;
  out["total_tokens"] = usage.prompt_tokens + usage.completion_tokens;
  out["prompt_tokens_details"] = json::object{{"cached_tokens", usage.cached_tokens}};
  out["prompt_cache_hit_tokens"] = usage.cached_tokens;
  out["prompt_cache_miss_tokens"] = usage.prompt_tokens - usage.cached_tokens;
  out["completion_tokens_details"] = json::object{{"reasoning_tokens", reasoning_tokens}};
  return out;
}

float finite_logprob(float logprob) { return std::isfinite(logprob) ? logprob : -9999.0f; }

std::string token_text(TokenId token, const tokenizer::Tokenizer& tokenizer) {
  return tokenizer.decode(std::span<const TokenId>(&token, 1), true);
}

json::object token_logprob_json(TokenId token, float logprob, const tokenizer::Tokenizer& tokenizer) {
  json::object out;
  out["token"] = token_text(token, tokenizer);
  out["logprob"] = finite_logprob(logprob);
  json::array bytes;
  for (const char c : tokenizer.token_bytes(token)) bytes.push_back(static_cast<unsigned char>(c));
  out["bytes"] = std::move(bytes);
  return out;
}

json::array token_logprobs_json(const std::vector<TokenEvent>& tokens, const tokenizer::Tokenizer& tokenizer) {
  json::array out;
  for (const TokenEvent& token : tokens) {
    json::object entry = token_logprob_json(token.token, token.logprob, tokenizer);
    json::array top;
    for (int32_t i = 0; i < token.num_top; ++i) {
      const TokenLogprob& other = token.top[static_cast<size_t>(i)];
      top.push_back(token_logprob_json(other.token, other.logprob, tokenizer));
    }
    entry["top_logprobs"] = std::move(top);
    out.push_back(std::move(entry));
  }
  return out;
}

}  // namespace deepinfer::recipe
