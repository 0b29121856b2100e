#include "recipe/choices_answer.h"

#include <boost/json/serialize.hpp>
#include <boost/json/value.hpp>

namespace deepinfer::recipe {
namespace json = boost::json;
namespace {

std::string_view reason_word(Ending ending) {
  switch (ending) {
    case Ending::kLength:
    case Ending::kContext: return "length";
    case Ending::kFilter: return "content_filter";
    case Ending::kToolCalls: return "tool_calls";
    case Ending::kStopString:
    case Ending::kCancelled:
    case Ending::kStop: break;
  }
  return "stop";
}

}  // namespace

ChoicesAnswer::ChoicesAnswer(AnswerInfo info, const tokenizer::Tokenizer& tokenizer)
    : Answer(std::move(info), tokenizer), choices_(static_cast<size_t>(this->info().n)) {
  for (Choice& choice : choices_) choice.thinking = this->info().starts_in_reasoning;
}

void ChoicesAnswer::write(int32_t index, const OutputEvent& event, std::string& out) {
  Choice& choice = choices_[static_cast<size_t>(index)];
  const bool finish = event.kind == OutputEvent::Kind::kFinished;
  if (event.kind == OutputEvent::Kind::kReasoning) choice.thinking = true;
  if (info().stream && !choice.started) {
    choice.started = true;
    if (json::value chunk = first_chunk(choice, index); !chunk.is_null()) append_frame(std::move(chunk), out);
  }
  if (finish) {
    choice.finish_reason = reason_word(ending_of(event));
    if (info().stream) append_frame(finish_chunk(choice, index), out);
    return;
  }
  collect(choice, event);
  if (!info().stream) return;
  if (json::value chunk = delta_chunk(choice, index, event); !chunk.is_null()) append_frame(std::move(chunk), out);
}

json::object ChoicesAnswer::envelope() const {
  json::object out;
  out["id"] = info().id;
  out["object"] = object_name();
  out["created"] = info().created_unix_s;
  out["model"] = info().model;
  out["system_fingerprint"] = info().system_fingerprint;
  return out;
}

void ChoicesAnswer::append_frame(json::value choice, std::string& out) const {
  json::object frame = envelope();
  json::array choices;
  choices.push_back(std::move(choice));
  frame["choices"] = std::move(choices);
  if (info().include_usage) frame["usage"] = nullptr;
  append_sse(frame, out);
}

void ChoicesAnswer::end_stream(std::string& out) {
  if (info().include_usage) {
    json::object frame = envelope();
    frame["choices"] = json::array();
    frame["usage"] = usage_json(usage(), reasoning_tokens());
    append_sse(frame, out);
  }
  out += kSseDone;
}

void ChoicesAnswer::fail_stream(const json::object& error, std::string_view, std::string& out) {
  append_sse(error, out);
  out += kSseDone;
}

std::string ChoicesAnswer::body() const {
  json::object out = envelope();
  json::array choices;
  for (int32_t i = 0; i < info().n; ++i) choices.push_back(whole_choice(choices_[static_cast<size_t>(i)], i));
  out["choices"] = std::move(choices);
  out["usage"] = usage_json(usage(), reasoning_tokens());
  return json::serialize(out);
}

}  // namespace deepinfer::recipe
