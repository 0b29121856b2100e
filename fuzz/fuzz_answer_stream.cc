// LIBS: di_recipe
// Answers of all protocols from output events with any text in any order that a parser may give: frames are well formed whatever the
// text holds, numbers have no gaps, blocks and items are closed, and the pieces joined are the whole answer.
#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <boost/json/value.hpp>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/check.h"
#include "recipe/answer.h"
#include "recipe/fake_tokenizer.h"
#include "recipe/fields.h"

namespace {

using namespace deepinfer;
using namespace deepinfer::recipe;
namespace json = boost::json;
using Kind = OutputEvent::Kind;

// Bytes as decisions; 0 when there are none left.
class Bytes {
 public:
  Bytes(const uint8_t* data, size_t size) : data_(data), size_(size) {}
  bool empty() const { return at_ == size_; }
  uint8_t next() { return empty() ? 0 : data_[at_++]; }
  std::string text() {
    const size_t n = std::min<size_t>(next() % 16 + 1, size_ - at_);
    const std::string_view raw(reinterpret_cast<const char*>(data_ + at_), n);
    at_ += n;
    const std::string valid = quotable(raw, 64);  // what a parser gives is valid UTF-8
    return valid.empty() ? "x" : valid;
  }

 private:
  const uint8_t* data_;
  size_t size_, at_ = 0;
};

// Reasoning and text in any order, then calls, then an end.
std::vector<OutputEvent> events_of(Bytes& bytes) {
  std::vector<OutputEvent> out;
  while (!bytes.empty() && out.size() < 40) {
    const uint8_t what = bytes.next() % 4;
    if (what == 3) break;
    out.push_back({.kind = what == 0 ? Kind::kReasoning : Kind::kContent, .text = bytes.text()});
  }
  int32_t num_calls = 0;
  bool whole = true;
  for (int32_t call = 0; call < bytes.next() % 4 && whole; ++call) {
    out.push_back({.kind = Kind::kCallStart, .text = bytes.next() % 2 == 0 ? "apply_patch" : bytes.text(), .call = call});
    for (uint8_t n = bytes.next() % 4; n > 0; --n) out.push_back({.kind = Kind::kArguments, .text = bytes.text(), .call = call});
    whole = bytes.next() % 8 != 0;
    if (!whole) continue;
    out.push_back({.kind = Kind::kCallEnd, .call = call});
    num_calls += 1;
  }
  constexpr FinishReason kReasons[] = {FinishReason::kStop, FinishReason::kLength, FinishReason::kContext, FinishReason::kContentFilter, FinishReason::kError, FinishReason::kCancelled};
  OutputEvent end{.kind = Kind::kFinished, .reason = whole ? kReasons[bytes.next() % 6] : FinishReason::kLength, .num_calls = num_calls};
  if (end.reason == FinishReason::kStop && bytes.next() % 4 == 0) end.stop_string = bytes.text();
  out.push_back(std::move(end));
  return out;
}

struct Frame {
  std::string event;
  json::value data;
};
std::vector<Frame> frames_of(std::string_view stream) {
  std::vector<Frame> out;
  while (!stream.empty()) {
    const size_t end = stream.find("\n\n");
    CHECK(end != std::string_view::npos);
    std::string_view text = stream.substr(0, end);
    stream.remove_prefix(end + 2);
    Frame frame;
    if (text.starts_with("event: ")) {
      frame.event = text.substr(7, text.find('\n') - 7);
      text.remove_prefix(text.find('\n') + 1);
    }
    CHECK(text.starts_with("data: "));
    CHECK(text.find_first_of("\r\n") == std::string_view::npos);
    boost::system::error_code error;
    if (text != "data: [DONE]") frame.data = json::parse(text.substr(6), error);
    CHECK(!error);
    if (!frame.event.empty()) CHECK(std::string_view(frame.data.at("type").as_string()) == frame.event);
    out.push_back(std::move(frame));
  }
  return out;
}

// Names and texts of a Responses or Messages stream, joined by item or block.
std::string joined(const std::vector<Frame>& frames) {
  std::map<int64_t, std::string> texts;
  int64_t open = 0;
  for (size_t i = 0; i < frames.size(); ++i) {
    const json::object& data = frames[i].data.as_object();
    if (const json::value* number = data.if_contains("sequence_number")) CHECK(number->to_number<size_t>() == i);
    if (frames[i].event == "response.output_item.added" || frames[i].event == "content_block_start") CHECK(++open == 1);
    if (frames[i].event == "response.output_item.done" || frames[i].event == "content_block_stop") CHECK(--open == 0);
    const json::value* place = data.if_contains("output_index");
    if (place == nullptr) place = data.if_contains("index");
    const json::value* delta = data.if_contains("delta");
    if (place == nullptr || delta == nullptr) continue;
    for (const char* field : {"text", "thinking", "partial_json"}) {
      const json::value* text = delta->is_object() ? delta->get_object().if_contains(field) : nullptr;
      if (text != nullptr) texts[place->to_number<int64_t>()] += text->as_string();
    }
    if (delta->is_string()) texts[place->to_number<int64_t>()] += delta->get_string();
  }
  std::string out;
  for (const auto& [index, text] : texts) out += text + "\n";
  return out;
}

std::string whole_text(const json::object& body) {
  std::string out;
  const json::value* list = body.if_contains("output");
  for (const json::value& item : (list != nullptr ? *list : body.at("content")).as_array()) {
    const json::object& object = item.as_object();
    std::string text;
    for (const char* field : {"arguments", "input", "text", "thinking"}) {
      const json::value* value = object.if_contains(field);
      if (value != nullptr && value->is_string()) text = value->get_string();
    }
    if (const json::value* parts = object.if_contains("content")) text = parts->at(0).at("text").as_string();
    if (object.at("type") == "tool_use" || text.empty()) continue;  // an object there; nothing was streamed here
    out += text + "\n";
  }
  return out;
}

void check(Protocol protocol, const std::vector<OutputEvent>& events, bool thinking) {
  static const FakeTokenizer tokenizer({});
  const std::vector<ToolNames> names{{.name = "apply_patch", .client_name = "apply_patch", .custom = true}};
  std::string stream, nothing;
  const auto streamed = make_answer(protocol, {.id = "x_1", .model = "m", .stream = true, .include_usage = true, .starts_in_reasoning = thinking, .tool_names = names}, tokenizer);
  const auto whole = make_answer(protocol, {.id = "x_1", .model = "m", .starts_in_reasoning = thinking, .tool_names = names}, tokenizer);
  streamed->begin_stream({}, stream);
  for (const OutputEvent& event : events) {
    streamed->on_output(0, event, stream);
    whole->on_output(0, event, nothing);
  }
  CHECK(nothing.empty());
  CHECK(streamed->finished());
  CHECK(streamed->failed() == whole->failed());
  if (streamed->failed()) {
    streamed->fail_stream({{"type", "error"}, {"error", {{"message", "m"}, {"type", "t"}, {"code", "c"}}}}, "m", stream);
    frames_of(stream);
    return;
  }
  streamed->end_stream(stream);
  const std::vector<Frame> frames = frames_of(stream);
  CHECK(streamed->finish_reason() == whole->finish_reason());
  if (protocol == Protocol::kResponses) CHECK(joined(frames) == whole_text(json::parse(whole->body()).as_object()));
  if (protocol == Protocol::kMessages && events.back().num_calls == 0 && events.back().reason != FinishReason::kLength) {
    CHECK(joined(frames) == whole_text(json::parse(whole->body()).as_object()));
  }
  json::object a = json::parse(streamed->body()).as_object(), b = json::parse(whole->body()).as_object();
  for (const char* key : {"object", "completed_at"}) {
    a.erase(key);
    b.erase(key);
  }
  CHECK(a == b);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Bytes bytes(data, size);
  const uint8_t first = bytes.next();
  const std::vector<OutputEvent> events = events_of(bytes);
  const bool calls = std::any_of(events.begin(), events.end(), [](const OutputEvent& event) { return event.kind == Kind::kCallStart; });
  for (const Protocol protocol : {Protocol::kChat, Protocol::kResponses, Protocol::kMessages}) check(protocol, events, first % 2 == 1);
  if (!calls) check(Protocol::kCompletions, events, false);
  return 0;
}
