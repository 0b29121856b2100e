#include "trace/line_source.h"

#include <fmt/format.h>
#include <glob.h>
#include <simdjson.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <string_view>

#include "trace/session_file.h"

namespace deepinfer::trace {
namespace fs = std::filesystem;
namespace {

constexpr size_t kReadBytes = 256 << 10;
constexpr int kSniffLines = 20;

bool looks_like_log(const fs::path& path) {
  std::string extension = path.extension().string();
  if (extension == ".gz" || extension == ".zst") extension = path.stem().extension().string();
  static const std::set<std::string> kExtensions = {".json", ".jsonl", ".ndjson", ".log", ".har", ".csv", ".txt"};
  return kExtensions.contains(extension);
}

void add_folder(const fs::path& folder, std::set<std::string>& out) {
  std::error_code error;
  // Links to folders are not followed: a circle of them would never end.
  for (fs::recursive_directory_iterator at(folder, fs::directory_options::skip_permission_denied, error), end; at != end; at.increment(error)) {
    if (error) return;
    if (at->is_regular_file(error) && looks_like_log(at->path())) out.insert(at->path().string());
  }
}

// Finds where JSON values begin and end without parsing them: brackets outside of strings.
class ValueScanner {
 public:
  // Feeds bytes from `at` on; true when a value at the wanted depth ended, `at` then stands behind it.
  bool scan(std::string_view bytes, size_t& at) {
    for (; at < bytes.size(); ++at) {
      const char c = bytes[at];
      if (in_string_) {
        if (escaped_) escaped_ = false;
        else if (c == '\\') escaped_ = true;
        else if (c == '"') in_string_ = false;
        continue;
      }
      if (c == '"') {
        in_string_ = true;
      } else if (c == '{' || c == '[') {
        ++depth_;
      } else if (c == '}' || c == ']') {
        if (depth_ > 0 && --depth_ == 0) {
          ++at;
          return true;
        }
      }
    }
    return false;
  }
  void reset() {
    depth_ = 0;
    in_string_ = escaped_ = false;
  }

 private:
  int64_t depth_ = 0;
  bool in_string_ = false, escaped_ = false;
};

bool is_json(std::string_view text) {
  simdjson::dom::parser parser;
  simdjson::dom::element value;
  return parser.parse(text.data(), text.size(), true).get(value) == simdjson::SUCCESS;
}

// The first line of an array, as if nothing followed.
std::string closed_array(std::string_view line) { return std::string(line.substr(0, line.find_last_not_of(", \t\r") + 1)) + "]"; }

bool is_csv_header(std::string_view line, const std::optional<LogFormat>& forced) {
  if (line.find(',') == std::string_view::npos || line.find('{') != std::string_view::npos) return false;
  if (forced) return *forced == LogFormat::kLengths;
  return line.find("ContextTokens") != std::string_view::npos || line.find("input_tokens") != std::string_view::npos ||
         line.find("prompt_tokens") != std::string_view::npos || line.find("input_length") != std::string_view::npos;
}

}  // namespace

// One open file and what it turned out to be.
class LineSource::File {
 public:
  File(std::unique_ptr<io::ByteStream> stream, size_t file, const LineSourceOptions& options)
      : stream_(std::move(stream)), options_(options), file_(file) {
    fill(options_.piece_bytes);
    sniff();
  }

  std::optional<Piece> next() {
    Piece piece;
    piece.file = file_;
    piece.kind = kind_ == Kind::kSession ? Piece::Kind::kSession : kind_ == Kind::kCsv ? Piece::Kind::kCsv : Piece::Kind::kLines;
    piece.session = session_;
    piece.csv_header = csv_header_;
    switch (kind_) {
      case Kind::kLines:
      case Kind::kCsv: cut_lines(piece, options_.piece_bytes); break;
      case Kind::kSession: cut_lines(piece, options_.max_document_bytes); break;
      case Kind::kValues: cut_values(piece); break;
    }
    piece.num_too_long = std::exchange(num_too_long_, 0);
    const bool more = !piece.values.empty() || piece.num_too_long > 0;
    if (!more && error_) {
      piece.error = std::exchange(error_, std::nullopt);
      return piece;
    }
    if (!more) return std::nullopt;
    piece.bytes.resize(piece.bytes.size() + simdjson::SIMDJSON_PADDING);
    return piece;
  }

  uint64_t position() const { return stream_->position(); }

 private:
  enum class Kind { kLines, kSession, kCsv, kValues };

  // Reads until `bytes` are buffered or the file ends.
  void fill(size_t bytes) {
    if (begin_ > 0) {
      buffer_.erase(0, begin_);
      begin_ = 0;
    }
    buffer_.reserve(std::min(bytes, options_.piece_bytes) + kReadBytes);
    while (buffer_.size() < bytes && !ended_) {
      const size_t before = buffer_.size();
      buffer_.resize(before + kReadBytes);
      Result<size_t> got = stream_->read({buffer_.data() + before, kReadBytes});
      buffer_.resize(before + (got ? *got : 0));
      if (!got) error_ = got.error();
      if (!got || *got == 0) ended_ = true;
    }
  }

  void sniff() {
    if (buffer_.starts_with("\xEF\xBB\xBF")) begin_ = 3;
    const std::string_view head = std::string_view(buffer_).substr(begin_);
    const size_t start = head.find_first_not_of(" \t\r\n");
    if (start == std::string_view::npos) return;
    const std::string_view first = head.substr(start, head.find('\n', start) - start);
    if (is_csv_header(first, options_.format)) {
      kind_ = Kind::kCsv;
      csv_header_ = first;
      begin_ += start + first.size();
      return;
    }
    if (options_.format && is_session(*options_.format)) {
      kind_ = Kind::kSession;
      session_ = *options_.format;
      return;
    }
    const bool bracket = head[start] == '{' || head[start] == '[';
    const bool cut = start + first.size() == head.size() && !ended_;  // the first line is longer than what was read
    if (bracket && !is_json(first)) {
      // A document over several lines, or a damaged first line: behind the latter stands a complete value. So it may behind the first
      // elements of an array.
      const size_t second = start + first.size() + 1;
      const std::string_view next = second < head.size() ? head.substr(second, head.find('\n', second) - second) : std::string_view();
      const bool complete = is_json(next) && next.find_first_of("{[") != std::string_view::npos;
      if (head[start] == '[' ? !complete || is_json(closed_array(first)) : !cut && !complete) {
        kind_ = Kind::kValues;
        begin_ += start + (head[start] == '[' ? 1 : 0);  // of an array, its elements are the values
        return;
      }
    }
    if (options_.format) return;
    size_t at = start;
    for (int i = 0; i < kSniffLines && at < head.size(); ++i) {
      const size_t end = head.find('\n', at);
      if (end == std::string_view::npos && !ended_) break;
      if (const auto format = session_format(head.substr(at, end - at))) {
        kind_ = Kind::kSession;
        session_ = *format;
        return;
      }
      if (end == std::string_view::npos) break;
      at = end + 1;
    }
  }

  void add_value(Piece& piece, std::string_view text, uint64_t line) const {
    piece.values.push_back({piece.bytes.size(), text.size(), line});
    piece.bytes += text;
    piece.bytes += '\n';
  }

  // Whole lines, of `bytes` or more if the file has as many: the buffer itself becomes the piece, and what stands behind its last line
  // the next buffer. A line that is too long is passed over in steps.
  void cut_lines(Piece& piece, size_t bytes) {
    do {
      fill(bytes);
      size_t last = buffer_.rfind('\n');
      while (last == std::string::npos && !ended_) {
        passing_over_ = passing_over_ || buffer_.size() > options_.max_value_bytes;
        if (passing_over_) begin_ = buffer_.size();
        // Twice as much as there is: a long line is looked through a bounded number of times.
        const size_t seen = buffer_.size() - begin_;
        fill(std::max(bytes, 2 * seen));
        last = buffer_.find('\n', seen) != std::string::npos ? buffer_.rfind('\n') : std::string::npos;
      }
      const size_t end = ended_ ? buffer_.size() : last + 1;
      std::string rest = buffer_.substr(end);
      piece.bytes = std::exchange(buffer_, std::move(rest));
      piece.bytes.resize(end);
      add_lines(piece);
    } while (piece.values.empty() && num_too_long_ == 0 && !ended_);
  }

  void add_lines(Piece& piece) {
    const std::string_view bytes = piece.bytes;
    for (size_t begin = 0; begin < bytes.size() || passing_over_;) {
      const size_t end = std::min(bytes.find('\n', begin), bytes.size());
      const std::string_view line = bytes.substr(begin, end - begin);
      ++line_;
      if (std::exchange(passing_over_, false) || line.size() > options_.max_value_bytes) ++num_too_long_;
      else if (line.find_first_not_of(" \t\r") != std::string_view::npos) piece.values.push_back({begin, line.size(), line_});
      begin = end + 1;
    }
  }

  void cut_values(Piece& piece) {
    ValueScanner scanner;
    while (piece.bytes.size() < options_.piece_bytes) {
      // To the beginning of a value.
      size_t start = begin_;
      while (start < buffer_.size() && buffer_[start] != '{' && buffer_[start] != '[') {
        if (buffer_[start] == '\n') ++line_;
        ++start;
      }
      if (start == buffer_.size()) {
        begin_ = start;
        if (ended_) return;
        fill(options_.piece_bytes);
        continue;
      }
      begin_ = start;
      scanner.reset();
      size_t at = begin_;
      bool whole = scanner.scan(buffer_, at), too_long = false;
      while (!whole && !ended_) {
        if (at - begin_ > options_.max_document_bytes) {
          too_long = true;
          begin_ = at;
        }
        const size_t scanned = at - begin_;
        fill(2 * scanned + options_.piece_bytes);
        at = scanned;
        whole = scanner.scan(buffer_, at);
      }
      const std::string_view text(buffer_.data() + begin_, at - begin_);
      if (too_long) ++num_too_long_;
      else add_value(piece, text, line_ + 1);
      line_ += static_cast<uint64_t>(std::count(text.begin(), text.end(), '\n'));
      begin_ = at;
    }
  }

  std::unique_ptr<io::ByteStream> stream_;
  const LineSourceOptions& options_;
  size_t file_;
  Kind kind_ = Kind::kLines;
  LogFormat session_ = LogFormat::kClaudeCode;
  std::string csv_header_;
  std::string buffer_;
  size_t begin_ = 0;  // of what is not yet given out
  uint64_t line_ = 0;
  bool ended_ = false, passing_over_ = false;
  uint64_t num_too_long_ = 0;
  std::optional<Error> error_;
};

Result<std::vector<std::string>> find_logs(const std::vector<std::string>& names) {
  std::vector<std::string> out;
  std::set<std::string> seen;
  for (const std::string& name : names) {
    std::set<std::string> found;
    std::error_code error;
    if (name == "-") {
      found.insert(name);
    } else if (fs::is_directory(name, error)) {
      add_folder(name, found);
    } else if (fs::exists(name, error)) {
      found.insert(name);
    } else {
      glob_t matches{};
      if (::glob(name.c_str(), GLOB_BRACE | GLOB_TILDE, nullptr, &matches) == 0) {
        for (size_t i = 0; i < matches.gl_pathc; ++i) {
          if (fs::is_directory(matches.gl_pathv[i], error)) add_folder(matches.gl_pathv[i], found);
          else found.insert(matches.gl_pathv[i]);
        }
      }
      ::globfree(&matches);
    }
    if (found.empty()) return Error{Code::kNotFound, fmt::format("{}: no log there", name)};
    for (const std::string& path : found) {
      if (seen.insert(path).second) out.push_back(path);
    }
  }
  return out;
}

LineSource::LineSource(std::vector<std::string> paths, const LineSourceOptions& options) : paths_(std::move(paths)), options_(options) {
  for (const std::string& path : paths_) {
    std::error_code error;
    const uint64_t bytes = path == "-" ? 0 : fs::file_size(path, error);
    if (!error) total_bytes_ += bytes;
  }
  if (std::find(paths_.begin(), paths_.end(), "-") != paths_.end()) total_bytes_ = 0;
}

LineSource::~LineSource() = default;

std::optional<Piece> LineSource::next() {
  while (true) {
    if (!file_) {
      if (next_ == paths_.size()) return std::nullopt;
      Result<std::unique_ptr<io::ByteStream>> stream = io::ByteStream::open(paths_[next_]);
      ++next_;
      if (!stream) {
        Piece failed;
        failed.file = next_ - 1;
        failed.error = stream.error();
        return failed;
      }
      file_ = std::make_unique<File>(std::move(*stream), next_ - 1, options_);
    }
    if (std::optional<Piece> piece = file_->next()) return piece;
    done_bytes_ += file_->position();
    file_.reset();
  }
}

uint64_t LineSource::position() const { return done_bytes_ + (file_ ? file_->position() : 0); }

}  // namespace deepinfer::trace
