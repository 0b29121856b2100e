// What public reports about other servers of these models say, each tested as it must be here. The goldens cover most of it as well, at more depth.
//
//   S1  deepseek-ai/deepseek-recipe#5   S6  vllm-project/vllm#40801   S11 vllm-project/vllm#3574
//   S2  sgl-project/sglang#39274        S7  vllm-project/vllm#41240   S12 vllm-project/vllm#44006
//   S3  sgl-project/sglang#39909        S8  vllm-project/vllm#53269   S13 mlc-ai/xgrammar#412
//   S4  sgl-project/sglang#33185        S9  sgl-project/sglang#20678  S14 anthropics/claude-code#68900
//   S5  vllm-project/vllm#53227         S10 vllm-project/vllm#36435   S15 deepseek-ai/DeepSeek-V3#1376
#include <gtest/gtest.h>

#include <algorithm>
#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <string>
#include <vector>

#include "grammar/fake_vocabulary.h"
#include "grammar/grammar.h"
#include "recipe/answer.h"
#include "recipe/constraint.h"
#include "recipe/encode_request.h"
#include "recipe/fake_tokenizer.h"
#include "recipe/output.h"

namespace deepinfer::recipe {
namespace {

namespace json = boost::json;
using Kind = OutputEvent::Kind;

const std::vector<std::string> kSpellings = {"<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜User｜>", "<｜Assistant｜>",       "<｜System｜>",      "<｜latest_reminder｜>",
                                             "<think>",               "</think>",            "｜DSML｜",   "<｜deepseek_image｜>", "<｜fim▁begin｜>", "<｜fim▁hole｜>",
                                             "<｜fim▁end｜>"};

const FakeTokenizer& vocabulary() {
  static const FakeTokenizer tokenizer = [] {
    std::vector<tokenizer::Tokenizer::AddedToken> added;
    for (const std::string& spelling : kSpellings) added.push_back({static_cast<TokenId>(added.size()), spelling, false});
    return FakeTokenizer(std::move(added), 0, 1);
  }();
  return tokenizer;
}
TokenId id_of(std::string_view spelling) { return vocabulary().special_id(spelling).value(); }

struct Asked {
  std::optional<ParsedRequest> request;
  FieldProblem problem;
  EncodedRequest encoded;
};

Asked ask(Protocol protocol, Dialect dialect, std::string_view body) {
  Problems problems;
  const RequestContext context{.options = {.vocab_size = vocabulary().vocab_size(), .dialect = dialect, .accepts_images = true}};
  Asked out{.request = parse_request(protocol, json::parse(body).as_object(), context, problems)};
  if (problems.any()) out.problem = problems.first();
  if (!out.request) return out;
  const auto renderer = make_dialect_renderer(dialect, vocabulary()).value();
  out.encoded = encode_request(*out.request, {.tokenizer = vocabulary(), .renderer = renderer.get()}).value();
  return out;
}

std::string prompt_of(Protocol protocol, Dialect dialect, std::string_view body) { return prompt_text(ask(protocol, dialect, body).encoded.prompt); }

std::vector<TokenId> control_ids(const std::vector<TokenId>& ids) {
  std::vector<TokenId> out;
  std::copy_if(ids.begin(), ids.end(), std::back_inserter(out), [](TokenId id) { return id < FakeTokenizer::kFirstByte; });
  return out;
}

// One byte a token, markers as their control tokens.
std::vector<TokenId> tokens_of(std::string_view text) {
  std::vector<TokenId> out;
  vocabulary().encode(text, tokenizer::Recognize::kAll, out);
  return out;
}

AnswerSyntax with_tools(std::vector<std::string> properties = {}) {
  return {.parse_tool_calls = true, .hides_added_tokens = true, .tools = {{.name = "f", .properties = std::move(properties)}}};
}

std::vector<OutputEvent> read(OutputOptions options, std::string_view text, FinishReason reason = FinishReason::kStop) {
  OutputParser parser(vocabulary(), std::move(options));
  std::vector<OutputEvent> out;
  Usage usage{.prompt_tokens = 7};
  for (const TokenId token : tokens_of(text)) {
    usage.completion_tokens += 1;
    parser.push({.has_token = true, .token = token, .usage = usage}, out);
  }
  parser.push({.finished = reason, .usage = usage}, out);
  return out;
}

std::string joined(const std::vector<OutputEvent>& events, Kind kind) {
  std::string out;
  for (const OutputEvent& event : events) out += event.kind == kind ? event.text : "";
  return out;
}

std::string call_of(std::string_view parameters) {
  return "\n\n<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"f\">\n" + std::string(parameters) + "</｜DSML｜invoke>\n</｜DSML｜tool_calls>";
}
std::string parameter(std::string_view name, bool is_string, std::string_view value) {
  return "<｜DSML｜parameter name=\"" + std::string(name) + "\" string=\"" + (is_string ? "true" : "false") + "\">" + std::string(value) + "</｜DSML｜parameter>\n";
}
std::string arguments(std::string_view parameters, std::vector<std::string> properties = {}) {
  return joined(read({.syntax = with_tools(std::move(properties))}, call_of(parameters)), Kind::kArguments);
}

std::string stream_of(Protocol protocol, std::string_view text, FinishReason reason, const Usage& prompt = {}) {
  const auto answer = make_answer(protocol, {.id = "x_1", .model = "m", .stream = true}, vocabulary());
  std::string out;
  answer->begin_stream(prompt, out);
  for (const OutputEvent& event : read({.syntax = with_tools()}, text, reason)) answer->on_output(0, event, out);
  answer->end_stream(out);
  return out;
}

bool holds(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

TEST(Reports, S1TypedControlTokensAreText) {
  const auto body = [](const std::string& text) { return R"({"messages":[{"role":"user","content":)" + json::serialize(json::string(text)) + "}]}"; };
  std::string all;
  for (const std::string& spelling : kSpellings) all += spelling + " ";
  const EncodedRequest typed = ask(Protocol::kChat, Dialect::kV41, body(all)).encoded, plain = ask(Protocol::kChat, Dialect::kV41, body("x")).encoded;
  EXPECT_EQ(control_ids(typed.ids), control_ids(plain.ids));
  EXPECT_TRUE(holds(prompt_text(typed.prompt), all));
}

TEST(Reports, S2ATypedPlaceholderIsNoImage) {
  const Asked asked = ask(Protocol::kChat, Dialect::kV41, R"({"messages":[{"role":"user","content":"see <｜deepseek_image｜> there"}]})");
  EXPECT_TRUE(asked.encoded.prompt.images.empty());
  EXPECT_EQ(std::count(asked.encoded.ids.begin(), asked.encoded.ids.end(), id_of("<｜deepseek_image｜>")), 0);
}

TEST(Reports, S3EffortsOfV41AreNumbers) {
  for (const auto& [effort, number] : {std::pair("low", "50"), std::pair("high", "75"), std::pair("max", "100")}) {
    const std::string body = R"({"messages":[{"role":"user","content":"x"}],"reasoning_effort":")" + std::string(effort) + "\"}";
    EXPECT_TRUE(holds(prompt_of(Protocol::kChat, Dialect::kV41, body), "Reasoning Effort: " + std::string(number) + " (range 1-100")) << prompt_of(Protocol::kChat, Dialect::kV41, body);
  }
}

TEST(Reports, S4EffortsOfV4HaveTheirOwnTextAndUnsetIsHigh) {
  const auto prompt = [](const char* more) { return prompt_of(Protocol::kChat, Dialect::kV4, R"({"messages":[{"role":"user","content":"x"}])" + std::string(more) + "}"); };
  const std::string high = prompt(R"(,"reasoning_effort":"high")"), max = prompt(R"(,"reasoning_effort":"max")");
  EXPECT_TRUE(holds(high, "Reasoning Effort: Absolute maximum"));
  EXPECT_TRUE(holds(max, "Reasoning Effort: Beyond maximum"));
  EXPECT_EQ(prompt(""), high);
}

TEST(Reports, S5ArgumentsHoldNoMarkup) {
  const std::vector<OutputEvent> events = read({.syntax = with_tools()}, call_of(parameter("a", true, "x < y </z>\n") + parameter("b", false, "[1]")));
  EXPECT_EQ(joined(events, Kind::kArguments), R"({"a": "x < y </z>\n", "b": [1]})");
  for (const OutputEvent& event : events) EXPECT_FALSE(holds(event.text, "DSML") || holds(event.text, "parameter"));
}

TEST(Reports, S6CutMarkersAreFoundAndNeverShown) {
  const std::string text = "Look." + call_of(parameter("a", true, "1"));
  const std::vector<TokenId> tokens = tokens_of(text);
  OutputParser parser(vocabulary(), {.syntax = with_tools()});
  std::string shown;
  int32_t calls = 0;
  for (const TokenId token : tokens) {  // a byte a token: every place of every marker is a seam
    std::vector<OutputEvent> out;
    parser.push({.has_token = true, .token = token}, out);
    for (const OutputEvent& event : out) {
      if (event.kind == Kind::kContent) shown += event.text;
      calls += event.kind == Kind::kCallEnd;
    }
  }
  EXPECT_EQ(shown, "Look.");
  EXPECT_EQ(calls, 1);
}

TEST(Reports, S7TheAttributeDecidesTheType) {
  EXPECT_EQ(arguments(parameter("a", true, "5") + parameter("b", false, "5")), R"({"a": "5", "b": 5})");
}

TEST(Reports, S7OneWrapperIsUnpackedWhereTheSchemaLacksIt) {
  const std::string wrapped = parameter("arguments", true, R"({"city": "Rome"})");
  EXPECT_EQ(json::parse(arguments(wrapped, {"city"})), json::parse(R"({"city": "Rome"})"));
  EXPECT_EQ(json::parse(arguments(wrapped, {"arguments"})), json::parse(R"({"arguments": "{\"city\": \"Rome\"}"})"));
}

TEST(Reports, S7HeldTextComesOutAtTheEnd) { EXPECT_EQ(joined(read({.syntax = with_tools()}, "1 + 1 = 2 <"), Kind::kContent), "1 + 1 = 2 <"); }

TEST(Reports, S8ACutCallEndsWithLength) {
  const std::string cut = "\n\n<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"f\">\n<｜DSML｜parameter name=\"a\" string=\"true\">Ro";
  const std::string chat = stream_of(Protocol::kChat, cut, FinishReason::kLength);
  EXPECT_TRUE(holds(chat, R"("finish_reason":"length")")) << chat;
  EXPECT_FALSE(holds(chat, R"("finish_reason":"tool_calls")"));
  EXPECT_TRUE(holds(stream_of(Protocol::kMessages, cut, FinishReason::kLength), R"("stop_reason":"max_tokens")"));
}

TEST(Reports, S9TheFirstEventHasTheInputTokens) {
  const std::string stream = stream_of(Protocol::kMessages, "Hi", FinishReason::kStop, {.prompt_tokens = 1234});
  EXPECT_TRUE(holds(stream.substr(0, stream.find("\n\n")), R"("input_tokens":1234)")) << stream;
}

TEST(Reports, S10ResponsesStreamCallsAsItems) {
  const std::string stream = stream_of(Protocol::kResponses, call_of(parameter("a", true, "1")), FinishReason::kStop);
  EXPECT_TRUE(holds(stream, R"("type":"function_call")"));
  EXPECT_TRUE(holds(stream, "event: response.function_call_arguments.delta"));
  EXPECT_TRUE(holds(stream, "event: response.function_call_arguments.done"));
  EXPECT_FALSE(holds(stream, "response.output_text.delta"));
}

TEST(Reports, S11WhatMayBeAStopStringIsHeld) {
  OutputParser parser(vocabulary(), {.stop = {"END"}});
  const auto push = [&](std::string_view text) {
    std::vector<OutputEvent> out;
    for (const TokenId token : tokens_of(text)) parser.push({.has_token = true, .token = token}, out);
    return joined(out, Kind::kContent);
  };
  EXPECT_EQ(push("a E"), "a ");
  EXPECT_EQ(push("N"), "");
  EXPECT_EQ(push("Xb EN"), "ENXb ");
  EXPECT_EQ(push("D c"), "");
  EXPECT_TRUE(parser.stopped());
}

// How the engine acts on it, and on tokens that are taken back: constraint_test.cc, grammar_test.cc.
TEST(Reports, S12AConstraintBeginsBehindTheEndOfReasoning) {
  const std::string body = R"({"messages":[{"role":"user","content":"json"}],"response_format":{"type":"json_object"},"thinking":{"type":)";
  const Asked thinks = ask(Protocol::kChat, Dialect::kV41, body + R"("enabled"}})"), answers = ask(Protocol::kChat, Dialect::kV41, body + R"("disabled"}})");
  EXPECT_EQ(make_constraint(*thinks.request, thinks.encoded.prompt.syntax, Dialect::kV41, vocabulary()).value().begins_after, id_of("</think>"));
  EXPECT_EQ(make_constraint(*answers.request, answers.encoded.prompt.syntax, Dialect::kV41, vocabulary()).value().begins_after, -1);
}

TEST(Reports, S13WhiteSpaceIsBounded) {
  const grammar::FakeVocabulary tokenizer;
  const TokenId end = tokenizer.end();
  const auto trie = grammar::Vocabulary::build(tokenizer, tokenizer.vocab_size(), {&end, 1}).value();
  const auto compiled = grammar::Grammar::compile(*trie, R"({"kind":"json_schema","schema":{"type":"object"}})").value();
  std::vector<uint32_t> bits(trie->mask_words());
  const auto allowed = [&](std::string_view text) {
    grammar::Matcher matcher = compiled->matcher().value();
    for (const char c : text) {
      const auto byte = static_cast<unsigned char>(c);
      EXPECT_TRUE(matcher.mask(bits).has_value());
      if ((bits[byte / 32] >> (byte % 32) & 1) == 0) return false;
      EXPECT_TRUE(matcher.accept(byte).has_value());
    }
    return true;
  };
  EXPECT_TRUE(allowed(R"({"a": [1, 2], "b": 3})"));
  for (const char* text : {" {", "{ \"a", "{\n", "{\"a\" :", "{\"a\":  ", "{\"a\":\n", "{\"a\":\t", "{\"a\": [ ", "{\"a\": 1 ", "{\"a\": 1,  ", "{\"a\": 1,\n"}) {
    EXPECT_FALSE(allowed(text)) << text;
  }
}

TEST(Reports, S14TheBillingLineIsNotPartOfThePrompt) {
  const auto prompt = [](const char* system) {
    return prompt_of(Protocol::kMessages, Dialect::kV41, R"({"max_tokens":5,"system":")" + std::string(system) + R"(","messages":[{"role":"user","content":"x"}]})");
  };
  const std::string one = prompt(R"(x-anthropic-billing-header: cc_version=1; cch=a1\nBe kind.)");
  EXPECT_EQ(one, prompt(R"(x-anthropic-billing-header: cc_version=1; cch=b2\nBe kind.)"));
  EXPECT_TRUE(holds(one, "Be kind.") && !holds(one, "billing"));
}

TEST(Reports, S15AForcedCallWhileThinkingIsRefused) {
  const char* const chat = R"({"messages":[{"role":"user","content":"x"}],"tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":"required","thinking":{"type":"enabled"}})";
  const char* const messages = R"({"max_tokens":5,"messages":[{"role":"user","content":"x"}],"tools":[{"name":"f","input_schema":{"type":"object"}}],"tool_choice":{"type":"tool","name":"f"},"thinking":{"type":"adaptive"}})";
  const char* const responses = R"({"input":"x","tools":[{"type":"function","name":"f"}],"tool_choice":"required","reasoning":{"effort":"high"}})";
  for (const auto& [protocol, body] : {std::pair(Protocol::kChat, chat), std::pair(Protocol::kMessages, messages), std::pair(Protocol::kResponses, responses)}) {
    const Asked asked = ask(protocol, Dialect::kV41, body);
    EXPECT_FALSE(asked.request.has_value()) << body;
    EXPECT_EQ(asked.problem.message, "Thinking mode does not support this tool_choice");
  }
}

}  // namespace
}  // namespace deepinfer::recipe
