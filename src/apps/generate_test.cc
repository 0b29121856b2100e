#include "apps/generate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "http/fake_model.h"

namespace deepinfer::apps {
namespace {

using namespace deepinfer::testing_support;

// One answer of a scripted model.
struct Asked {
  explicit Asked(FakeInference::Options model) : inference(std::move(model)) {}
  Result<Generated> ask(recipe::OutputOptions output = {}, GenerateHooks hooks = {}) {
    Request request{.prompt = {1, 2, 3}};
    request.sampling.max_tokens = 1 << 20;  // nothing ends by length
    return generate(inference, tokenizer, std::move(request), std::move(output), hooks, clock);
  }

  const FakeTokenizer tokenizer;
  FakeInference inference;
  ManualClock clock;
};

FakeInference::Options says(const std::string& text, bool end = true) {
  return {.script = [=](const Request&, int32_t) { return tokens_of(text, end); }, .step = std::chrono::microseconds(100)};
}

TEST(Generate, HandsOutTextAsItComes) {
  Asked model(says("<think>So.</think>Well, yes."));
  std::string content, reasoning;
  const auto answer = model.ask({}, {.on_text = [&](std::string_view text, bool thinks) { (thinks ? reasoning : content) += text; }});
  ASSERT_TRUE(answer.has_value()) << answer.error().message;
  EXPECT_EQ(answer->content, "Well, yes.");
  EXPECT_EQ(answer->reasoning, "So.");
  EXPECT_EQ(content, answer->content);
  EXPECT_EQ(reasoning, answer->reasoning);
  EXPECT_EQ(answer->end.reason, FinishReason::kStop);
  EXPECT_EQ(answer->end.usage.prompt_tokens, 3);
  EXPECT_TRUE(model.inference.cancel_calls().empty());
  EXPECT_TRUE(model.inference.choice_cancel_calls().empty());
}

TEST(Generate, AStopStringFinishesTheChoiceAndCancelsNoRequest) {
  Asked model(says("one two three four", /*end=*/false));
  const auto answer = model.ask({.stop = {"three"}});
  ASSERT_TRUE(answer.has_value()) << answer.error().message;
  EXPECT_EQ(answer->content, "one two ");
  EXPECT_EQ(answer->end.reason, FinishReason::kStop);
  EXPECT_EQ(answer->end.stop_string, "three");
  EXPECT_TRUE(model.inference.cancel_calls().empty());
  const std::map<std::pair<RequestId, int32_t>, int> once{{{RequestId{1}, 0}, 1}};
  EXPECT_EQ(model.inference.choice_cancel_calls(), once);
}

TEST(Generate, TheUserCancelsTheRequest) {
  Asked model(says("on and on", /*end=*/false));
  int seen = 0;
  const auto answer = model.ask({}, {.on_text = [&](std::string_view, bool) { seen += 1; }, .cancelled = [&] { return seen > 2; }});
  ASSERT_TRUE(answer.has_value()) << answer.error().message;
  EXPECT_EQ(answer->end.reason, FinishReason::kCancelled);
  EXPECT_EQ(answer->content.substr(0, 3), "on ");
  const std::map<RequestId, int> once{{RequestId{1}, 1}};
  EXPECT_EQ(model.inference.cancel_calls(), once);
}

TEST(Generate, AFaultIsAnError) {
  FakeInference::Options options = says("half an answer");
  options.fail_after = 4;
  Asked model(std::move(options));
  const auto answer = model.ask();
  ASSERT_FALSE(answer.has_value());
  EXPECT_EQ(answer.error().code, Code::kInternal);
}

TEST(Generate, ARefusedRequestIsItsError) {
  Asked model(says("never"));
  model.inference.drain();
  const auto answer = model.ask();
  ASSERT_FALSE(answer.has_value());
  EXPECT_EQ(answer.error().code, Code::kUnavailable);
}

}  // namespace
}  // namespace deepinfer::apps
