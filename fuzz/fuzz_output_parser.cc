// LIBS: di_recipe
//
// Hostile answers. Input: a byte of options, a byte for the stop string, then tokens: bytes as themselves, bytes from 0xf0 on as markers,
// control tokens and longer pieces of markup. However the tokens are handed over, the events are the same when joined; no event is empty;
// calls are announced, filled and ended in order, and the arguments of an ended call are a JSON object; what came from control tokens is
// never in visible text.
#include <cstdint>
#include <string>
#include <vector>

#include "recipe/fake_tokenizer.h"
#include "recipe/json_text.h"
#include "recipe/output.h"

using namespace deepinfer;
using namespace deepinfer::recipe;

namespace {

using Kind = OutputEvent::Kind;

constexpr TokenId kThink = 0, kThinkEnd = 1, kDsml = 2, kUser = 3, kFirstPiece = 4;
const std::vector<std::string> kPieces = {"<",  "</", " calls>\n", "tool_calls>", "invoke name=\"f\">\n", " parameter name=\"a\" string=\"true\">",
                                          "parameter name=\"b\" string=\"false\">", "parameter>", "invoke>", "```json\n", "\n```", "{\"a\": 1}"};

FakeTokenizer make_tokenizer() {
  std::vector<tokenizer::Tokenizer::AddedToken> added = {
      {kThink, "<think>", false}, {kThinkEnd, "</think>", false}, {kDsml, "｜DSML｜", false}, {kUser, "<｜User｜>", false}};
  return FakeTokenizer(std::move(added));
}

// Tokens of the input; pieces are spelt out, since the vocabulary of the tests has one token a byte.
std::vector<TokenId> tokens_of(const uint8_t* data, size_t size) {
  std::vector<TokenId> out;
  for (size_t i = 0; i < size; ++i) {
    const int special = data[i] - 0xf0;
    if (special < 0) {
      out.push_back(FakeTokenizer::kFirstByte + data[i]);
    } else if (special < kFirstPiece) {
      out.push_back(special);
    } else {
      for (const char c : kPieces[static_cast<size_t>(special - kFirstPiece) % kPieces.size()]) {
        out.push_back(FakeTokenizer::kFirstByte + static_cast<uint8_t>(c));
      }
    }
  }
  return out;
}

OutputOptions options_of(uint8_t bits, uint8_t stop) {
  OutputOptions out;
  out.syntax = {.start = static_cast<AnswerSyntax::Start>(bits & 3), .trim_start = (bits & 4) != 0, .parse_tool_calls = (bits & 8) != 0,
                .parse_json = (bits & 16) != 0, .hides_added_tokens = true, .tools = {{.name = "f", .properties = {"a"}}}};
  out.single_tool_call = (bits & 32) != 0;
  out.markers_by_text = (bits & 64) != 0;
  if ((stop & 1) != 0) out.stop = {std::string(1 + stop % 3, static_cast<char>(stop)), "ab", "\n<"};
  return out;
}

// The events as one text. tokens_per_read: after how many tokens the caller looks.
std::string run(const FakeTokenizer& tokenizer, const OutputOptions& options, const std::vector<TokenId>& tokens, FinishReason reason,
                size_t tokens_per_read) {
  OutputParser parser(tokenizer, options);
  std::vector<OutputEvent> events, all;
  const auto read = [&] {
    for (OutputEvent& event : events) all.push_back(std::move(event));
    events.clear();
  };
  for (size_t i = 0; i < tokens.size() && !parser.stopped(); ++i) {
    parser.push({.has_token = true, .token = tokens[i]}, events);
    if (i % tokens_per_read == 0) read();
  }
  parser.push({.finished = reason}, events);
  read();

  std::string out, arguments;
  int32_t num_calls = 0;
  bool in_call = false;
  Kind last = Kind::kFinished;
  for (const OutputEvent& event : all) {
    const bool is_text = event.kind == Kind::kReasoning || event.kind == Kind::kContent;
    if (is_text || event.kind == Kind::kArguments) CHECK(!event.text.empty());
    if (is_text) CHECK(num_calls == 0);
    if (event.kind == Kind::kArguments) CHECK(in_call);
    if (event.kind == Kind::kCallStart) {
      CHECK(!in_call);
      CHECK(event.call == num_calls);
      num_calls += 1;
      in_call = true;
      arguments.clear();
    }
    if (event.kind == Kind::kArguments) arguments += event.text;
    if (event.kind == Kind::kCallEnd) {
      CHECK(in_call);
      in_call = false;
      CHECK(json_members(arguments, NumberStyle::kPython).has_value());
    }
    if (event.kind != last || event.kind == Kind::kCallStart) out += "\x01" + std::to_string(static_cast<int>(event.kind)) + ":";
    out += event.text;
    last = event.kind;
    CHECK((&event == &all.back()) == (event.kind == Kind::kFinished));
  }
  return out;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const FakeTokenizer tokenizer = make_tokenizer();
  if (size < 2) return 0;
  const OutputOptions options = options_of(data[0], data[1]);
  const FinishReason reason = (data[0] & 128) != 0 ? FinishReason::kLength : FinishReason::kStop;
  const std::vector<TokenId> tokens = tokens_of(data + 2, size - 2);
  const std::string one_by_one = run(tokenizer, options, tokens, reason, 1);
  CHECK(run(tokenizer, options, tokens, reason, 7) == one_by_one);
  CHECK(run(tokenizer, options, tokens, reason, SIZE_MAX) == one_by_one);

  // Control tokens leave no trace in text: the plain bytes alone could not have spelt a marker.
  bool plain = !options.markers_by_text && !options.syntax.parse_json;
  for (const TokenId token : tokens) plain = plain && token != FakeTokenizer::kFirstByte + '<';
  if (plain) {
    CHECK(one_by_one.find("<think>") == std::string::npos);
    CHECK(one_by_one.find("<｜User｜>") == std::string::npos);
  }
  return 0;
}
