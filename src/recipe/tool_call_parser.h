// A block of tool calls in DSML, from behind its opening marker on, to calls and the JSON text of their arguments:
//
//   <｜DSML｜tool_calls>
//   <｜DSML｜invoke name="NAME">
//   <｜DSML｜parameter name="KEY" string="true|false">VALUE</｜DSML｜parameter>…
//   </｜DSML｜invoke>…
//   </｜DSML｜tool_calls>
//
// The names may have spaces in front (v4.1), the block's may be "calls". What stands between tags is skipped. Values of string="true" are
// text and are handed out as they come; others are JSON and come whole: what is none becomes a string, so that arguments are always one
// JSON object. Malformed markup loses as little as possible: a missing closing tag is understood at the next one.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "recipe/markers.h"
#include "recipe/output.h"

namespace deepinfer::recipe {

class ToolCallParser {
 public:
  // Borrows tools. single: no call after the first.
  ToolCallParser(const std::vector<DeclaredTool>& tools, bool single) : tools_(&tools), single_(single) {}

  // The block begins with the marker of its opening tag, or behind that tag (a prompt that opened it).
  void open_tag();

  // Whether a control token of the markup would begin or end something now: it stands behind "<" or "</", and in no name.
  bool may_open_tag() const;

  // Appends events to out; pieces of arguments that follow each other are joined with the last one if that is not older than first_out.
  void push(Symbol symbol, std::vector<OutputEvent>& out, size_t first_out);
  // The end of the answer. complete: the model ended it, so what is open counts as closed; else it was cut.
  void finish(bool complete, std::vector<OutputEvent>& out, size_t first_out);

  bool finished() const { return state_ == State::kFinished; }  // the block was closed; what follows is nothing
  bool found_call() const { return num_calls_ > 0 || state_ == State::kToolName; }
  int32_t num_complete() const { return num_complete_; }
  // What was read, while there is no call in it: it may be text after all.
  const std::string& raw() const { return raw_; }

 private:
  enum class State : uint8_t { kBlock, kToolName, kBody, kKey, kType, kString, kJson, kFinished };

  void text(std::string_view bytes);
  void byte(char c);
  void note_tail(char c);
  void begin_tag(bool closing);
  void read_tag(char c);
  void opened_tag();
  void closed_tag();
  void begin_call();
  void end_call();
  void begin_parameter();
  void value_byte(char c);
  void end_value();
  bool may_be_wrapper() const;
  void release_held();
  void write_key(std::string_view key);
  void write_escaped(std::string_view text);
  void write(std::string_view arguments);

  const std::vector<DeclaredTool>* tools_;
  bool single_;
  State state_ = State::kBlock;
  std::string raw_;

  // A tag: its text behind the marker, while it is read.
  bool in_tag_ = false, tag_closes_ = false;
  std::string tag_;

  // The end of what was read that may belong to a marker: newlines, "<", "</".
  size_t num_newlines_ = 0, num_slants_ = 0;  // num_slants_: 1 "<", 2 "</"

  std::string name_, key_, type_, value_;
  std::string body_;               // of a call without parameters so far
  bool is_string_ = false;
  bool held_ = false;              // the first value is kept whole: it may be the object that should have been the arguments
  int32_t num_calls_ = 0, num_complete_ = 0;
  int32_t num_parameters_ = 0, num_written_ = 0;  // of the call

  std::vector<OutputEvent>* out_ = nullptr;  // of the call that is running
  size_t first_out_ = 0;
};

}  // namespace deepinfer::recipe
