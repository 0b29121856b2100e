// The text of a custom tool call out of the JSON object in which a model writes it: {"input": "…"}, arriving in pieces. Pure.
#pragma once

#include <string>
#include <string_view>

namespace deepinfer::recipe {

class CustomInput {
 public:
  // Takes the next piece of the object's text; appends what it adds to the value, decoded, never a part of a code point.
  void push(std::string_view piece, std::string& out);
  // At the end of the call. Appends what is left: nothing, or, for an object of another form, its member `input` or the object's text.
  void finish(std::string& out);

 private:
  enum class State : uint8_t { kHead, kText, kDone, kOther };
  void take(char c, std::string& out);
  void escape(std::string& out);

  State state_ = State::kHead;
  std::string all_;     // as long as it is not known to be of the simple form: kHead, kOther
  std::string escape_;  // an escape sequence that is not complete, or a high surrogate that waits for its other half
};

}  // namespace deepinfer::recipe
