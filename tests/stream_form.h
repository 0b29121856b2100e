// For tests: streams in a form in which they can be compared, however their deltas were cut, and comparison with goldens.
// The form and the rules are those of tests/golden/recipe/streams.json.
#pragma once

#include <gtest/gtest.h>

#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <boost/json/value.hpp>
#include <map>
#include <string>
#include <vector>

namespace deepinfer::recipe::testing_support {

namespace json = boost::json;

struct Frame {
  std::string event;  // empty: none
  json::value data;   // or the string "[DONE]"
};

// Without members that are null.
inline json::value without_nulls(const json::value& value) {
  if (const json::array* list = value.if_array()) {
    json::array out;
    for (const json::value& item : *list) out.push_back(without_nulls(item));
    return out;
  }
  if (!value.is_object()) return value;
  json::object out;
  for (const auto& [key, item] : value.get_object()) {
    if (!item.is_null()) out[key] = without_nulls(item);
  }
  return out;
}

// The frames as they are on the wire; comments are left out. Every line but the last two of a frame is checked.
inline std::vector<Frame> frames_of(std::string_view stream) {
  std::vector<Frame> out;
  while (!stream.empty()) {
    const size_t end = stream.find("\n\n");
    EXPECT_NE(end, std::string_view::npos) << "a frame is not closed";
    if (end == std::string_view::npos) break;
    std::string_view text = stream.substr(0, end);
    stream.remove_prefix(end + 2);
    if (text.starts_with(':')) continue;
    Frame frame;
    if (text.starts_with("event: ")) {
      frame.event = text.substr(7, text.find('\n') - 7);
      text.remove_prefix(text.find('\n') + 1);
    }
    EXPECT_TRUE(text.starts_with("data: ")) << text;
    EXPECT_EQ(text.find('\n'), std::string_view::npos) << text;
    text.remove_prefix(6);
    frame.data = text == "[DONE]" ? json::value("[DONE]") : without_nulls(json::parse(text));
    out.push_back(std::move(frame));
  }
  return out;
}

// Where the text of a delta is, and what it belongs to; text is null for a frame that cannot be joined.
struct DeltaText {
  std::string target;
  json::string* text = nullptr;
  json::array* logprobs = nullptr;
};

inline json::value* member(json::value& value, std::string_view key) { return value.is_object() ? value.get_object().if_contains(key) : nullptr; }

inline DeltaText chat_delta(json::value& choice) {
  json::value* delta = member(choice, "delta");
  if (delta == nullptr || member(choice, "finish_reason") != nullptr || delta->as_object().size() != 1) return {};
  for (const char* field : {"content", "reasoning_content"}) {
    json::value* text = member(*delta, field);
    if (text == nullptr) continue;
    json::value* logprobs = member(choice, "logprobs");
    json::value* list = logprobs != nullptr ? member(*logprobs, field) : nullptr;
    return {.target = field, .text = &text->as_string(), .logprobs = list != nullptr ? &list->as_array() : nullptr};
  }
  json::value& call = member(*delta, "tool_calls")->as_array().at(0);
  if (member(call, "id") != nullptr) return {};
  return {.target = "call " + json::serialize(*member(call, "index")), .text = &member(*member(call, "function"), "arguments")->as_string()};
}

inline DeltaText delta_of(json::value& data) {
  if (json::value* choices = member(data, "choices")) return choices->as_array().empty() ? DeltaText() : chat_delta(choices->as_array().at(0));
  json::value* type = member(data, "type");
  if (type == nullptr) return {};
  const std::string name(type->as_string());
  if (name == "content_block_delta") {
    json::value& delta = *member(data, "delta");
    for (const char* field : {"text", "thinking", "partial_json"}) {
      if (json::value* text = member(delta, field)) return {.target = json::serialize(*member(data, "index")) + field, .text = &text->as_string()};
    }
    return {};
  }
  if (!name.ends_with(".delta")) return {};
  json::value* logprobs = member(data, "logprobs");
  return {.target = name + std::string(member(data, "item_id")->as_string()),
          .text = &member(data, "delta")->as_string(),
          .logprobs = logprobs != nullptr ? &logprobs->as_array() : nullptr};
}

// Neighbouring deltas of one target joined, pings but the first dropped, sequence numbers checked and given anew.
inline std::vector<Frame> joined(const std::vector<Frame>& frames) {
  std::vector<Frame> out;
  bool pinged = false;
  int64_t number = 0;
  for (Frame frame : frames) {
    if (json::value* sequence = member(frame.data, "sequence_number")) {
      EXPECT_EQ(sequence->as_int64(), number);
      number += 1;
    }
    if (frame.event == "ping" && std::exchange(pinged, true)) continue;
    const DeltaText next = delta_of(frame.data);
    const DeltaText last = out.empty() ? DeltaText() : delta_of(out.back().data);
    if (next.text == nullptr || last.text == nullptr || next.target != last.target) {
      out.push_back(std::move(frame));
      continue;
    }
    EXPECT_FALSE(next.text->empty()) << "an empty delta: " << frame.data;
    *last.text += *next.text;
    if (next.logprobs != nullptr) last.logprobs->insert(last.logprobs->end(), next.logprobs->begin(), next.logprobs->end());
  }
  number = 0;
  for (Frame& frame : out) {
    if (json::value* sequence = member(frame.data, "sequence_number")) *sequence = number++;
  }
  return out;
}

// Goldens against what came: strings that begin with $ are place holders, members that a golden does not list are allowed.
class Matcher {
 public:
  bool match(const json::value& want, const json::value& got) {
    if (const json::string* text = want.if_string(); text != nullptr && text->starts_with('$')) return match_placeholder(*text, got);
    if (const json::object* object = want.if_object()) {
      if (!got.is_object()) return false;
      for (const auto& [key, value] : *object) {
        const json::value* other = got.get_object().if_contains(key);
        if (value.is_null() ? other != nullptr && !other->is_null() : other == nullptr || !match(value, *other)) return false;
      }
      return true;
    }
    if (const json::array* list = want.if_array()) {
      if (!got.is_array() || got.get_array().size() != list->size()) return false;
      for (size_t i = 0; i < list->size(); ++i) {
        if (!match((*list)[i], got.get_array()[i])) return false;
      }
      return true;
    }
    if (want.is_number()) return got.is_number() && want.to_number<double>() == got.to_number<double>();
    return want == got;
  }

 private:
  bool match_placeholder(const json::string& name, const json::value& got) {
    if (name == "$CREATED" || name == "$COMPLETED") return got.is_int64() || got.is_uint64();
    if (name == "$PARTIAL") return got.is_object();
    if (!got.is_string()) return false;
    if (name == "$MESSAGE") return !got.get_string().empty();
    const auto [bound, added] = bound_.emplace(name, got.get_string());
    return added || bound->second == got.get_string();
  }

  std::map<json::string, json::string> bound_;
};

}  // namespace deepinfer::recipe::testing_support
