// Reads logs into a RequestTrace and what else an audit counts, in one pass and bounded memory. Threads parse, render, tokenise and
// hash pieces of the input apart; what they found is entered in the order of the input, so that figures do not depend on the number
// of threads.
#pragma once

#include <array>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include "recipe/prompt.h"
#include "tokenizer/tokenizer.h"
#include "trace/breakers.h"
#include "trace/length_log.h"
#include "trace/line_source.h"
#include "trace/log_parser.h"
#include "trace/repetition.h"
#include "trace/request_trace.h"
#include "trace/seen_blocks.h"
#include "trace/token_memo.h"

namespace deepinfer::trace {

struct AuditOptions {
  ParserOptions parser;
  LineSourceOptions source;
  int32_t block_tokens = 64;        // of the trace: divides every block size that is reported
  uint64_t memory_bytes = 2ull << 30;
  int num_threads = 1;
  double sample_rate = 1;
  uint64_t sample_seed = 0;
  double chars_per_token = 0;       // above 0: estimate instead of tokenising
  bool one_model = false;           // all models share a cache: what if one served them all
  bool redact = false;
  size_t max_skipped_samples = 20;  // of each reason
};

struct SkippedSample {
  Skip reason;
  std::string path;
  uint64_t line;
  std::string beginning;  // redacted: its length and digest; of the path a digest
};

struct InputSummary {
  uint64_t num_files = 0, num_bytes = 0, num_values = 0;
  std::array<uint64_t, kNumLogFormats> records_by_format{};
  std::array<uint64_t, kNumSkips> skipped{};
  uint64_t num_incomplete = 0;     // parts of the prompt were not logged
  uint64_t num_without_time = 0;   // took the time of the record before
  uint64_t num_wrong_clock = 0;    // before 2000 or after 2100: the same
  uint64_t num_backward = 0;       // more than a minute before the record before, in the same file
  uint64_t num_unrendered = 0;     // conversations that the renderer refused; their text was counted in plain order
  std::vector<SkippedSample> samples;
  std::vector<std::string> errors;  // of files
  uint64_t text_bytes = 0, encoded_bytes = 0;  // of prompts; those that were not tokenised before

  void append(const InputSummary& other);
};

// What one run found, for another to join.
struct Findings {
  std::optional<RequestTrace> trace;  // none: no request with a prompt
  bool has_times = false;             // of the trace
  LengthLog lengths;
  InputSummary input;
  std::vector<Breaker> breakers;
  double repeated_tokens = 0;
};

class Audit {
 public:
  // tokenizer and renderer outlive the audit; renderer may be null where the log has no conversations (their text is joined then).
  Audit(const AuditOptions& options, const tokenizer::Tokenizer* tokenizer, const recipe::PromptRenderer* renderer);

  using Progress = std::function<void(uint64_t position, uint64_t total)>;
  void read(const std::vector<std::string>& paths, const Progress& progress = {});

  // Null until the first record with a prompt.
  const RequestTrace* trace() const { return trace_.get(); }
  // Requests without a prompt, which are not in the trace.
  const LengthLog& lengths() const { return lengths_; }
  const InputSummary& input() const { return input_; }
  bool has_times() const { return has_clock_; }
  const BreakFinder& breakers() const { return breakers_; }
  double repeated_tokens() const { return repetition_.repeated_tokens(); }

  // Joins what another run found. Errors: kInvalidArgument (traces that cannot be joined).
  Result<> append(Findings other);

 private:
  friend class PieceWorker;
  void commit(PreparedRequest&& request, size_t file);
  void trim_samples();
  bool make_room();

  AuditOptions options_;
  const tokenizer::Tokenizer* tokenizer_;
  const recipe::PromptRenderer* renderer_;
  TokenMemo memo_;
  std::unique_ptr<RequestTrace> trace_;
  LengthLog lengths_;
  InputSummary input_;
  BreakFinder breakers_;
  Repetition repetition_;
  SeenBlocks seen_;  // of a trace that is sampled
  std::unordered_set<uint64_t> calls_;  // PreparedRequest::call of what was entered
  size_t clock_file_ = SIZE_MAX;
  int64_t clock_us_ = 0;
  bool has_clock_ = false;
};

}  // namespace deepinfer::trace
