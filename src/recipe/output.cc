#include "recipe/output.h"

#include <deque>
#include <string_view>

#include "recipe/stop_strings.h"

namespace deepinfer::recipe {
namespace {
constexpr std::string_view kOpen = "<think>", kClose = "</think>";
}  // namespace

// Decoded text waits in buffer_[begin_, end) until it is known what it is; [begin_, seen_) was looked at and is held back.
struct OutputParser::State {
  enum class Phase : uint8_t { kStart, kReasoning, kAnswer };

  State(const tokenizer::Tokenizer& tokenizer, OutputOptions opts)
      : options(std::move(opts)), detokenizer(tokenizer), stops(options.stop), vocabulary(&tokenizer) {
    open_id = tokenizer.special_id(kOpen);
    close_id = tokenizer.special_id(kClose);
    by_text = options.split_reasoning && !(open_id && close_id);
    if (!options.split_reasoning) {
      phase = Phase::kAnswer;
    } else if (options.syntax.start == AnswerSyntax::Start::kReasoning) {
      enter(Phase::kReasoning);
    }
  }

  void take_token(const TokenEvent& event, bool show);
  void finish_decoding();
  void scan();
  void scan_start();
  void scan_reasoning();
  void scan_answer();
  void enter(Phase next);
  void leave_reasoning();
  void hand_out(OutputEvent::Kind kind, size_t end);
  void drop(size_t end);
  void flush_held();

  OutputOptions options;
  tokenizer::Detokenizer detokenizer;
  StopStrings stops;
  const tokenizer::Tokenizer* vocabulary;
  std::optional<TokenId> open_id, close_id;
  bool by_text = false;  // the vocabulary has no such tokens: <think> counts as text at the very start, </think> after it

  Phase phase = Phase::kStart;
  bool skip_newlines = false;  // right behind a marker
  size_t num_matched = 0;      // by_text: of kOpen or kClose, at the end of what was seen
  std::string buffer;
  size_t begin = 0, seen = 0;
  uint64_t begin_position = 0;  // of buffer[begin] in the decoded text

  struct Waiting {
    TokenEvent event;
    uint64_t position;  // where its first byte is in the decoded text
  };
  std::deque<Waiting> waiting;

  int32_t num_tokens = 0, reasoning_tokens = 0;
  int32_t match = -1;                // index of the stop string that was found
  int32_t completion_at_match = 0;
  bool finished = false;
  std::vector<OutputEvent>* out = nullptr;  // of the push() that is running
  size_t first_out = 0;
};

OutputParser::OutputParser(const tokenizer::Tokenizer& tokenizer, OutputOptions options)
    : state_(std::make_unique<State>(tokenizer, std::move(options))) {}
OutputParser::~OutputParser() = default;
OutputParser::OutputParser(OutputParser&&) noexcept = default;
OutputParser& OutputParser::operator=(OutputParser&&) noexcept = default;

bool OutputParser::stopped() const { return state_->match >= 0; }

void OutputParser::push(const TokenEvent& event, std::vector<OutputEvent>& out) {
  State& s = *state_;
  CHECK(!s.finished);
  s.out = &out;
  s.first_out = out.size();
  const bool was_stopped = stopped();
  // A token that ended the answer is not part of it.
  if (event.has_token && !was_stopped) s.take_token(event, event.finished != FinishReason::kStop);
  if (event.finished && !stopped()) s.finish_decoding();
  // Tokens that were sampled before the cancel arrived depend on timing; what a client is told does not.
  if (stopped() && !was_stopped) s.completion_at_match = s.num_tokens;
  if (!event.finished) return;

  s.finished = true;
  OutputEvent end{.kind = OutputEvent::Kind::kFinished, .reason = *event.finished, .usage = event.usage};
  end.reasoning_tokens = s.reasoning_tokens;
  if (stopped()) {
    end.reason = FinishReason::kStop;
    end.stop_string = s.options.stop[static_cast<size_t>(s.match)];
    end.usage.completion_tokens = s.completion_at_match;
  } else if (end.reason == FinishReason::kError) {
    end.error = event.message;
  }
  out.push_back(std::move(end));
}

void OutputParser::State::take_token(const TokenEvent& event, bool show) {
  num_tokens += 1;
  const bool marks = options.split_reasoning && !by_text;
  if (marks && event.token == open_id && phase == Phase::kStart) enter(Phase::kReasoning);
  if (phase == Phase::kReasoning) reasoning_tokens += 1;
  if (!show) return;
  if (marks && phase == Phase::kReasoning && event.token == open_id) return;
  if (marks && event.token == close_id) {
    if (phase == Phase::kReasoning) {
      detokenizer.finish(buffer);
      scan();
      leave_reasoning();
    }
    return;  // elsewhere a stray end of nothing
  }
  if (marks && phase == Phase::kStart) phase = Phase::kAnswer;
  if (options.keep_token_events && !vocabulary->is_special(event.token)) {
    waiting.push_back({event, begin_position + (buffer.size() - begin)});
  }
  detokenizer.push(event.token, buffer);
  scan();
}

void OutputParser::State::finish_decoding() {
  detokenizer.finish(buffer);
  scan();
  if (match < 0) flush_held();
}

void OutputParser::State::scan() {
  if (phase == Phase::kStart) scan_start();
  if (phase == Phase::kReasoning) scan_reasoning();
  if (phase == Phase::kAnswer) scan_answer();
  // The front is cut off when it is the larger part, so each byte moves a bounded number of times.
  if (begin > buffer.size() / 2) {
    buffer.erase(0, begin);
    seen -= begin;
    begin = 0;
  }
}

// by_text only: with control tokens the first token decides.
void OutputParser::State::scan_start() {
  while (seen < buffer.size()) {
    if (buffer[seen] != kOpen[num_matched]) {
      seen = begin;
      enter(Phase::kAnswer);
      skip_newlines = false;  // an answer without reasoning begins as it is
      return;
    }
    ++seen;
    if (++num_matched < kOpen.size()) continue;
    drop(seen);
    reasoning_tokens = num_tokens;
    return enter(Phase::kReasoning);
  }
}

// Holds back newlines and, by_text, the beginning of </think>: both vanish if it comes.
void OutputParser::State::scan_reasoning() {
  while (seen < buffer.size()) {
    const char c = buffer[seen];
    if (skip_newlines && c == '\n') {
      drop(++seen);
      continue;
    }
    skip_newlines = false;
    if (by_text && c == kClose[num_matched]) {
      ++seen;
      if (++num_matched == kClose.size()) return leave_reasoning();
      continue;
    }
    if (num_matched > 0) {  // only '<' begins kClose, so no shorter beginning is left: look at c again
      num_matched = 0;
      hand_out(OutputEvent::Kind::kReasoning, seen);
      continue;
    }
    ++seen;
    if (c != '\n') hand_out(OutputEvent::Kind::kReasoning, seen);
  }
}

void OutputParser::State::scan_answer() {
  while (seen < buffer.size()) {
    const char c = buffer[seen++];
    if (skip_newlines && c == '\n') {
      drop(seen);
      continue;
    }
    skip_newlines = false;
    match = stops.push(c);
    if (match < 0) continue;
    hand_out(OutputEvent::Kind::kContent, seen - options.stop[static_cast<size_t>(match)].size());
    drop(buffer.size());
    return;
  }
  hand_out(OutputEvent::Kind::kContent, seen - stops.num_held());
}

void OutputParser::State::enter(Phase next) {
  phase = next;
  num_matched = 0;
  skip_newlines = true;
}

// Drops what is held: newlines and the marker.
void OutputParser::State::leave_reasoning() {
  drop(seen);
  enter(Phase::kAnswer);
}

// Hands out the text up to `end` with the tokens that begin in it: of a token that a stop string cuts, the shown part is the first.
void OutputParser::State::hand_out(OutputEvent::Kind kind, size_t end) {
  if (end <= begin) return;
  if (out->size() == first_out || out->back().kind != kind) out->push_back({.kind = kind});
  OutputEvent& event = out->back();
  event.text.append(buffer, begin, end - begin);
  begin_position += end - begin;
  begin = end;
  while (!waiting.empty() && waiting.front().position < begin_position) {
    event.tokens.push_back(waiting.front().event);
    waiting.pop_front();
  }
}

void OutputParser::State::drop(size_t end) {
  begin_position += end - begin;
  begin = end;
  seen = std::max(seen, end);
  while (!waiting.empty() && waiting.front().position < begin_position) waiting.pop_front();
}

void OutputParser::State::flush_held() {
  const auto kind = phase == Phase::kReasoning ? OutputEvent::Kind::kReasoning : OutputEvent::Kind::kContent;
  hand_out(kind, buffer.size());
}

}  // namespace deepinfer::recipe
