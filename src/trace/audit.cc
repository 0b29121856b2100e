#include "trace/audit.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "trace/session_file.h"

namespace deepinfer::trace {
namespace {

constexpr int64_t kBackwardUs = 60'000'000;
constexpr size_t kPreparedBytes = 16 << 20;           // of a piece, before it is entered in parts
constexpr size_t kSampleBytes = 400;
constexpr uint64_t kCallBytes = 40;                   // of a set's entry and its share of the table
constexpr uint64_t kBlockBytes = 48;                  // of a node of the tree and its share of the index, which grow by doubling

int32_t token_count(int64_t tokens) { return static_cast<int32_t>(std::clamp<int64_t>(tokens, -1, INT32_MAX)); }

std::string_view bytes_of(const std::vector<TokenId>& tokens, size_t begin, size_t count) {
  return {reinterpret_cast<const char*>(tokens.data() + begin), count * sizeof(TokenId)};
}

// The text of a conversation in plain order, for those that no renderer takes.
std::string plain_text(const recipe::Conversation& conversation) {
  std::string out;
  for (const recipe::ToolDefinition& tool : conversation.tools) out += tool.name + "\n" + tool.description + "\n";
  for (const recipe::Message& message : conversation.messages) {
    out += message.reasoning.value_or("") + message.content + "\n";
    for (const recipe::ToolCall& call : message.tool_calls) out += call.name + call.arguments + "\n";
  }
  return out;
}

// A row is one line. A cell in quotes may hold commas, and quotes twice over.
std::vector<std::string_view> csv_cells(std::string_view row) {
  constexpr std::string_view kBlank = " \r";
  std::vector<std::string_view> out;
  while (true) {
    const size_t begin = row.find_first_not_of(' ');
    size_t from = 0;
    if (begin != std::string_view::npos && row[begin] == '"') {
      from = begin + 1;
      while (from < row.size() && (row[from] != '"' || row.substr(from, 2) == "\"\"")) from += row[from] == '"' ? 2 : 1;
    }
    const size_t comma = row.find(',', from);
    std::string_view cell = row.substr(0, comma);
    while (!cell.empty() && kBlank.find(cell.back()) != std::string_view::npos) cell.remove_suffix(1);
    while (!cell.empty() && cell.front() == ' ') cell.remove_prefix(1);
    if (cell.size() > 1 && cell.front() == '"' && cell.back() == '"') cell = cell.substr(1, cell.size() - 2);
    out.push_back(cell);
    if (comma == std::string_view::npos) return out;
    row.remove_prefix(comma + 1);
  }
}

std::string digest_of(const std::string& name) { return name.empty() ? name : fmt::format("{:016x}", XXH3_64bits(name.data(), name.size())); }

std::optional<int64_t> whole_number(std::string_view text) {
  int64_t out = 0;
  if (text.empty() || text.size() > 15) return std::nullopt;
  for (const char c : text) {
    if (c < '0' || c > '9') return std::nullopt;
    out = out * 10 + (c - '0');
  }
  return out;
}

}  // namespace

void InputSummary::append(const InputSummary& other) {
  const auto add = [](auto& to, const auto& from) {
    for (size_t i = 0; i < to.size(); ++i) to[i] += from[i];
  };
  num_files += other.num_files;
  num_bytes += other.num_bytes;
  num_values += other.num_values;
  add(records_by_format, other.records_by_format);
  add(skipped, other.skipped);
  num_incomplete += other.num_incomplete;
  num_without_time += other.num_without_time;
  num_wrong_clock += other.num_wrong_clock;
  num_backward += other.num_backward;
  num_unrendered += other.num_unrendered;
  samples.insert(samples.end(), other.samples.begin(), other.samples.end());
  errors.insert(errors.end(), other.errors.begin(), other.errors.end());
  text_bytes += other.text_bytes;
  encoded_bytes += other.encoded_bytes;
}

// One thread's work on one piece at a time.
class PieceWorker {
 public:
  using Flush = std::function<void(std::vector<PreparedRequest>&)>;

  explicit PieceWorker(Audit& audit) : audit_(audit), options_(audit.options_), parser_(audit.options_.parser) {
    if (audit.tokenizer_ != nullptr) user_id_ = audit.tokenizer_->special_id("<｜User｜>");
  }

  // Leaves in `prepared` what flush() was not given yet, in `found` what is to be added to the summary.
  void work(const Piece& piece, const std::string& path, std::vector<PreparedRequest>& prepared, InputSummary& found, const Flush& flush) {
    piece_ = &piece;
    path_ = &path;
    found_ = &found;
    prepared_ = &prepared;
    flush_ = &flush;
    prepared_bytes_ = 0;
    found.num_values += piece.values.size();
    found.skipped[static_cast<size_t>(Skip::kTooLong)] += piece.num_too_long;
    if (piece.error) {
      found.skipped[static_cast<size_t>(Skip::kUnreadable)] += 1;
      found.errors.push_back(piece.error->message);
    }
    switch (piece.kind) {
      case Piece::Kind::kLines: work_lines(); break;
      case Piece::Kind::kSession: work_session(); break;
      case Piece::Kind::kCsv: work_csv(); break;
    }
  }

 private:
  void skip(Skip reason, const Piece::Value& value) {
    found_->skipped[static_cast<size_t>(reason)] += 1;
    if (reason == Skip::kSessionLine || found_->skipped[static_cast<size_t>(reason)] > options_.max_skipped_samples) return;
    const std::string_view text = piece_->text(value);
    std::string beginning(text.substr(0, kSampleBytes));
    // Damaged lines are what is kept here: the file of samples must be JSON all the same.
    if (!simdjson::validate_utf8(beginning.data(), beginning.size())) {
      for (char& c : beginning) c = static_cast<unsigned char>(c) < 0x80 ? c : '?';
    }
    if (options_.redact) beginning = fmt::format("[{} bytes, {:016x}]", text.size(), XXH3_64bits(text.data(), text.size()));
    found_->samples.push_back({reason, options_.redact ? digest_of(*path_) : *path_, value.line, std::move(beginning)});
  }

  void work_lines() {
    for (const Piece::Value& value : piece_->values) {
      records_.clear();
      if (const auto reason = parser_.parse(piece_->text(value), records_)) skip(*reason, value);
      for (LogRecord& record : records_) take(std::move(record));
    }
  }

  void work_session() {
    const std::optional<LogFormat> forced = options_.parser.format;
    if (forced && std::none_of(piece_->values.begin(), piece_->values.end(), [&](const Piece::Value& v) { return session_format(piece_->text(v)) == forced; })) {
      for (const Piece::Value& value : piece_->values) skip(Skip::kOtherFormat, value);
      return;
    }
    const std::unique_ptr<SessionFile> session = SessionFile::create(piece_->session, options_.parser);
    for (const Piece::Value& value : piece_->values) {
      if (const auto reason = session->add_line(piece_->text(value))) skip(*reason, value);
    }
    session->finish([&](LogRecord record) { take(std::move(record)); });
  }

  void work_csv() {
    const std::vector<std::string_view> header = csv_cells(piece_->csv_header);
    const auto column = [&](std::initializer_list<std::string_view> names) {
      for (const std::string_view name : names) {
        const auto at = std::find(header.begin(), header.end(), name);
        if (at != header.end()) return static_cast<size_t>(at - header.begin());
      }
      return SIZE_MAX;
    };
    const std::string& asked_for = options_.parser.time_field;
    const size_t time = asked_for.empty() ? column({"TIMESTAMP", "timestamp", "time", "Timestamp"}) : column({asked_for});
    const size_t model = column({"model", "Model"});
    const size_t input = column({"ContextTokens", "input_tokens", "prompt_tokens", "input_length"});
    const size_t output = column({"GeneratedTokens", "output_tokens", "completion_tokens", "output_length"});
    for (const Piece::Value& value : piece_->values) {
      const std::vector<std::string_view> cells = csv_cells(piece_->text(value));
      const auto cell = [&](size_t at) { return at < cells.size() ? cells[at] : std::string_view(); };
      const auto tokens = whole_number(cell(input));
      if (!tokens) {
        skip(Skip::kBadCsv, value);
        continue;
      }
      LogRecord record;
      record.format = LogFormat::kLengths;
      record.time_us = parse_time_us(cell(time));
      record.model = cell(model);
      record.usage.input = *tokens;
      record.usage.output = whole_number(cell(output)).value_or(-1);
      record.prompt = UnknownPrompt{};
      take(std::move(record));
    }
  }

  void take(LogRecord record) {
    PreparedRequest out = prepare(std::move(record));
    prepared_bytes_ += out.tokens.size() * sizeof(TokenId) * 2 + out.keys.size() * sizeof(PrefixKey) + 512;
    prepared_->push_back(std::move(out));
    if (prepared_bytes_ < kPreparedBytes) return;
    (*flush_)(*prepared_);
    prepared_->clear();
    prepared_bytes_ = 0;
  }

  std::string shown_name(std::string name) const { return options_.redact ? digest_of(name) : name; }

  PreparedRequest prepare(LogRecord record) {
    PreparedRequest out;
    out.format = record.format;
    out.time_us = record.time_us;
    out.tenant = shown_name(std::move(record.tenant));
    out.session = shown_name(std::move(record.session));
    out.model = options_.one_model ? "" : std::move(record.model);
    if (!record.call_id.empty()) out.call = XXH3_64bits(record.call_id.data(), record.call_id.size()) | 1;
    out.usage = record.usage;
    for (int64_t* count : {&out.usage.input, &out.usage.cached, &out.usage.written, &out.usage.written_1h, &out.usage.output}) {
      *count = std::clamp<int64_t>(*count, -1, kMaxLoggedTokens);
    }
    out.incomplete = record.incomplete;
    if (const auto* hashed = std::get_if<HashedPrompt>(&record.prompt)) {
      prepare_hashed(*hashed, out);
      return out;
    }
    if (std::holds_alternative<UnknownPrompt>(record.prompt)) {
      out.lengths_only = true;
      return out;
    }
    out.tokens.swap(room_);
    if (auto* ids = std::get_if<std::vector<TokenId>>(&record.prompt)) {
      out.tokens = std::move(*ids);
      add_run(out, 0);
    } else if (const auto* text = std::get_if<std::string>(&record.prompt)) {
      encode(*text, out);
    } else {
      out.conversation = std::move(std::get<recipe::Conversation>(record.prompt));
      // The effort whose prompt text is empty: instructions that the logged model never saw would count as repetition.
      out.conversation.effort = recipe::Effort::kLow;
      encode_conversation(out.conversation, out);
    }
    out.input_tokens = static_cast<int64_t>(out.tokens.size());
    hash_blocks(out);
    std::vector<TokenId> tokens(out.tokens);  // of the size that it needs: requests are kept
    room_.swap(out.tokens);
    room_.clear();
    out.tokens = std::move(tokens);
    return out;
  }

  PrefixKey first_key(const PreparedRequest& r) const { return {XXH3_64bits(r.model.data(), r.model.size()), 0}; }

  void prepare_hashed(const HashedPrompt& prompt, PreparedRequest& out) const {
    out.hashed = true;
    out.block_tokens = prompt.block_tokens;
    out.input_tokens = out.usage.input;
    PrefixKey key = first_key(out);
    const size_t num_blocks = std::min<size_t>(prompt.block_ids.size(), static_cast<size_t>((out.input_tokens + prompt.block_tokens - 1) / prompt.block_tokens));
    out.keys.reserve(num_blocks);
    for (size_t i = 0; i < num_blocks; ++i) {
      key = chain_key(key, std::as_bytes(std::span(&prompt.block_ids[i], 1)));
      out.keys.push_back(key);
    }
    out.usage.input = -1;  // it is the length of the prompt, not what somebody was billed for
  }

  void add_run(PreparedRequest& out, size_t begin) const {
    const size_t count = out.tokens.size() - begin;
    if (count == 0) return;
    const std::string_view bytes = bytes_of(out.tokens, begin, count);
    out.runs.push_back({static_cast<uint32_t>(begin), static_cast<uint32_t>(count), XXH3_64bits(bytes.data(), bytes.size())});
  }

  void encode(std::string_view text, PreparedRequest& out) const {
    const size_t begin = out.tokens.size();
    audit_.memo_.encode(text, out.tokens);
    add_run(out, begin);
  }

  void encode_conversation(const recipe::Conversation& conversation, PreparedRequest& out) {
    if (audit_.renderer_ == nullptr) return encode(plain_text(conversation), out);
    const Result<recipe::Prompt> prompt = audit_.renderer_->render(conversation);
    if (!prompt) {
      ++found_->num_unrendered;
      return encode(plain_text(conversation), out);
    }
    recipe::for_each_run(*prompt, [&](std::string_view text) { encode(text, out); }, [&](TokenId id) {
      if (id == user_id_ && out.head_tokens == 0) out.head_tokens = static_cast<int64_t>(out.tokens.size());
      out.tokens.push_back(id);
    });
  }

  void hash_blocks(PreparedRequest& out) const {
    out.block_tokens = options_.block_tokens;
    const size_t block = static_cast<size_t>(options_.block_tokens), num_blocks = out.tokens.size() / block;
    PrefixKey key = first_key(out);
    out.keys.reserve(num_blocks);
    for (size_t i = 0; i < num_blocks; ++i) {
      key = chain_key(key, std::as_bytes(std::span(out.tokens).subspan(i * block, block)));
      out.keys.push_back(key);
    }
  }

  Audit& audit_;
  const AuditOptions& options_;
  LogParser parser_;
  std::optional<TokenId> user_id_;
  std::vector<LogRecord> records_;
  const Piece* piece_ = nullptr;
  const std::string* path_ = nullptr;
  InputSummary* found_ = nullptr;
  std::vector<PreparedRequest>* prepared_ = nullptr;
  const Flush* flush_ = nullptr;
  size_t prepared_bytes_ = 0;
  std::vector<TokenId> room_;  // in which tokens are gathered
};

// A quarter of the memory for tokens of texts, an eighth for texts of the last requests, three eighths for prefixes and what is kept of
// all requests, a sixteenth for chunks, a thirty-second for blocks that a sample does not keep; the rest is what pieces in flight take, of which each thread has one: the longest
// value, parsed, takes several times its length.
Audit::Audit(const AuditOptions& options, const tokenizer::Tokenizer* tokenizer, const recipe::PromptRenderer* renderer)
    : options_(options), tokenizer_(tokenizer), renderer_(renderer), memo_(tokenizer, options.chars_per_token, options.memory_bytes / 4),
      breakers_({.max_bytes = options.memory_bytes / 8, .min_lost_tokens = options.block_tokens, .redact = options.redact}),
      repetition_(options.memory_bytes / 16 / 48), seen_(options.memory_bytes / 32) {
  const size_t of_a_thread = options.memory_bytes / static_cast<size_t>(std::max(2, options.num_threads));
  options_.source.format = options.parser.format;
  options_.source.max_document_bytes = std::min<size_t>(options_.source.max_document_bytes, of_a_thread / 4);
  options_.source.max_value_bytes = std::min<size_t>(options_.source.max_value_bytes, of_a_thread / 16);
}

void Audit::read(const std::vector<std::string>& paths, const Progress& progress) {
  LineSource source(paths, options_.source);
  Mutex source_mu;
  std::mutex turn_mu;
  std::condition_variable turn_changed;
  uint64_t num_taken = 0, turn = 0;
  input_.num_files += paths.size();

  const auto run = [&] {
    PieceWorker worker(*this);
    while (true) {
      std::optional<Piece> piece;
      uint64_t mine = 0, position = 0;
      {
        const MutexLock lock(source_mu);
        piece = source.next();
        if (!piece) return;
        mine = num_taken++;
        position = source.position();
      }
      bool my_turn = false;
      const auto wait = [&] {
        if (std::exchange(my_turn, true)) return;
        std::unique_lock lock(turn_mu);
        turn_changed.wait(lock, [&] { return turn == mine; });
      };
      std::vector<PreparedRequest> prepared;
      InputSummary found;
      const auto enter = [&](std::vector<PreparedRequest>& requests) {
        wait();
        for (PreparedRequest& request : requests) commit(std::move(request), piece->file);
      };
      worker.work(*piece, paths[piece->file], prepared, found, enter);
      enter(prepared);
      input_.append(found);
      trim_samples();
      if (progress) progress(position, source.total_bytes());
      {
        const std::lock_guard lock(turn_mu);
        ++turn;
      }
      turn_changed.notify_all();
    }
  };
  std::vector<std::thread> threads;
  for (int i = 1; i < options_.num_threads; ++i) threads.emplace_back(run);
  run();
  for (std::thread& thread : threads) thread.join();
  input_.num_bytes += source.position();
  input_.text_bytes = memo_.bytes_asked();
  input_.encoded_bytes = memo_.bytes_encoded();
  memo_.clear();  // what comes now are replays, which need memory themselves
}

// Samples are capped a piece; of all pieces the first ones stay.
void Audit::trim_samples() {
  std::array<size_t, kNumSkips> kept{};
  std::erase_if(input_.samples, [&](const SkippedSample& s) { return ++kept[static_cast<size_t>(s.reason)] > options_.max_skipped_samples; });
}

// Prefixes can be sampled, requests cannot: each may be the last use of a block that is kept. What requests take, prefixes leave free, down
// to an eighth of what both share; false: beyond that.
bool Audit::make_room() {
  const uint64_t shared = options_.memory_bytes * 3 / 8, used = trace_->request_bytes() + calls_.size() * kCallBytes;
  if (used > shared - shared / 8) return false;
  trace_->tree.set_max_blocks((shared - used) / kBlockBytes);
  return true;
}

void Audit::commit(PreparedRequest&& request, size_t file) {
  if (request.call != 0 && !calls_.insert(request.call).second) {
    ++input_.skipped[static_cast<size_t>(Skip::kCopy)];
    return;
  }
  ++input_.records_by_format[static_cast<size_t>(request.format)];
  input_.num_incomplete += request.incomplete;
  if (request.lengths_only) return lengths_.add(request.model, request.time_us, request.usage);
  if (!trace_) {
    trace_ = std::make_unique<RequestTrace>(request.block_tokens, UINT32_MAX, options_.sample_rate, options_.sample_seed);
    trace_->partial_blocks = request.hashed;
  }
  if (request.hashed != trace_->partial_blocks || request.block_tokens != trace_->block_tokens) {
    ++input_.skipped[static_cast<size_t>(request.hashed != trace_->partial_blocks ? Skip::kOtherKind : Skip::kOtherBlocks)];
    return;
  }
  if (!make_room()) {
    ++input_.skipped[static_cast<size_t>(Skip::kBeyondMemory)];
    return;
  }
  const bool same_file = std::exchange(clock_file_, file) == file;
  if (request.time_us && !request.hashed && !is_clock_us(*request.time_us)) {
    ++input_.num_wrong_clock;
    request.time_us.reset();
  } else if (!request.time_us) {
    ++input_.num_without_time;
  } else if (same_file && *request.time_us < clock_us_ - kBackwardUs) {
    ++input_.num_backward;
  }
  if (request.time_us && !std::exchange(has_clock_, true)) {
    // Records before the first time in a log happened when it says that it began.
    for (TracedRequest& before : trace_->requests) before.time_us = *request.time_us;
  }
  TracedRequest r;
  r.time_us = clock_us_ = request.time_us.value_or(clock_us_);
  r.head_blocks = static_cast<uint32_t>(request.head_tokens / request.block_tokens);
  r.tenant = trace_->tenants.id(request.tenant);
  if (!request.session.empty()) r.session = XXH3_64bits(request.session.data(), request.session.size()) | 1;
  r.model = trace_->models.id(request.model);
  r.input_tokens = token_count(request.input_tokens);
  r.logged_input = token_count(request.usage.input);
  r.logged_cached = token_count(request.usage.cached);
  r.logged_written = token_count(request.usage.written);
  r.logged_written_1h = token_count(request.usage.written_1h);
  r.output_tokens = token_count(request.usage.output);
  uint32_t num_known = trace_->add(r, request.keys);
  if (request.hashed) return;
  if (trace_->tree.sampled()) num_known = std::max(num_known, seen_.add(request.keys));
  const int64_t known = int64_t{num_known} * request.block_tokens;
  repetition_.add(request, known);
  breakers_.add(std::move(request), known);
}

Result<> Audit::append(Findings other) {
  if (other.trace && options_.redact) other.trace->rename_tenants(digest_of);
  if (other.trace && !trace_) {
    trace_ = std::make_unique<RequestTrace>(other.trace->block_tokens, options_.memory_bytes * 3 / 8 / kBlockBytes, 1, other.trace->tree.seed());
    trace_->partial_blocks = other.trace->partial_blocks;
  }
  if (other.trace && !other.trace->requests.empty()) {
    const size_t before = trace_->requests.size();
    DI_TRY(trace_->append(*other.trace));
    // As in one run: requests without a time take the last one before them, or the first of all.
    std::deque<TracedRequest>& requests = trace_->requests;
    if (has_clock_ && !other.has_times && before > 0) {
      for (size_t i = before; i < requests.size(); ++i) requests[i].time_us = requests[before - 1].time_us;
    } else if (other.has_times && !has_clock_) {
      for (size_t i = 0; i < before; ++i) requests[i].time_us = requests[before].time_us;
    }
  }
  has_clock_ |= other.has_times;
  lengths_.append(other.lengths);
  input_.append(other.input);
  for (Breaker& breaker : other.breakers) breakers_.append(std::move(breaker));
  repetition_.append(other.repeated_tokens);
  return {};
}

}  // namespace deepinfer::trace
