#include "recipe/answer.h"

#include <boost/json/serialize.hpp>
#include <boost/json/value.hpp>
#include <cmath>

#include "base/check.h"

namespace deepinfer::recipe {
namespace json = boost::json;

Answer::Answer(AnswerInfo info, const tokenizer::Tokenizer& tokenizer)
    : info_(std::move(info)), tokenizer_(tokenizer), choices_(static_cast<size_t>(info_.n)) {
  for (Choice& choice : choices_) choice.thinking = info_.starts_in_reasoning;
}

void Answer::on_output(int32_t index, const OutputEvent& event, std::string& out) {
  CHECK(index >= 0);
  CHECK(index < info_.n);
  Choice& choice = choices_[static_cast<size_t>(index)];
  CHECK(choice.finish_reason.empty());
  const bool finish = event.kind == OutputEvent::Kind::kFinished;
  if (finish) finish_choice(choice, event);
  if (failed_) return;  // the caller ends the request; nothing that looks like success may follow
  if (event.kind == OutputEvent::Kind::kReasoning) choice.thinking = true;
  if (!info_.stream) {
    if (!finish) collect(choice, event);
    return;
  }
  if (!choice.started) {
    choice.started = true;
    if (json::value chunk = first_chunk(choice, index); !chunk.is_null()) append_frame(std::move(chunk), out);
  }
  append_frame(finish ? finish_chunk(choice, index) : delta_chunk(choice, index, event), out);
}

void Answer::finish_choice(Choice& choice, const OutputEvent& event) {
  switch (event.reason) {
    case FinishReason::kStop: choice.finish_reason = "stop"; break;
    case FinishReason::kLength:
    case FinishReason::kContext: choice.finish_reason = "length"; break;
    case FinishReason::kContentFilter: choice.finish_reason = "content_filter"; break;
    case FinishReason::kCancelled:
      choice.finish_reason = "cancelled";
      cancelled_ = !failed_;
      failed_ = true;
      if (error_.empty()) error_ = "the request was cancelled by the server";
      break;
    case FinishReason::kError:
      choice.finish_reason = "error";
      failed_ = true;
      if (error_.empty()) error_ = event.error.empty() ? "the engine failed on this request" : event.error;
      break;
  }
  num_finished_ += 1;
  usage_.prompt_tokens = event.usage.prompt_tokens;
  // Choices share the prompt; only the first one's prefill says what was in cache before.
  if (&choice == &choices_.front()) usage_.cached_tokens = event.usage.cached_tokens;
  usage_.completion_tokens += event.usage.completion_tokens;
  reasoning_tokens_ += event.reasoning_tokens;
}

json::object Answer::envelope() const {
  json::object out;
  out["id"] = info_.id;
  out["object"] = object_name();
  out["created"] = info_.created_unix_s;
  out["model"] = info_.model;
  out["system_fingerprint"] = info_.system_fingerprint;
  return out;
}

void Answer::append_frame(json::value choice, std::string& out) const {
  json::object frame = envelope();
  json::array choices;
  choices.push_back(std::move(choice));
  frame["choices"] = std::move(choices);
  if (info_.include_usage) frame["usage"] = nullptr;
  append_sse(frame, out);
}

void Answer::end_stream(std::string& out) const {
  if (info_.include_usage) {
    json::object frame = envelope();
    frame["choices"] = json::array();
    frame["usage"] = usage_json(usage_, reasoning_tokens_);
    append_sse(frame, out);
  }
  out += kSseDone;
}

std::string Answer::body() const {
  json::object out = envelope();
  json::array choices;
  for (int32_t i = 0; i < info_.n; ++i) choices.push_back(whole_choice(choices_[static_cast<size_t>(i)], i));
  out["choices"] = std::move(choices);
  out["usage"] = usage_json(usage_, reasoning_tokens_);
  return json::serialize(out);
}

void append_sse(const json::value& data, std::string& out) {
  out += "data: ";
  out += json::serialize(data);  // one line: control characters are escaped
  out += "\n\n";
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

}  // namespace deepinfer::recipe
