// Session files of coding agents: transcripts from which each model call is put together again. Claude Code writes a tree of messages
// (uuid, parentUuid), one line a content block of an answer; Codex CLI writes the items of one conversation in order. Neither holds
// the tool definitions, Claude Code not the system prompt either, so that their records are incomplete, which the summary says.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "trace/log_parser.h"

namespace deepinfer::trace {

// Which agent wrote a file, from one of its lines.
std::optional<LogFormat> session_format(std::string_view line);

// Lines of one file in order; finish() gives the calls.
class SessionFile {
 public:
  virtual ~SessionFile() = default;
  static std::unique_ptr<SessionFile> create(LogFormat format, const ParserOptions& options);

  // text: as LogParser::parse(). Lines that belong to no call are kSessionLine, which is no damage.
  std::optional<Skip> add_line(std::string_view text);
  // One record a call, in order: a long session holds its turns many times over, so they are made one at a time.
  virtual void finish(const std::function<void(LogRecord)>& take) = 0;

 protected:
  virtual std::optional<Skip> add(const Json& line) = 0;
  std::optional<int64_t> time_of(const Json& line) const;
  std::string tenant_of(const Json& line) const;  // "" unless a field was named

 private:
  ParserOptions options_;
  simdjson::dom::parser parser_;
};

}  // namespace deepinfer::trace
