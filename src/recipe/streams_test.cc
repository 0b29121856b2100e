// Requests of three protocols and the answers to them, streamed and whole, against tests/golden/recipe/streams.json: from the request's
// JSON and scripted tokens through parser and answer to frames.
#include <gtest/gtest.h>

#include "read_file.h"
#include "recipe/answer.h"
#include "recipe/output.h"
#include "recipe/protocol.h"
#include "stream_form.h"

namespace deepinfer::recipe {
namespace {

using namespace testing_support;

// A vocabulary that grows as a test names tokens. Control tokens are there from the start.
class NamedTokens final : public tokenizer::Tokenizer {
 public:
  NamedTokens() {
    for (const char* spelling : {"<think>", "</think>", "｜DSML｜", "<｜end▁of▁sentence｜>"}) added_.push_back({.id = add(spelling), .spelling = spelling, .special = true});
  }
  TokenId add(std::string_view text) const {
    bytes_.push_back(std::make_unique<std::string>(text));
    return static_cast<TokenId>(bytes_.size()) - 1;
  }
  void encode(std::string_view, tokenizer::Recognize, std::vector<TokenId>&) const override {}
  int32_t vocab_size() const override { return static_cast<int32_t>(bytes_.size()); }
  std::optional<TokenId> special_id(std::string_view spelling) const override {
    for (const AddedToken& token : added_) {
      if (token.spelling == spelling) return token.id;
    }
    return std::nullopt;
  }
  std::span<const AddedToken> added_tokens() const override { return added_; }
  std::string_view token_bytes(TokenId id) const override { return *bytes_[static_cast<size_t>(id)]; }
  bool is_special(TokenId id) const override { return static_cast<size_t>(id) < added_.size(); }
  std::optional<TokenId> bos_id() const override { return std::nullopt; }
  std::optional<TokenId> eos_id() const override { return std::nullopt; }
  bool add_bos() const override { return false; }
  std::span<const TokenId> stop_ids() const override { return {}; }

 private:
  mutable std::vector<std::unique_ptr<std::string>> bytes_;
  std::vector<AddedToken> added_;
};

std::string text_of(const json::value& value) { return std::string(value.as_string()); }

// What the engine sends in a scenario.
std::vector<TokenEvent> token_events(const json::object& engine, const NamedTokens& tokens) {
  std::vector<TokenEvent> out;
  Usage usage{.prompt_tokens = static_cast<int32_t>(engine.at("prompt_tokens").as_int64()), .cached_tokens = static_cast<int32_t>(engine.at("cached_tokens").as_int64())};
  size_t logprob = 0;
  const auto push = [&](TokenId token) {
    usage.completion_tokens += 1;
    out.push_back({.has_token = true, .token = token, .usage = usage});
  };
  for (const json::value& piece : engine.at("tokens").as_array()) {
    const json::object& object = piece.as_object();
    const bool special = object.contains("s");
    for (int64_t i = 1; i < object.at("n").as_int64(); ++i) push(tokens.add(""));  // the piece is of several tokens
    push(special ? *tokens.special_id(text_of(object.at("s"))) : tokens.add(text_of(object.at("t"))));
    if (const json::value* list = engine.if_contains("logprobs"); list != nullptr && !special) {
      const json::value& entry = list->at(logprob++);
      out.back().logprob = entry.at("logprob").to_number<float>();
      for (const json::value& top : entry.at("top").as_array()) {
        out.back().top[static_cast<size_t>(out.back().num_top++)] = {.token = tokens.add(text_of(top.at(0))), .logprob = top.at(1).to_number<float>()};
      }
    }
  }
  const std::string finish = text_of(engine.at("finish"));
  if (finish == "stop") {
    push(*tokens.special_id("<｜end▁of▁sentence｜>"));
    out.back().finished = FinishReason::kStop;
  } else if (finish == "length") {
    out.back().finished = FinishReason::kLength;
  } else if (finish == "content_filter") {
    out.push_back({.finished = FinishReason::kContentFilter, .usage = usage});
  } else if (finish == "error") {
    out.push_back({.finished = FinishReason::kError, .usage = usage, .message = "a fault"});
  } else {
    EXPECT_EQ(finish, "cancelled");
  }
  return out;
}

// The request of a scenario, and how the answer to it is read, as a renderer of v4.1 would say.
struct Parsed {
  ParsedRequest request;
  AnswerSyntax syntax;
};
Parsed parse(Protocol protocol, const json::object& body, const NamedTokens& tokens) {
  Problems problems;
  const RequestContext context{.options = {.vocab_size = tokens.vocab_size(), .dialect = Dialect::kV41}};
  std::optional<ParsedRequest> request = parse_request(protocol, body, context, problems);
  EXPECT_TRUE(request) << problems.first().message << " " << body;
  if (!request) return {};
  const Conversation& conversation = std::get<Conversation>(request->prompt);
  AnswerSyntax syntax{.trim_start = true, .parse_tool_calls = conversation.tools_active(), .hides_added_tokens = true};
  if (conversation.thinking.value_or(true)) syntax.start = AnswerSyntax::Start::kReasoning;
  if (conversation.tool_choice == ToolChoice::kRequired) syntax.start = AnswerSyntax::Start::kToolCalls;
  for (const ToolDefinition& tool : conversation.tools) syntax.tools.push_back({.name = tool.name});
  return {std::move(*request), std::move(syntax)};
}

struct Case {
  const json::value* scenario;
  Protocol protocol;
  const json::object* want;
  std::string name() const { return text_of(scenario->at("name")); }
};

// Runs the engine's events through parser and answer; gives back the frames of a stream.
std::string run(const Case& test, bool stream, std::unique_ptr<Answer>& answer, const NamedTokens& tokens) {
  json::object body = test.want->at("request").as_object();
  if (!stream) {
    body.erase("stream");
    body.erase("stream_options");
  }
  // The Responses protocol has no stop strings; ours takes those of Chat.
  if (test.protocol == Protocol::kResponses && test.name() == "stop_string") body["stop"] = "END";
  Parsed parsed = parse(test.protocol, body, tokens);
  const GenerationOptions& options = parsed.request.options;
  answer = make_answer(test.protocol,
                       {.id = "x_0123", .model = text_of(body.at("model")), .system_fingerprint = "fp", .created_unix_s = 5, .stream = options.stream,
                        .include_usage = options.include_usage, .logprobs = options.sampling.top_logprobs >= 0,
                        .starts_in_reasoning = parsed.syntax.start == AnswerSyntax::Start::kReasoning, .echo = parsed.request.echo,
                        .tool_names = parsed.request.tool_names},
                       tokens);
  OutputParser parser(tokens, {.syntax = parsed.syntax, .stop = options.stop, .keep_token_events = options.sampling.top_logprobs >= 0});
  std::string out;
  std::vector<OutputEvent> events;
  bool begun = false;
  for (const TokenEvent& event : token_events(test.scenario->at("engine").as_object(), tokens)) {
    if (stream && !std::exchange(begun, true)) answer->begin_stream(event.usage, out);
    events.clear();
    parser.push(event, events);
    for (const OutputEvent& output : events) answer->on_output(0, output, out);
  }
  if (!stream || !answer->finished()) return out;
  if (answer->failed()) {
    const json::object openai{{"error", {{"message", answer->error()}, {"type", "internal_error"}, {"param", nullptr}, {"code", "internal_error"}}}};
    const json::object anthropic{{"type", "error"}, {"error", {{"type", "api_error"}, {"message", answer->error()}}}};
    answer->fail_stream(test.protocol == Protocol::kMessages ? anthropic : openai, answer->error(), out);
  } else {
    answer->end_stream(out);
  }
  return out;
}

class Streams : public testing::Test {
 protected:
  Streams() : file_(json::parse(read_file(DI_SOURCE_DIR "/tests/golden/recipe/streams.json"))) {
    constexpr std::pair<const char*, Protocol> kProtocols[] = {{"chat", Protocol::kChat}, {"responses", Protocol::kResponses}, {"messages", Protocol::kMessages}};
    for (const json::value& scenario : file_.at("scenarios").as_array()) {
      for (const auto& [name, protocol] : kProtocols) {
        const json::value* want = scenario.at("protocols").as_object().if_contains(name);
        if (want != nullptr) cases_.push_back({&scenario, protocol, &want->as_object()});
      }
    }
  }
  json::value file_;
  std::vector<Case> cases_;
};

TEST_F(Streams, EqualTheGoldens) {
  ASSERT_EQ(cases_.size(), 56u);
  for (const Case& test : cases_) {
    SCOPED_TRACE(test.name() + " in protocol " + std::to_string(static_cast<int>(test.protocol)));
    const NamedTokens tokens;
    std::unique_ptr<Answer> answer;
    const std::string stream = run(test, true, answer, tokens);
    std::vector<Frame> want;
    for (const json::value& frame : test.want->at("frames").as_array()) {
      const json::value* event = frame.as_object().if_contains("event");
      want.push_back({.event = event != nullptr ? text_of(*event) : "", .data = without_nulls(frame.at("data"))});
    }
    want = joined(want);
    const std::vector<Frame> got = joined(frames_of(stream));
    EXPECT_EQ(got.size(), want.size()) << stream;
    Matcher matcher;
    for (size_t i = 0; i < std::min(got.size(), want.size()); ++i) {
      EXPECT_EQ(got[i].event, want[i].event);
      EXPECT_TRUE(matcher.match(want[i].data, got[i].data)) << "\n got " << got[i].data << "\nwant " << want[i].data;
    }
  }
}

TEST_F(Streams, WholeAnswersEqualTheGoldens) {
  int num = 0;
  for (const Case& test : cases_) {
    SCOPED_TRACE(test.name() + " in protocol " + std::to_string(static_cast<int>(test.protocol)));
    const json::value* complete = test.want->if_contains("complete");
    if (complete == nullptr) continue;
    const NamedTokens tokens;
    std::unique_ptr<Answer> answer, streamed;
    EXPECT_EQ(run(test, false, answer, tokens), "");
    const json::value got = json::parse(answer->body());
    EXPECT_TRUE(Matcher().match(*complete, got)) << "\n got " << got << "\nwant " << *complete;
    // The body of a stream is what a whole answer would have been; Chat names its objects by how they are sent.
    run(test, true, streamed, tokens);
    json::object again = json::parse(streamed->body()).as_object();
    if (test.protocol == Protocol::kChat) again["object"] = "chat.completion";
    EXPECT_TRUE(Matcher().match(*complete, again)) << again;
    num += 1;
  }
  EXPECT_EQ(num, 50);
}

}  // namespace
}  // namespace deepinfer::recipe
