#include "recipe/output.h"

#include <gtest/gtest.h>

#include "base/rng.h"
#include "recipe/fake_tokenizer.h"
#include "recipe/stop_strings.h"

namespace deepinfer::recipe {
namespace {

using Kind = OutputEvent::Kind;

constexpr TokenId kEos = 2, kOpen = 3, kClose = 4;

FakeTokenizer with_think() {
  return FakeTokenizer({{kEos, "<eos>", true}, {kOpen, "<think>", false}, {kClose, "</think>", false}});
}
// Pieces of several bytes, as added tokens that are not special.
FakeTokenizer without_think(std::vector<std::string> pieces = {}) {
  std::vector<tokenizer::Tokenizer::AddedToken> added{{kEos, "<eos>", true}};
  for (size_t i = 0; i < pieces.size(); ++i) added.push_back({static_cast<TokenId>(100 + i), pieces[i], false});
  return FakeTokenizer(std::move(added));
}

struct Got {
  std::string reasoning, content, shown;  // shown: R and C with the text, in order
  std::vector<OutputEvent> events;
  OutputEvent end;
  std::vector<TokenId> tokens;  // carried
};

// Runs tokens through a parser; the last event has `reason`.
Got run(const FakeTokenizer& tokenizer, OutputOptions options, const std::vector<TokenId>& tokens, FinishReason reason) {
  OutputParser parser(tokenizer, std::move(options));
  Got got;
  std::vector<OutputEvent> out;
  for (size_t i = 0; i < tokens.size(); ++i) {
    TokenEvent event{.has_token = true, .token = tokens[i]};
    event.usage = {.prompt_tokens = 5, .completion_tokens = static_cast<int32_t>(i + 1)};
    if (i + 1 == tokens.size()) event.finished = reason;
    parser.push(event, out);
  }
  if (tokens.empty()) parser.push({.finished = reason}, out);
  for (OutputEvent& event : out) {
    if (event.kind == Kind::kFinished) {
      EXPECT_EQ(got.end.kind, Kind::kContent) << "finished twice";
      got.end = event;
      continue;
    }
    EXPECT_FALSE(event.text.empty());
    EXPECT_NE(got.end.kind, Kind::kFinished);
    (event.kind == Kind::kReasoning ? got.reasoning : got.content) += event.text;
    got.shown += (event.kind == Kind::kReasoning ? "R" : "C") + event.text;
    for (const TokenEvent& token : event.tokens) got.tokens.push_back(token.token);
  }
  EXPECT_EQ(got.end.kind, Kind::kFinished);
  got.events = std::move(out);
  return got;
}

std::vector<TokenId> encode(const FakeTokenizer& tokenizer, std::string_view text) {
  std::vector<TokenId> ids;
  tokenizer.encode(text, tokenizer::Recognize::kAll, ids);
  return ids;
}

Got run_text(const FakeTokenizer& tokenizer, OutputOptions options, std::string_view text, FinishReason reason = FinishReason::kLength) {
  return run(tokenizer, std::move(options), encode(tokenizer, text), reason);
}

TEST(OutputParser, PlainAnswer) {
  const auto got = run_text(with_think(), {}, "\nHi, é😀 < </thin\n<eos>", FinishReason::kStop);
  EXPECT_EQ(got.content, "\nHi, é😀 < </thin\n");
  EXPECT_EQ(got.end.reason, FinishReason::kStop);
  EXPECT_EQ(got.end.reasoning_tokens, 0);
  EXPECT_EQ(got.end.usage.prompt_tokens, 5);
}

TEST(OutputParser, SplitsReasoningByTokens) {
  const FakeTokenizer tokenizer = with_think();
  auto got = run_text(tokenizer, {}, "<think>\n\nhm\nyes\n\n</think>\n\nAnswer </think><think>\n");
  EXPECT_EQ(got.reasoning, "hm\nyes");
  EXPECT_EQ(got.content, "Answer <think>\n");
  EXPECT_EQ(got.end.reasoning_tokens, 12);
  // As the R1 template begins it; text that spells the marker is none.
  FakeTokenizer spelled({{kOpen, "<think>", false}, {kClose, "</think>", false}});
  std::vector<TokenId> ids;
  spelled.encode("a </think> b", tokenizer::Recognize::kNothing, ids);
  ids.push_back(kClose);
  ids.push_back(FakeTokenizer::kFirstByte + 'c');
  got = run(spelled, {.syntax = {.start = AnswerSyntax::Start::kReasoning}}, ids, FinishReason::kLength);
  EXPECT_EQ(got.reasoning, "a </think> b");
  EXPECT_EQ(got.content, "c");
  // Ended inside.
  got = run_text(tokenizer, {.syntax = {.start = AnswerSyntax::Start::kReasoning}}, "hm\n\n");
  EXPECT_EQ(got.shown, "RhRmR\n\n");
  // Switched off, everything is the answer.
  got = run_text(tokenizer, {.split_reasoning = false}, "<think>\nx</think>\ny");
  EXPECT_EQ(got.content, "<think>\nx</think>\ny");
}

TEST(OutputParser, SplitsReasoningByText) {
  const FakeTokenizer tokenizer = without_think();
  auto got = run_text(tokenizer, {}, "<think>\nhm < </thi\n</think>\n\nAnswer </think> <think>");
  EXPECT_EQ(got.reasoning, "hm < </thi");
  EXPECT_EQ(got.content, "Answer </think> <think>");
  EXPECT_EQ(got.end.reasoning_tokens, 27);
  for (const char* text : {" <think>x</think>", "<thin", "<thinking>", "x<think>", "<", "<\n", "<<think>"}) {
    got = run_text(tokenizer, {}, text);
    EXPECT_EQ(got.content, text);
    EXPECT_EQ(got.reasoning, "");
  }
  got = run_text(tokenizer, {}, "<think>a<</think>b");
  EXPECT_EQ(got.reasoning, "a<");
  EXPECT_EQ(got.content, "b");
  got = run_text(tokenizer, {.syntax = {.start = AnswerSyntax::Start::kReasoning}}, "a\n\n</thin");
  EXPECT_EQ(got.reasoning, "a\n\n</thin");
}

TEST(OutputParser, StopStrings) {
  const FakeTokenizer tokenizer = with_think();
  auto got = run_text(tokenizer, {.stop = {"STOP"}}, "one STO two STOP three");
  EXPECT_EQ(got.content, "one STO two ");
  EXPECT_EQ(got.end.reason, FinishReason::kStop);
  EXPECT_EQ(got.end.stop_string, "STOP");
  EXPECT_EQ(got.end.usage.completion_tokens, 16);
  // The earliest end wins, then the longest.
  got = run_text(tokenizer, {.stop = {"abcd", "bc"}}, "xabcd");
  EXPECT_EQ(got.content, "xa");
  EXPECT_EQ(got.end.stop_string, "bc");
  got = run_text(tokenizer, {.stop = {"c", "abc", "bc"}}, "xabcd");
  EXPECT_EQ(got.content, "x");
  EXPECT_EQ(got.end.stop_string, "abc");
  // Not in reasoning, and not across its end.
  got = run_text(tokenizer, {.stop = {"X", "Y"}}, "<think>aX</think>YZ");
  EXPECT_EQ(got.reasoning, "aX");
  EXPECT_EQ(got.content, "");
  EXPECT_EQ(got.end.stop_string, "Y");
  // A held beginning comes out at the end; so does an unfinished code point.
  got = run(tokenizer, {.stop = {"<|end|>"}}, encode(tokenizer, "a<|en\xe2\x82"), FinishReason::kLength);
  EXPECT_EQ(got.content, "a<|en\xef\xbf\xbd");
  EXPECT_EQ(got.end.reason, FinishReason::kLength);
  EXPECT_EQ(got.end.stop_string, std::nullopt);
  // A match with the last token; empty strings never match.
  got = run_text(tokenizer, {.stop = {"", "b"}}, "ab");
  EXPECT_EQ(got.content, "a");
  EXPECT_EQ(got.end.stop_string, "b");
}

TEST(OutputParser, StaysSilentAfterAStopString) {
  const FakeTokenizer tokenizer = with_think();
  OutputParser parser(tokenizer, {.stop = {"b"}});
  std::vector<OutputEvent> out;
  for (const char c : std::string_view("abc")) parser.push({.has_token = true, .token = FakeTokenizer::kFirstByte + c}, out);
  EXPECT_TRUE(parser.stopped());
  ASSERT_EQ(out.size(), 1u);
  parser.push({.finished = FinishReason::kCancelled, .usage = {.prompt_tokens = 7, .completion_tokens = 3}, .message = "x"}, out);
  ASSERT_EQ(out.size(), 2u);
  EXPECT_EQ(out[1].reason, FinishReason::kStop);
  EXPECT_EQ(out[1].usage.prompt_tokens, 7);
  EXPECT_EQ(out[1].usage.completion_tokens, 2);
}

TEST(OutputParser, EndsWithTheReasonOfTheEngine) {
  const FakeTokenizer tokenizer = with_think();
  OutputParser parser(tokenizer, {});
  std::vector<OutputEvent> out;
  parser.push({.finished = FinishReason::kError, .message = "a fault"}, out);
  ASSERT_EQ(out.size(), 1u);
  EXPECT_EQ(out[0].reason, FinishReason::kError);
  EXPECT_EQ(out[0].error, "a fault");
  // The token that stopped the answer is not shown, special or not.
  EXPECT_EQ(run_text(tokenizer, {}, "ab", FinishReason::kStop).content, "a");
}

TEST(OutputParser, CarriesTokens) {
  const FakeTokenizer tokenizer = without_think({"hello wor", "ld ST", "OP"});
  auto got = run(tokenizer, {.stop = {"STOP"}, .keep_token_events = true}, {100, 101, 102, 100}, FinishReason::kLength);
  EXPECT_EQ(got.content, "hello world ");
  EXPECT_EQ(got.tokens, (std::vector<TokenId>{100, 101}));
  // The bytes of one character come together.
  std::vector<TokenId> bytes = encode(tokenizer, "😀!");
  got = run(tokenizer, {.keep_token_events = true}, bytes, FinishReason::kLength);
  ASSERT_EQ(got.events.size(), 3u);
  EXPECT_EQ(got.events[0].text, "😀");
  EXPECT_EQ(got.events[0].tokens.size(), 4u);
  EXPECT_EQ(got.tokens, bytes);
  EXPECT_TRUE(run_text(tokenizer, {}, "abc").tokens.empty());
}

// The twin: the whole text at once.
struct Whole {
  std::string reasoning, content;
  std::optional<std::string> stop;
};
Whole whole(std::string text, const OutputOptions& options) {
  Whole out;
  const auto lead = [](std::string& t) { t.erase(0, std::min(t.find_first_not_of('\n'), t.size())); };
  bool reasoning = options.syntax.start == AnswerSyntax::Start::kReasoning;
  if (!reasoning && text.starts_with("<think>")) {
    reasoning = true;
    text.erase(0, 7);
  }
  if (reasoning) {
    lead(text);
    const size_t end = text.find("</think>");
    out.reasoning = text.substr(0, end);
    if (end == std::string::npos) return out;
    while (out.reasoning.ends_with('\n')) out.reasoning.pop_back();
    text.erase(0, end + 8);
    lead(text);
  }
  size_t best_end = std::string::npos;
  for (const std::string& stop : options.stop) {
    const size_t at = text.find(stop);
    if (at == std::string::npos) continue;
    const size_t end = at + stop.size();
    if (end < best_end || (end == best_end && stop.size() > out.stop->size())) {
      best_end = end;
      out.stop = stop;
    }
  }
  out.content = out.stop ? text.substr(0, best_end - out.stop->size()) : text;
  return out;
}

TEST(OutputParser, EqualsTheTwinHoweverTokensCutTheText) {
  Rng rng(7);
  const std::string_view parts[] = {"a", "b", "ab", "<", "</", "think>", "<think>", "</think>", "\n", "\n\n", "é", "😀", "aba"};
  const auto words = [&](int n) {
    std::string text;
    for (int i = 0; i < n; ++i) text += parts[rng.below(std::size(parts))];
    return text;
  };
  for (int round = 0; round < 4000; ++round) {
    OutputOptions options{.keep_token_events = true};
    if (rng.below(2) == 0) options.syntax = {.start = AnswerSyntax::Start::kReasoning, .trim_start = true};
    for (uint64_t i = rng.below(4); i > 0; --i) options.stop.push_back(words(1 + static_cast<int>(rng.below(3))));
    std::string text = words(static_cast<int>(rng.below(12)));
    if (rng.below(3) == 0) text = "<think>" + text;
    SCOPED_TRACE(text);
    const Whole expected = whole(text, options);

    // Cut anywhere, within code points too.
    std::vector<std::string> pieces;
    for (size_t at = 0; at < text.size();) {
      const size_t n = 1 + rng.below(5);
      pieces.push_back(text.substr(at, n));
      at += n;
    }
    const FakeTokenizer tokenizer = without_think(pieces);
    OutputParser parser(tokenizer, options);
    std::string reasoning, content;
    std::vector<TokenId> carried;
    std::vector<OutputEvent> out;
    for (size_t i = 0; i <= pieces.size(); ++i) {
      out.clear();
      if (i == pieces.size()) {
        parser.push({.finished = FinishReason::kLength}, out);
      } else {
        parser.push({.has_token = true, .token = static_cast<TokenId>(100 + i)}, out);
      }
      for (const OutputEvent& event : out) {
        (event.kind == Kind::kReasoning ? reasoning : content) += event.text;
        for (const TokenEvent& token : event.tokens) carried.push_back(token.token);
      }
      // Nothing that may yet be taken back was shown.
      ASSERT_TRUE(expected.content.starts_with(content));
      ASSERT_TRUE(expected.reasoning.starts_with(reasoning));
    }
    ASSERT_EQ(reasoning, expected.reasoning);
    ASSERT_EQ(content, expected.content);
    ASSERT_EQ(out.back().kind, Kind::kFinished);
    ASSERT_EQ(out.back().stop_string, expected.stop);
    ASSERT_TRUE(std::is_sorted(carried.begin(), carried.end()));
    ASSERT_TRUE(std::adjacent_find(carried.begin(), carried.end()) == carried.end());
  }
}

TEST(OutputParser, ShowsNoThinkTokenInsideACall) {
  const FakeTokenizer tokenizer({{kOpen, "<think>", false}, {kClose, "</think>", false}, {5, "｜DSML｜", false}});
  OutputOptions options{.syntax = {.parse_tool_calls = true, .hides_added_tokens = true}};
  OutputParser parser(tokenizer, options);
  std::vector<OutputEvent> out;
  for (const TokenId id : encode(tokenizer, "<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"f\">\n<｜DSML｜ parameter name=\"a\" string=\"true\">x<think>y</think>z</｜DSML｜ parameter>\n"
                                            "</｜DSML｜ invoke>\n</｜DSML｜ calls>")) {
    parser.push({.has_token = true, .token = id}, out);
  }
  std::string arguments;
  for (const OutputEvent& event : out) {
    if (event.kind == Kind::kArguments) arguments += event.text;
  }
  EXPECT_EQ(arguments, R"({"a": "xyz"})");
}

// A model may sample any control token anywhere; where it structures nothing, nobody sees it. Outside a call the middle of a tag is text, as the
// reference has it.
TEST(OutputParser, ShowsNoControlTokenThatStandsAnywhere) {
  const FakeTokenizer tokenizer({{kOpen, "<think>", false}, {kClose, "</think>", false}, {5, "｜DSML｜", false}, {6, "<｜User｜>", true}});
  const std::string call = "<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"f\">\n<｜DSML｜ parameter name=\"a\" string=\"true\">x < y</｜DSML｜ parameter>\n"
                           "<｜DSML｜ parameter name=\"b\" string=\"false\">[1, 2]</｜DSML｜ parameter>\n</｜DSML｜ invoke>\n</｜DSML｜ calls>";
  for (const auto start : {AnswerSyntax::Start::kReasoning, AnswerSyntax::Start::kAnswer, AnswerSyntax::Start::kJson}) {
    const std::string answer = std::string(start == AnswerSyntax::Start::kReasoning ? "Hm.</think>" : "") + "ab {\"c\": [1]} d\n\n" + call;
    const std::vector<TokenId> plain = encode(tokenizer, answer);
    for (const TokenId control : {kOpen, kClose, TokenId{5}, TokenId{6}}) {
      for (size_t place = 1; place < plain.size(); ++place) {
        std::vector<TokenId> tokens = plain;
        tokens.insert(tokens.begin() + static_cast<ptrdiff_t>(place), control);
        OutputParser parser(tokenizer, {.syntax = {.start = start, .parse_tool_calls = true, .parse_json = start == AnswerSyntax::Start::kJson, .hides_added_tokens = true}});
        std::vector<OutputEvent> out;
        for (const TokenId id : tokens) parser.push({.has_token = true, .token = id}, out);
        parser.push({.finished = FinishReason::kStop}, out);
        std::string shown, arguments;
        for (const OutputEvent& event : out) (event.kind == Kind::kArguments ? arguments : shown) += event.text;
        for (const char* spelling : {"<think>", "</think>", "<｜User｜>"}) EXPECT_EQ(shown.find(spelling), std::string::npos) << control << " at " << place << ": " << shown;
        for (const char* spelling : {"<think>", "</think>", "<｜User｜>", "｜DSML｜"})
          EXPECT_EQ(arguments.find(spelling), std::string::npos) << control << " at " << place << ": " << arguments;
      }
    }
  }
}

TEST(OutputParser, HoldsBackOnlyWhatMayBeAStopString) {
  const FakeTokenizer tokenizer = without_think();
  Rng rng(11);
  for (int round = 0; round < 500; ++round) {
    OutputOptions options;
    for (int i = 0; i < 3; ++i) {
      std::string stop;
      for (uint64_t n = 1 + rng.below(5); n > 0; --n) stop += static_cast<char>('a' + rng.below(2));
      options.stop.push_back(stop + "c");
    }
    OutputParser parser(tokenizer, options);
    std::string text, content;
    std::vector<OutputEvent> out;
    for (int i = 0; i < 30; ++i) {
      text += static_cast<char>('a' + rng.below(2));
      out.clear();
      parser.push({.has_token = true, .token = FakeTokenizer::kFirstByte + text.back()}, out);
      for (const OutputEvent& event : out) content += event.text;
      size_t held = 0;  // the longest end of the text that begins a stop string
      for (const std::string& stop : options.stop) {
        for (size_t n = 1; n <= std::min(stop.size(), text.size()); ++n) {
          if (text.ends_with(stop.substr(0, n))) held = std::max(held, n);
        }
      }
      ASSERT_EQ(content, text.substr(0, text.size() - held));
    }
  }
}

TEST(OutputParser, IsLinear) {
  // Text that nearly matches a long stop string at every place, and a long run of newlines in reasoning: quadratic work would take
  // minutes.
  const FakeTokenizer tokenizer = without_think();
  const std::string as(200'000, 'a'), newlines(200'000, '\n');
  EXPECT_EQ(run_text(tokenizer, {.stop = {std::string(4'000, 'a') + "b", "ab"}}, as).content, as);
  EXPECT_EQ(run_text(tokenizer, {.syntax = {.start = AnswerSyntax::Start::kReasoning}}, "x" + newlines + "y").reasoning, "x" + newlines + "y");
}

}  // namespace
}  // namespace deepinfer::recipe
