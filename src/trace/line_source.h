// Logs cut into pieces of about a MiB that can be parsed apart: whole lines, elements of one large JSON array, a whole document, a whole
// session file. What a file is, its beginning tells; no name does. Memory is bounded by max_value_bytes whatever the file holds: longer
// lines are passed over and counted. One thread at a time.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "io/byte_stream.h"
#include "trace/log_record.h"

namespace deepinfer::trace {

// Files below the folders, what the patterns match, "-": sorted, each once. Folders give files that look like logs (.json, .jsonl,
// .ndjson, .log, .har, .csv, .txt, each also .gz and .zst); named files are taken as they are. Errors: kNotFound (nothing there).
Result<std::vector<std::string>> find_logs(const std::vector<std::string>& names);

struct Piece {
  enum class Kind : uint8_t { kLines, kSession, kCsv };
  Kind kind = Kind::kLines;
  LogFormat session = LogFormat::kClaudeCode;  // kSession
  std::string csv_header;                      // kCsv
  std::string bytes;                           // values, and room for simdjson behind them
  struct Value {
    size_t begin, length;
    uint64_t line;  // where it begins in the file, from 1
  };
  std::vector<Value> values;
  size_t file = 0;  // index into the paths
  uint64_t num_too_long = 0;
  std::optional<Error> error;  // of the file, after these values

  std::string_view text(const Value& value) const { return {bytes.data() + value.begin, value.length}; }
};

struct LineSourceOptions {
  size_t piece_bytes = 1 << 20;  // what is made of a piece should still be in the processor's cache when it is entered
  size_t max_value_bytes = 64 << 20;
  size_t max_document_bytes = 256 << 20;  // of a session file or of a document that is one JSON value
  std::optional<LogFormat> format;        // what files are taken for, whatever their beginning looks like
};

class LineSource {
 public:
  LineSource(std::vector<std::string> paths, const LineSourceOptions& options);
  ~LineSource();

  // The next piece in order; nullopt: the end. Files that cannot be read give a piece with an error.
  std::optional<Piece> next();

  uint64_t total_bytes() const { return total_bytes_; }  // of all files; 0 if stdin is among them
  uint64_t position() const;                             // of them, read so far
  const std::vector<std::string>& paths() const { return paths_; }

 private:
  class File;
  std::vector<std::string> paths_;
  LineSourceOptions options_;
  size_t next_ = 0;
  std::unique_ptr<File> file_;
  uint64_t total_bytes_ = 0, done_bytes_ = 0;
};

}  // namespace deepinfer::trace
