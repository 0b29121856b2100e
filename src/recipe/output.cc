#include "recipe/output.h"

#include <algorithm>
#include <deque>
#include <string_view>

#include "base/check.h"
#include "recipe/markers.h"
#include "recipe/stop_strings.h"
#include "recipe/tool_call_parser.h"

namespace deepinfer::recipe {
namespace {

using Kind = OutputEvent::Kind;

// What begins a value in JSON mode; fences come first, a bare value begins with itself. What ends a fenced one.
const std::vector<std::string> kJsonOpeners = {"```json\n", "```\n", "{", "["};
constexpr size_t kNumFences = 2;
const std::vector<std::string> kJsonCloser = {"\n```"};

// How much of the end of a text may belong to a marker behind it: newlines, and "<" behind them.
struct MarkerTail {
  size_t num_newlines = 0;
  bool slant = false;

  void push(char c) {
    if (c == '\n') {
      num_newlines = slant ? 1 : num_newlines + 1;
      slant = false;
    } else {
      num_newlines = c == '<' && !slant ? num_newlines : 0;
      slant = c == '<';
    }
  }
  size_t size() const { return num_newlines + (slant ? 1 : 0); }
};

}  // namespace

// Text that is not yet decided waits in held_; everything before it was handed out or dropped.
struct OutputParser::State {
  // kJson: outside of the value, kJsonValue: inside.
  enum class Phase : uint8_t { kReasoning, kAnswer, kJson, kJsonValue, kCalls };

  State(const tokenizer::Tokenizer& tokenizer, OutputOptions opts);

  void take_token(const TokenEvent& event, bool show);
  void finish(FinishReason reason);
  bool done() const { return match >= 0 || (calls.finished() && options.single_tool_call); }

  void feed_all();
  void feed(Symbol symbol);
  void feed_think();
  void feed_think_end();
  void feed_text(std::string_view text);
  void feed_byte(char c);
  void begin_reasoning();
  void begin_answer();
  void begin_calls();
  void reasoning_byte(char c);
  void answer_byte(char c);
  void json_byte(char c);
  void json_value_byte(char c);
  bool found_stop(char c);
  void write_outside();
  void write(Kind kind, std::string_view text);
  void forget_marker();
  size_t tail_size() const { return options.syntax.parse_tool_calls ? tail.size() : 0; }

  void hand_out(Kind kind, size_t size);
  void drop(size_t size);

  OutputOptions options;
  MarkerReader reader;
  StopStrings stops, openers{kJsonOpeners}, closer{kJsonCloser};
  ToolCallParser calls;
  const tokenizer::Tokenizer* vocabulary;

  Phase phase = Phase::kAnswer;
  bool at_start = true;            // nothing but dropped newlines came: <think> may
  bool spelt_thoughts = false;     // the vocabulary has no <think> and </think>: the first is one at the start, the second in reasoning
  bool skip_newlines = false;      // right behind a marker, or at a trimmed start
  bool outside_written = false;    // kJson: the space for this run of outside text went out
  bool value_over = false;         // kJson: there was a value
  MarkerTail tail;
  std::vector<Symbol> symbols;
  std::string held;
  uint64_t held_position = 0;      // of held[0] in the text

  struct Waiting {
    TokenEvent event;
    uint64_t position;  // where its first byte is in the text
  };
  std::deque<Waiting> waiting;

  int32_t num_tokens = 0, reasoning_tokens = 0;
  int32_t match = -1;                // index of the stop string that was found
  int32_t completion_when_done = 0;
  bool finished = false;
  std::vector<OutputEvent>* out = nullptr;  // of the push() that is running
  size_t first_out = 0;
};

OutputParser::State::State(const tokenizer::Tokenizer& tokenizer, OutputOptions opts)
    : options(std::move(opts)),
      reader(tokenizer, {.markers = options.split_reasoning, .by_text = options.markers_by_text,
                         .hides_added_tokens = options.syntax.hides_added_tokens}),
      stops(options.stop),
      calls(options.syntax.tools, options.single_tool_call),
      vocabulary(&tokenizer) {
  spelt_thoughts = reader.reads_thoughts_by_text();
  skip_newlines = options.syntax.trim_start;
  switch (options.syntax.start) {
    case AnswerSyntax::Start::kReasoning:
      if (!options.split_reasoning) break;
      phase = Phase::kReasoning;
      at_start = false;
      break;
    case AnswerSyntax::Start::kJson: phase = Phase::kJson; break;
    case AnswerSyntax::Start::kToolCalls: phase = Phase::kCalls; break;
    case AnswerSyntax::Start::kAnswer: break;
  }
}

OutputParser::OutputParser(const tokenizer::Tokenizer& tokenizer, OutputOptions options)
    : state_(std::make_unique<State>(tokenizer, std::move(options))) {}
OutputParser::~OutputParser() = default;
OutputParser::OutputParser(OutputParser&&) noexcept = default;
OutputParser& OutputParser::operator=(OutputParser&&) noexcept = default;

bool OutputParser::stopped() const { return state_->done(); }

void OutputParser::push(const TokenEvent& event, std::vector<OutputEvent>& out) {
  State& s = *state_;
  CHECK(!s.finished);
  s.out = &out;
  s.first_out = out.size();
  const bool was_done = s.done();
  // A token that ended the answer is not part of it.
  if (event.has_token && !was_done) s.take_token(event, event.finished != FinishReason::kStop);
  if (event.finished && !s.done()) s.finish(*event.finished);
  // Tokens that were sampled before the cancel arrived depend on timing; what a client is told does not.
  if (s.done() && !was_done) s.completion_when_done = s.num_tokens;
  if (!event.finished) return;

  s.finished = true;
  OutputEvent end{.kind = Kind::kFinished, .reason = *event.finished, .num_calls = s.calls.num_complete(), .usage = event.usage};
  end.reasoning_tokens = s.reasoning_tokens;
  if (s.done()) {
    end.reason = FinishReason::kStop;
    if (s.match >= 0) end.stop_string = s.options.stop[static_cast<size_t>(s.match)];
    end.usage.completion_tokens = s.completion_when_done;
  } else if (end.reason == FinishReason::kError) {
    end.error = event.message;
  }
  out.push_back(std::move(end));
}

void OutputParser::State::take_token(const TokenEvent& event, bool show) {
  num_tokens += 1;
  if (phase == Phase::kReasoning) reasoning_tokens += 1;
  if (!show) return;
  if (options.keep_token_events && !vocabulary->is_special(event.token)) {
    waiting.push_back({event, held_position + held.size() + reader.num_waiting()});
  }
  reader.push(event.token, symbols);
  feed_all();
}

void OutputParser::State::finish(FinishReason reason) {
  reader.finish(symbols);
  feed_all();
  if (done()) return;
  switch (phase) {
    case Phase::kCalls:
      calls.finish(reason == FinishReason::kStop, *out, first_out);
      if (!calls.finished() && !calls.found_call()) write(Kind::kContent, calls.raw());
      break;
    case Phase::kJson:
      if (!held.empty()) write_outside();
      break;
    case Phase::kReasoning: hand_out(Kind::kReasoning, held.size()); break;
    case Phase::kAnswer:
    case Phase::kJsonValue: hand_out(Kind::kContent, held.size()); break;
  }
}

void OutputParser::State::feed_all() {
  for (size_t i = 0; i < symbols.size() && !done(); ++i) feed(symbols[i]);
  symbols.clear();
  if (!reader.reads_thoughts_by_text() || at_start || phase == Phase::kReasoning) return;
  reader.stop_reading_text(symbols);
  feed_all();
}

void OutputParser::State::feed(Symbol symbol) {
  if (phase == Phase::kCalls) {
    forget_marker();  // logprobs are of text
    // A control token that structures nothing is no text either.
    const bool stray = symbol.marker != Marker::kNone && !(symbol.marker == Marker::kDsml && calls.may_open_tag());
    if (stray && options.syntax.hides_added_tokens && !options.markers_by_text) return;
    return calls.push(symbol, *out, first_out);
  }
  switch (symbol.marker) {
    case Marker::kNone: return feed_byte(symbol.byte);
    case Marker::kThink: return feed_think();
    case Marker::kThinkEnd: return feed_think_end();
    case Marker::kDsml:
      if (options.syntax.parse_tool_calls && tail.slant && phase != Phase::kJsonValue) return begin_calls();
      return feed_text(spelling_of(Marker::kDsml));  // where no call can be, the middle of a tag is text
  }
}

// Where it means nothing, a model with a template of its own is shown as it writes.
void OutputParser::State::feed_think() {
  if (at_start) return begin_reasoning();
  const bool shown = spelt_thoughts || (phase != Phase::kReasoning && !options.syntax.hides_added_tokens);
  if (shown) return feed_text(spelling_of(Marker::kThink));
  forget_marker();
}

void OutputParser::State::feed_think_end() {
  if (phase == Phase::kReasoning) {
    hand_out(Kind::kReasoning, held.size() - (tail.slant ? 0 : tail.num_newlines));
    forget_marker();
    return begin_answer();
  }
  if (spelt_thoughts) return feed_text(spelling_of(Marker::kThinkEnd));
  forget_marker();  // a stray end of nothing
}

void OutputParser::State::feed_text(std::string_view text) {
  for (const char c : text) {
    if (!done()) feed_byte(c);
  }
}

void OutputParser::State::feed_byte(char c) {
  if (skip_newlines && c == '\n') {
    held += c;
    return drop(1);
  }
  skip_newlines = at_start = false;
  switch (phase) {
    case Phase::kReasoning: return reasoning_byte(c);
    case Phase::kAnswer: return answer_byte(c);
    case Phase::kJson: return json_byte(c);
    case Phase::kJsonValue: return json_value_byte(c);
    case Phase::kCalls: return;
  }
}

void OutputParser::State::begin_reasoning() {
  phase = Phase::kReasoning;
  at_start = false;
  skip_newlines = true;
  reasoning_tokens = num_tokens;
  forget_marker();
}

void OutputParser::State::begin_answer() {
  drop(held.size());
  phase = options.syntax.parse_json ? Phase::kJson : Phase::kAnswer;
  skip_newlines = true;
  tail = {};
}

// The newlines and the "<" in front of the marker are part of it.
void OutputParser::State::begin_calls() {
  const size_t text = held.size() - tail.size();
  if (phase != Phase::kJson) {
    hand_out(phase == Phase::kReasoning ? Kind::kReasoning : Kind::kContent, text);
  } else if (text > 0) {
    write_outside();
  }
  drop(held.size());
  forget_marker();
  phase = Phase::kCalls;
  calls.open_tag();
}

void OutputParser::State::reasoning_byte(char c) {
  held += c;
  tail.push(c);
  const size_t keep = tail.slant ? tail_size() : tail.num_newlines;
  hand_out(Kind::kReasoning, held.size() - keep);
}

// True: a stop string ended with c, the answer with what stands before it.
bool OutputParser::State::found_stop(char c) {
  match = stops.push(c);
  if (match < 0) return false;
  hand_out(Kind::kContent, held.size() - options.stop[static_cast<size_t>(match)].size());
  drop(held.size());
  return true;
}

void OutputParser::State::answer_byte(char c) {
  held += c;
  tail.push(c);
  if (found_stop(c)) return;
  hand_out(Kind::kContent, held.size() - std::max(stops.num_held(), tail_size()));
}

// Outside of the value, text is one space, and what may begin the value or a marker is held back.
void OutputParser::State::json_byte(char c) {
  held += c;
  tail.push(c);
  size_t keep = tail_size();
  if (!value_over) {
    if (const int32_t opener = openers.push(c); opener >= 0) {
      const size_t size = kJsonOpeners[static_cast<size_t>(opener)].size();
      if (held.size() > size) write_outside();
      const bool fenced = static_cast<size_t>(opener) < kNumFences;
      drop(held.size() - (fenced ? 0 : 1));
      phase = Phase::kJsonValue;
      if (!fenced) {  // a bare value begins with its bracket
        held.clear();
        json_value_byte(c);
      }
      return;
    }
    keep = std::max(keep, openers.num_held());
  }
  if (held.size() <= keep) return;
  write_outside();
  drop(held.size() - keep);
}

void OutputParser::State::json_value_byte(char c) {
  held += c;
  if (found_stop(c)) return;
  if (closer.push(c) < 0) return hand_out(Kind::kContent, held.size() - std::max(stops.num_held(), closer.num_held()));
  hand_out(Kind::kContent, held.size() - kJsonCloser[0].size());
  drop(held.size());
  phase = Phase::kJson;
  value_over = true;
  outside_written = false;
  tail = {};
}

void OutputParser::State::write_outside() {
  if (!outside_written) write(Kind::kContent, " ");
  outside_written = true;
}

void OutputParser::State::write(Kind kind, std::string_view text) {
  if (text.empty()) return;
  if (out->size() == first_out || out->back().kind != kind) out->push_back({.kind = kind});
  out->back().text += text;
}

// Hands out the beginning of what is held with the tokens that begin in it: of a token that a stop string cuts, the shown part is the
// first.
void OutputParser::State::hand_out(Kind kind, size_t size) {
  if (size == 0) return;
  write(kind, std::string_view(held).substr(0, size));
  held.erase(0, size);
  held_position += size;
  while (!waiting.empty() && waiting.front().position < held_position) {
    out->back().tokens.push_back(waiting.front().event);
    waiting.pop_front();
  }
}

void OutputParser::State::drop(size_t size) {
  held.erase(0, size);
  held_position += size;
  while (!waiting.empty() && waiting.front().position < held_position) waiting.pop_front();
}

// The token that brought a marker is no token of the text.
void OutputParser::State::forget_marker() {
  while (!waiting.empty() && waiting.back().position >= held_position + held.size()) waiting.pop_back();
}

}  // namespace deepinfer::recipe
