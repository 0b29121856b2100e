// One JSON value of a log to the model calls in it: finds out what wrote it, where the request body, the time, the user and the token
// counts stand. Formats may be mixed from line to line. Session files, whose lines mean something only together, are
// session_file.h's. Not thread-safe: one parser a thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trace/json_value.h"
#include "trace/log_record.h"

namespace deepinfer::trace {

struct ParserOptions {
  std::optional<LogFormat> format;   // forced: every value is read as that, and what cannot be is kOtherFormat
  std::string time_field;            // path of the time, "meta.when"; empty: the usual names
  std::string tenant_field;          // the same for what separates caches
};

class LogParser {
 public:
  explicit LogParser(ParserOptions options) : options_(std::move(options)) {}

  // text: one JSON value, readable for simdjson::SIMDJSON_PADDING bytes past its end. Appends what is in it to `out`, or says why
  // there is nothing.
  std::optional<Skip> parse(std::string_view text, std::vector<LogRecord>& out);
  // The same for a value that was parsed already.
  std::optional<Skip> parse_value(const Json& value, std::vector<LogRecord>& out);

 private:
  std::optional<Skip> parse_record(const Json& value, std::vector<LogRecord>& out);
  std::optional<LogFormat> format_of(const Json& value) const;  // as it looks; never of lines that tell only lengths, which look like nothing
  std::optional<Skip> parse_as(LogFormat format, const Json& value, std::vector<LogRecord>& out);
  std::optional<Skip> parse_body_of(const Json& outer, LogRecord record, std::vector<LogRecord>& out);
  std::optional<Skip> parse_gateway(const Json& outer, const MaybeJson& messages, LogRecord record, std::vector<LogRecord>& out);
  static std::optional<Skip> take_lengths(LogRecord record, std::vector<LogRecord>& out);
  std::optional<Skip> parse_hash_trace(const Json& value, std::vector<LogRecord>& out);
  std::optional<Skip> parse_lengths(const Json& value, std::vector<LogRecord>& out);
  std::optional<Skip> parse_otel(const Json& value, std::vector<LogRecord>& out);
  std::optional<Skip> parse_span(const Json& span, std::vector<LogRecord>& out);
  class Attributes;
  void append_numbered_messages(const Attributes& attributes, recipe::Conversation& out);
  void append_numbered_tools(const Attributes& attributes, recipe::Conversation& out);
  void append_span_events(const MaybeJson& events, recipe::Conversation& out);
  std::optional<Skip> parse_har(const Json& log, std::vector<LogRecord>& out);
  std::optional<Skip> parse_har_entry(const Json& entry, std::vector<LogRecord>& out);
  std::optional<Skip> parse_envoy_tap(const Json& value, std::vector<LogRecord>& out);
  std::optional<LogFormat> wrapper_format(const Json& outer) const;
  bool was_refused(const Json& value) const;
  void read_frame(const Json& outer, LogRecord& record) const;
  void read_mooncake_time(const Json& value, LogRecord& record) const;
  void read_answer(const MaybeJson& answer, LoggedUsage& usage);
  void read_answer_text(std::string_view text, LoggedUsage& usage);
  // JSON inside a string of a JSON value; nesting is bounded.
  MaybeJson parse_inner(std::string_view text);
  MaybeJson object_or_text(const MaybeJson& value);
  MaybeJson attribute_or_text(const MaybeJson& value);

  ParserOptions options_;
  simdjson::dom::parser parser_;
  static constexpr size_t kMaxInner = 6;
  simdjson::dom::parser inner_[kMaxInner];
  size_t num_inner_ = 0;
};

}  // namespace deepinfer::trace
