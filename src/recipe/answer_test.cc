#include "recipe/answer.h"

#include <gtest/gtest.h>

#include "recipe/custom_input.h"
#include "recipe/fake_tokenizer.h"
#include "stream_form.h"

namespace deepinfer::recipe {
namespace {

using namespace testing_support;
using Kind = OutputEvent::Kind;

OutputEvent finished(FinishReason reason, int32_t num_calls = 0) {
  return {.kind = Kind::kFinished, .reason = reason, .num_calls = num_calls, .usage = {.prompt_tokens = 10, .cached_tokens = 4, .completion_tokens = 3}};
}

TEST(Answer, SumsChoicesAndCountsThePromptOnce) {
  const FakeTokenizer tokens({});
  const std::unique_ptr<Answer> answer = make_answer(Protocol::kChat, {.n = 2}, tokens);
  std::string out;
  for (const int32_t choice : {1, 0}) {
    answer->on_output(choice, {.kind = OutputEvent::Kind::kFinished, .usage = {.prompt_tokens = 10, .cached_tokens = choice == 0 ? 4 : 9, .completion_tokens = 3},
                               .reasoning_tokens = 1}, out);
  }
  EXPECT_TRUE(answer->finished());
  EXPECT_EQ(answer->usage().prompt_tokens, 10);
  EXPECT_EQ(answer->usage().cached_tokens, 4);
  EXPECT_EQ(answer->usage().completion_tokens, 6);
  EXPECT_EQ(answer->reasoning_tokens(), 2);
}

TEST(Answer, NothingFollowsAFault) {
  const FakeTokenizer tokens({});
  const std::unique_ptr<Answer> answer = make_answer(Protocol::kChat, {.n = 2, .stream = true}, tokens);
  std::string out;
  answer->on_output(0, {.kind = OutputEvent::Kind::kFinished, .reason = FinishReason::kError, .error = "why"}, out);
  EXPECT_TRUE(answer->failed());
  EXPECT_FALSE(answer->cancelled());
  EXPECT_EQ(answer->error(), "why");
  answer->on_output(1, {.text = "late"}, out);
  answer->on_output(1, {.kind = OutputEvent::Kind::kFinished}, out);
  EXPECT_TRUE(out.empty());
}

TEST(Answer, LogprobsThatJsonCannotSay) {
  EXPECT_EQ(finite_logprob(-std::numeric_limits<float>::infinity()), -9999.0f);
  EXPECT_EQ(finite_logprob(-0.5f), -0.5f);
}

// A client's cancel is an end; the server's own is a fault.
TEST(Answer, ACancelIsAFaultUnlessTheClientAskedForIt) {
  const FakeTokenizer tokens({});
  for (const bool asked : {false, true}) {
    const std::unique_ptr<Answer> answer = make_answer(Protocol::kResponses, {.id = "resp_1", .stream = true}, tokens);
    std::string out;
    answer->begin_stream({}, out);
    answer->on_output(0, {.text = "Hel"}, out);
    if (asked) answer->allow_cancel();
    answer->on_output(0, finished(FinishReason::kCancelled), out);
    EXPECT_EQ(answer->failed(), !asked);
    if (!asked) continue;
    answer->end_stream(out);
    EXPECT_EQ(json::parse(answer->body()).at("status"), "cancelled");
    EXPECT_EQ(json::parse(answer->body()).at("output").at(0).at("status"), "incomplete");
    EXPECT_EQ(answer->finish_reason(), "cancelled");
    EXPECT_EQ(frames_of(out).back().event, "response.incomplete");
  }
}

TEST(Answer, ContextAndFilterHaveTheirOwnWords) {
  const FakeTokenizer tokens({});
  const auto reason = [&](Protocol protocol, FinishReason finish) {
    const std::unique_ptr<Answer> answer = make_answer(protocol, {.id = "x_1"}, tokens);
    std::string out;
    answer->on_output(0, finished(finish, /*num_calls=*/1), out);
    return std::string(answer->finish_reason());
  };
  EXPECT_EQ(reason(Protocol::kChat, FinishReason::kContext), "length");
  EXPECT_EQ(reason(Protocol::kMessages, FinishReason::kContext), "model_context_window_exceeded");
  EXPECT_EQ(reason(Protocol::kResponses, FinishReason::kContext), "max_output_tokens");
  EXPECT_EQ(reason(Protocol::kMessages, FinishReason::kContentFilter), "refusal");
  EXPECT_EQ(reason(Protocol::kMessages, FinishReason::kStop), "tool_use");
  EXPECT_EQ(reason(Protocol::kChat, FinishReason::kStop), "tool_calls");
}

TEST(Answer, BeforeAResponseIsThereItsFaultIsAnErrorEvent) {
  const FakeTokenizer tokens({});
  const std::unique_ptr<Answer> answer = make_answer(Protocol::kResponses, {.id = "resp_1", .stream = true}, tokens);
  std::string out;
  answer->fail_stream({{"error", {{"message", "why"}, {"type", "t"}, {"param", nullptr}, {"code", "c"}}}}, "why", out);
  EXPECT_EQ(out, "event: error\ndata: {\"type\":\"error\",\"sequence_number\":0,\"message\":\"why\",\"code\":\"c\",\"param\":null}\n\n");
}

// text_offset: where a token begins in the text, in code points, however text was held back and cut; a stream says the same as the whole.
TEST(Answer, OffsetsOfTokensAreThoseOfTheText) {
  const FakeTokenizer tokens({{.id = 1, .spelling = "xab", .special = false}});
  const auto token = [](TokenId id) {
    TokenEvent event;
    event.has_token = true;
    event.token = id;
    return event;
  };
  const auto byte = [&](int value) { return token(FakeTokenizer::kFirstByte + value); };
  // "x", then "ab" that was held and "é" in two tokens, a byte that is no text, and "!".
  const std::vector<OutputEvent> events = {{.kind = Kind::kContent, .text = "x", .tokens = {token(1)}},
                                           {.kind = Kind::kContent, .text = "ab\u00e9", .tokens = {byte(0xc3), byte(0xa9)}},
                                           {.kind = Kind::kContent, .text = "\ufffd!", .tokens = {byte(0xff), byte('!')}}};
  std::vector<json::array> joined;
  for (const bool stream : {false, true}) {
    const std::unique_ptr<Answer> answer = make_answer(Protocol::kCompletions, {.id = "cmpl-1", .stream = stream, .logprobs = true}, tokens);
    std::string out;
    for (const OutputEvent& event : events) answer->on_output(0, event, out);
    answer->on_output(0, finished(FinishReason::kStop), out);
    json::array& offsets = joined.emplace_back();
    if (!stream) offsets = json::parse(answer->body()).at("choices").at(0).at("logprobs").at("text_offset").as_array();
    for (size_t at = out.find("\"text_offset\":"); at != std::string::npos; at = out.find("\"text_offset\":", at + 1)) {
      const size_t begin = out.find('[', at);
      const json::value piece = json::parse(out.substr(begin, out.find(']', begin) + 1 - begin));
      offsets.insert(offsets.end(), piece.as_array().begin(), piece.as_array().end());
    }
  }
  EXPECT_EQ(json::serialize(joined[0]), "[0,3,3,4,5]");
  EXPECT_EQ(joined[1], joined[0]);
}

TEST(Answer, AResponseThatFailsDoesNotSayThatItIsKept) {
  const FakeTokenizer tokens({});
  const std::unique_ptr<Answer> answer = make_answer(Protocol::kResponses, {.id = "resp_1", .stream = true, .echo = {{"store", true}}}, tokens);
  std::string out;
  answer->begin_stream({}, out);
  EXPECT_NE(out.find("\"store\":true"), std::string::npos);
  out.clear();
  answer->fail_stream({{"error", json::object()}}, "why", out);
  EXPECT_NE(out.find("\"status\":\"failed\""), std::string::npos);
  EXPECT_NE(out.find("\"store\":false"), std::string::npos) << out;
}

TEST(Answer, ReasoningIsSealedOnlyWhenAsked) {
  const FakeTokenizer tokens({});
  const std::unique_ptr<Answer> answer =
      make_answer(Protocol::kResponses, {.id = "resp_1", .seal = [](std::string_view text) { return "sealed " + std::string(text); }}, tokens);
  std::string out;
  answer->on_output(0, {.kind = Kind::kReasoning, .text = "Hm"}, out);
  answer->on_output(0, {.kind = Kind::kReasoning, .text = "m."}, out);
  answer->on_output(0, finished(FinishReason::kStop), out);
  EXPECT_EQ(json::parse(answer->body()).at("output").at(0).at("encrypted_content"), "sealed Hmm.");
}

// Whole answers say what the pieces of a stream say: Messages shows the input as an object, but changes no digit of it.
TEST(Answer, ArgumentsStayAsTheModelWroteThem) {
  const FakeTokenizer tokens({});
  const std::string deep = std::string(200, '[') + std::string(200, ']');
  const std::string arguments = R"({"n": 123456789012345678901234567890, "x": -0.10, "a": 1e400, "deep": )" + deep + R"(, "n": 2})";
  for (const Protocol protocol : {Protocol::kChat, Protocol::kResponses, Protocol::kMessages}) {
    const std::unique_ptr<Answer> answer = make_answer(protocol, {.id = "x_1"}, tokens);
    std::string out;
    answer->on_output(0, {.kind = Kind::kCallStart, .text = "f", .call = 0}, out);
    answer->on_output(0, {.kind = Kind::kArguments, .text = arguments.substr(0, 20), .call = 0}, out);
    answer->on_output(0, {.kind = Kind::kArguments, .text = arguments.substr(20), .call = 0}, out);
    answer->on_output(0, {.kind = Kind::kCallEnd, .call = 0}, out);
    answer->on_output(0, finished(FinishReason::kStop, 1), out);
    const std::string shown = protocol == Protocol::kMessages ? "\"input\":" + arguments + "}" : json::serialize(json::string(arguments));
    EXPECT_NE(answer->body().find(shown), std::string::npos) << answer->body();
  }
}

TEST(Answer, ToolsAreCalledBackByTheNamesTheClientKnows) {
  const FakeTokenizer tokens({});
  const std::unique_ptr<Answer> answer =
      make_answer(Protocol::kResponses, {.id = "resp_1", .tool_names = {{.name = "ns::n", .client_name = "n", .name_space = "ns"}}}, tokens);
  std::string out;
  answer->on_output(0, {.kind = Kind::kCallStart, .text = "ns::n", .call = 0}, out);
  answer->on_output(0, {.kind = Kind::kArguments, .text = "{}", .call = 0}, out);
  answer->on_output(0, {.kind = Kind::kCallEnd, .call = 0}, out);
  answer->on_output(0, {.kind = Kind::kCallStart, .text = "other", .call = 1}, out);
  answer->on_output(0, {.kind = Kind::kCallEnd, .call = 1}, out);
  answer->on_output(0, finished(FinishReason::kStop, 2), out);
  const json::array output = json::parse(answer->body()).at("output").as_array();
  ASSERT_EQ(output.size(), 2u);
  EXPECT_EQ(output[0].at("name"), "n");
  EXPECT_EQ(output[0].at("namespace"), "ns");
  EXPECT_EQ(output[1].at("name"), "other");
  EXPECT_NE(output[0].at("call_id"), output[1].at("call_id"));
}

TEST(CustomInput, IsTheSameHoweverItIsCut) {
  const std::pair<std::string, std::string> cases[] = {
      {R"({"input": "a\"b\n\u00e9\ud83d\ude00 é"})", "a\"b\né😀 é"},
      {R"({"input": ""})", ""},
      {R"({"input":"tight"})", "tight"},
      {R"({"other": 1, "input": "x"})", "x"},
      {R"({"input": 5})", R"({"input": 5})"},
      {R"({})", "{}"},
  };
  for (const auto& [text, want] : cases) {
    for (size_t first = 0; first <= text.size(); ++first) {
      for (size_t second = first; second <= text.size(); ++second) {
        CustomInput input;
        std::string got;
        input.push(std::string_view(text).substr(0, first), got);
        input.push(std::string_view(text).substr(first, second - first), got);
        input.push(std::string_view(text).substr(second), got);
        input.finish(got);
        ASSERT_EQ(got, want) << text << " cut at " << first << " and " << second;
      }
    }
  }
}

}  // namespace
}  // namespace deepinfer::recipe
