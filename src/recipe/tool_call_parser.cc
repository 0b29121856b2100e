#include "recipe/tool_call_parser.h"

#include <algorithm>

#include "recipe/json_text.h"

namespace deepinfer::recipe {
namespace {

constexpr std::string_view kSpace = " \t\r\n";
constexpr std::string_view kInvoke = "invoke name=\"", kParameter = "parameter name=\"";

std::string_view trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpace) + 1 - begin);
}

bool is_json_object(std::string_view text) { return text.starts_with('{') && format_json(text, NumberStyle::kPython).has_value(); }

}  // namespace

void ToolCallParser::open_tag() {
  raw_.assign("<").append(spelling_of(Marker::kDsml));
  begin_tag(false);
}

bool ToolCallParser::may_open_tag() const {
  const bool in_name = state_ == State::kToolName || state_ == State::kKey || state_ == State::kType;
  return num_slants_ != 0 && !in_name;
}

void ToolCallParser::push(Symbol symbol, std::vector<OutputEvent>& out, size_t first_out) {
  out_ = &out;
  first_out_ = first_out;
  if (state_ == State::kFinished) return;
  if (!found_call()) {
    if (symbol.marker == Marker::kNone) {
      raw_ += symbol.byte;
    } else {
      raw_ += spelling_of(symbol.marker);
    }
  }
  if (symbol.marker == Marker::kNone) return byte(symbol.byte);
  if (symbol.marker != Marker::kDsml || !may_open_tag()) return text(spelling_of(symbol.marker));

  const bool closing = num_slants_ == 2;
  if (state_ == State::kString || state_ == State::kJson) {
    // A closing tag leaves newlines to the value; an opening one, where the closing one is missing, has them before it.
    value_.resize(value_.size() - num_slants_ - (closing ? 0 : num_newlines_));
    end_value();
  } else if (state_ == State::kBody) {
    body_.resize(body_.size() - std::min(body_.size(), num_slants_));
  }
  begin_tag(closing);
}

void ToolCallParser::text(std::string_view bytes) {
  for (const char c : bytes) byte(c);
}

void ToolCallParser::byte(char c) {
  switch (state_) {
    case State::kToolName:
      if (c == '"') return begin_call();
      name_ += c;
      return;
    case State::kKey:
      if (c == '"') {
        state_ = State::kType;
        return type_.clear();
      }
      key_ += c;
      return;
    case State::kType:
      if (c == '>') return begin_parameter();
      type_ += c;
      return;
    case State::kString:
    case State::kJson: return value_byte(c);
    case State::kFinished: return;
    case State::kBlock:
    case State::kBody: break;
  }
  if (in_tag_) return read_tag(c);
  note_tail(c);
  if (state_ == State::kBody && num_parameters_ == 0) body_ += c;
}

void ToolCallParser::note_tail(char c) {
  if (c == '\n') {
    num_newlines_ = num_slants_ == 0 ? num_newlines_ + 1 : 1;
    num_slants_ = 0;
  } else if (c == '<') {
    if (num_slants_ > 0) num_newlines_ = 0;
    num_slants_ = 1;
  } else if (c == '/' && num_slants_ == 1) {
    num_slants_ = 2;
  } else {
    num_newlines_ = num_slants_ = 0;
  }
}

void ToolCallParser::begin_tag(bool closing) {
  in_tag_ = true;
  tag_closes_ = closing;
  tag_.clear();
  num_newlines_ = num_slants_ = 0;
}

// Collects until it is known which tag this is. Another one than is wanted here is skipped, whatever is in it.
void ToolCallParser::read_tag(char c) {
  note_tail(c);  // the next marker may follow at once
  if (tag_.empty() && kSpace.find(c) != std::string_view::npos) return;
  tag_ += c;
  if (tag_closes_) return closed_tag();
  opened_tag();
}

void ToolCallParser::opened_tag() {
  const bool parameter = state_ == State::kBody && kParameter.starts_with(tag_);
  if (!parameter && !kInvoke.starts_with(tag_)) {
    in_tag_ = false;
  } else if (tag_ == kInvoke) {
    in_tag_ = false;
    if (state_ == State::kBody) end_call();
    if (state_ == State::kFinished) return;
    name_.clear();
    state_ = State::kToolName;
  } else if (tag_ == kParameter) {
    in_tag_ = false;
    release_held();  // it is not alone
    key_.clear();
    state_ = State::kKey;
  }
}

void ToolCallParser::closed_tag() {
  const auto begins = [&](std::string_view name) { return name.starts_with(tag_); };
  if (tag_ == "invoke" && state_ == State::kBody) {
    in_tag_ = false;
    end_call();
  } else if (tag_ == "tool_calls>" || tag_ == "calls>") {
    in_tag_ = false;
    if (state_ == State::kBody) end_call();
    state_ = State::kFinished;
  } else if (!begins("tool_calls>") && !begins("calls>") && !(state_ == State::kBody && begins("invoke"))) {
    in_tag_ = false;
  }
}

void ToolCallParser::begin_call() {
  raw_.clear();
  out_->push_back({.kind = OutputEvent::Kind::kCallStart, .text = name_, .call = num_calls_});
  num_calls_ += 1;
  num_parameters_ = num_written_ = 0;
  held_ = false;
  body_.clear();
  state_ = State::kBody;
}

void ToolCallParser::end_call() {
  if (held_ && is_json_object(trimmed(value_))) {
    write(trimmed(value_));
  } else if (num_parameters_ > 0) {
    release_held();
    write(num_written_ > 0 ? "}" : "{}");
  } else {
    std::string_view body = trimmed(body_);
    if (body.starts_with('>')) body = trimmed(body.substr(1));  // the tag's own
    write(is_json_object(body) ? body : std::string_view("{}"));
  }
  out_->push_back({.kind = OutputEvent::Kind::kCallEnd, .call = num_calls_ - 1});
  num_complete_ += 1;
  held_ = false;
  state_ = single_ ? State::kFinished : State::kBlock;
}

// Models wrap the whole object into one parameter now and then.
bool ToolCallParser::may_be_wrapper() const {
  if (num_parameters_ != 1 || !is_string_ || (key_ != "arguments" && key_ != "input")) return false;
  const auto tool = std::find_if(tools_->begin(), tools_->end(), [&](const DeclaredTool& other) { return other.name == name_; });
  return tool != tools_->end() && std::find(tool->properties.begin(), tool->properties.end(), key_) == tool->properties.end();
}

void ToolCallParser::begin_parameter() {
  num_parameters_ += 1;
  is_string_ = !type_.ends_with("false\"");
  held_ = may_be_wrapper();
  value_.clear();
  num_newlines_ = num_slants_ = 0;
  state_ = is_string_ ? State::kString : State::kJson;
  if (held_) return;
  write_key(key_);
  if (is_string_) write("\"");
}

void ToolCallParser::value_byte(char c) {
  value_ += c;
  note_tail(c);
  if (!is_string_ || held_) return;
  const size_t ready = value_.size() - num_newlines_ - num_slants_;
  write_escaped(std::string_view(value_).substr(0, ready));
  value_.erase(0, ready);
}

void ToolCallParser::end_value() {
  state_ = State::kBody;
  if (held_) return;
  if (is_string_) {
    write_escaped(value_);
    write("\"");
    return;
  }
  const std::string_view value = trimmed(value_);
  if (format_json(value, NumberStyle::kPython)) return write(value);
  write("\"");
  write_escaped(value);
  write("\"");
}

// The value that was kept is one like others.
void ToolCallParser::release_held() {
  if (!held_) return;
  held_ = false;
  write_key(key_);
  write("\"");
  write_escaped(value_);
  write("\"");
}

void ToolCallParser::write_key(std::string_view key) {
  write(num_written_ == 0 ? "{\"" : ", \"");
  write_escaped(key);
  write("\": ");
  num_written_ += 1;
}

void ToolCallParser::write_escaped(std::string_view text) {
  std::string escaped;
  append_json_escaped(text, escaped);
  write(escaped);
}

void ToolCallParser::write(std::string_view arguments) {
  if (arguments.empty()) return;
  const bool joins = out_->size() > first_out_ && out_->back().kind == OutputEvent::Kind::kArguments;
  if (!joins) out_->push_back({.kind = OutputEvent::Kind::kArguments, .call = num_calls_ - 1});
  out_->back().text += arguments;
}

void ToolCallParser::finish(bool complete, std::vector<OutputEvent>& out, size_t first_out) {
  out_ = &out;
  first_out_ = first_out;
  const bool in_value = state_ == State::kString || state_ == State::kJson;
  const bool in_call = in_value || state_ == State::kBody || state_ == State::kKey || state_ == State::kType;
  if (!in_call) return;
  if (complete) {
    if (in_value) end_value();
    return end_call();
  }
  // What was cut stays open. JSON that is not whole says nothing yet.
  if (held_) {
    held_ = false;
    write_key(key_);
    write("\"");
    write_escaped(value_);
    if (!in_value) write("\"");
  } else if (state_ == State::kString) {
    write_escaped(value_);
  }
}

}  // namespace deepinfer::recipe
