#include "recipe/custom_input.h"

#include <boost/json/value.hpp>

#include "recipe/json_reader.h"

namespace deepinfer::recipe {
namespace json = boost::json;
namespace {

constexpr std::string_view kHead = "{\"input\": \"";

bool is_surrogate(std::string_view unit) { return (unit[2] | 0x20) == 'd' && unit[3] >= '8'; }
bool is_high(std::string_view unit) { return is_surrogate(unit) && (unit[3] | 0x20) < 'c'; }

}  // namespace

void CustomInput::push(std::string_view piece, std::string& out) {
  for (const char c : piece) take(c, out);
}

void CustomInput::take(char c, std::string& out) {
  switch (state_) {
    case State::kHead:
      all_ += c;
      if (!kHead.starts_with(all_)) {
        state_ = State::kOther;
      } else if (all_.size() == kHead.size()) {
        state_ = State::kText;
        all_.clear();
      }
      break;
    case State::kText:
      if (!escape_.empty()) {
        escape_ += c;
        escape(out);
      } else if (c == '\\') {
        escape_ += c;
      } else if (c == '"') {
        state_ = State::kDone;
      } else {
        out += c;
      }
      break;
    case State::kOther: all_ += c; break;
    case State::kDone: break;
  }
}

// Decodes escape_ once it is complete. \uXXXX of a high surrogate waits for its other half.
void CustomInput::escape(std::string& out) {
  if (escape_.size() >= 2 && escape_[1] == 'u') {
    if (escape_.size() < 6) return;
    if (is_high(escape_) && escape_.size() < 12) return;
  }
  const std::optional<json::value> decoded = parse_json('"' + escape_ + '"');
  out += decoded ? std::string_view(decoded->get_string()) : std::string_view("\xef\xbf\xbd");
  escape_.clear();
}

void CustomInput::finish(std::string& out) {
  if (state_ != State::kOther) return;
  const std::optional<json::value> value = parse_json(all_);
  const json::value* input = value && value->is_object() ? value->get_object().if_contains("input") : nullptr;
  out += input != nullptr && input->is_string() ? std::string_view(input->get_string()) : std::string_view(all_);
}

}  // namespace deepinfer::recipe
