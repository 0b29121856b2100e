// Constrained sequences in the engine: what they say, that they say it whatever else runs, and how they end.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "engine/collect.h"
#include "engine/engine.h"
#include "engine/fake_model.h"
#include "grammar/fake_vocabulary.h"

namespace deepinfer::engine {
namespace {

constexpr const char* kPerson =
    R"({"kind":"json_schema","schema":{"type":"object","properties":{"name":{"type":"string","maxLength":12},"ages":{"type":"array","items":{"type":"integer","minimum":0,"maximum":120},"maxItems":4},"kind":{"enum":["ab","abc",null]}},"required":["name","ages","kind"],"additionalProperties":false}})";

class ConstrainedEngine : public ::testing::Test {
 protected:
  ConstrainedEngine() : workers_(Workers::create(2, false)), grammars_(tokenizer_, vocab_size(), {tokenizer_.end()}) {}

  int32_t vocab_size() const { return tokenizer_.vocab_size() + 7; }

  std::unique_ptr<Engine> start(uint64_t num_blocks, grammar::GrammarCache* grammars) {
    EngineOptions options{.kv_bytes = num_blocks * 64, .max_num_batched_tokens = 64, .max_num_sequences = 16, .grammars = grammars};
    options.card.stop_token_ids = {tokenizer_.end()};
    return Engine::start(std::make_unique<FakeModel>(FakeModelOptions{.vocab_size = vocab_size()}), *workers_, clock_, std::move(options)).value();
  }
  Request request(const char* spec, uint64_t seed) const {
    Request out{.prompt = std::vector<TokenId>(20, static_cast<TokenId>(seed % 50)), .constraint = {.spec = spec}};
    out.sampling = {.temperature = 1.5f, .seed = seed, .max_tokens = 200};
    return out;
  }
  std::shared_ptr<Collect> submit(Engine& engine, Request request) {
    auto sink = std::make_shared<Collect>(request.n);
    const Result<RequestId> id = engine.submit(std::move(request), sink);
    EXPECT_TRUE(id.has_value()) << (id ? "" : id.error().message);
    return sink;
  }
  // What a matcher of its own says of the tokens.
  bool satisfies(const char* spec, const std::vector<TokenId>& tokens) {
    grammar::Matcher matcher = grammars_.find_or_compile(spec).value()->matcher().value();
    for (const TokenId token : tokens) {
      if (!matcher.accept(token)) return false;
    }
    return matcher.is_accepting();
  }

  const grammar::FakeVocabulary tokenizer_;
  SteadyClock clock_;
  std::unique_ptr<Workers> workers_;
  grammar::GrammarCache grammars_;
};

TEST_F(ConstrainedEngine, EveryChoiceSatisfiesItsSchemaWhateverElseRuns) {
  std::vector<std::vector<TokenId>> alone;
  {
    const std::unique_ptr<Engine> engine = start(2000, &grammars_);
    for (uint64_t seed = 0; seed < 12; ++seed) {
      Request one = request(kPerson, seed);
      one.n = 2;
      const std::shared_ptr<Collect> sink = submit(*engine, one);
      ASSERT_TRUE(sink->wait());
      for (const ChoiceResult& choice : sink->choices) {
        EXPECT_EQ(choice.finished, FinishReason::kStop) << choice.message;
        EXPECT_TRUE(satisfies(kPerson, choice.tokens)) << tokenizer_.decode(choice.tokens, true);
        EXPECT_EQ(choice.usage.completion_tokens, static_cast<int32_t>(choice.tokens.size()));
        alone.push_back(choice.tokens);
      }
    }
  }
  // All at once, in an arena that makes them preempt each other, beside free ones.
  const std::unique_ptr<Engine> engine = start(90, &grammars_);
  std::vector<std::shared_ptr<Collect>> sinks, free;
  for (uint64_t seed = 0; seed < 12; ++seed) {
    Request one = request(kPerson, seed);
    one.n = 2;
    sinks.push_back(submit(*engine, one));
    free.push_back(submit(*engine, request("", seed)));
  }
  size_t i = 0;
  for (const auto& sink : sinks) {
    ASSERT_TRUE(sink->wait());
    for (const ChoiceResult& choice : sink->choices) EXPECT_EQ(choice.tokens, alone[i++]);
  }
  for (const auto& sink : free) ASSERT_TRUE(sink->wait());
  EXPECT_GT(engine->stats().preemptions_total, 5u);
}

// A choice that is cancelled may have a mask in the making; what its siblings and others say stays what it is.
TEST_F(ConstrainedEngine, CancelledChoicesLeaveTheOthersAlone) {
  std::vector<ChoiceResult> whole;
  for (const bool cancels : {false, true}) {
    const std::unique_ptr<Engine> engine = start(120, &grammars_);
    std::vector<std::shared_ptr<Collect>> sinks;
    std::vector<RequestId> ids;
    for (uint64_t seed = 0; seed < 10; ++seed) {
      Request one = request(kPerson, seed);
      one.n = 3;
      sinks.push_back(std::make_shared<Collect>(one.n));
      ids.push_back(engine->submit(std::move(one), sinks.back()).value());
    }
    for (size_t i = 0; cancels && i < ids.size(); ++i) {
      sinks[i]->wait_for_events(static_cast<int64_t>(i) * 3);
      i % 4 == 0 ? engine->cancel(ids[i]) : engine->cancel_choice(ids[i], 1);
    }
    size_t num_cancelled = 0;
    for (size_t i = 0; i < sinks.size(); ++i) {
      ASSERT_TRUE(sinks[i]->wait());
      for (size_t c = 0; c < sinks[i]->choices.size(); ++c) {
        const ChoiceResult& choice = sinks[i]->choices[c];
        if (!cancels) {
          whole.push_back(choice);
        } else if (choice.finished == FinishReason::kCancelled) {
          num_cancelled += 1;
        } else {
          EXPECT_TRUE(choice.same_output(whole[i * 3 + c])) << i << " " << c;
        }
      }
    }
    EXPECT_EQ(num_cancelled > 0, cancels);
  }
}

TEST_F(ConstrainedEngine, BeginsBehindTheEndOfThinking) {
  const std::unique_ptr<Engine> engine = start(2000, &grammars_);
  Request one = request(R"({"kind":"choice","choices":["abc","12"]})", 3);
  one.constraint.begins_after = tokenizer_.mark();
  one.sampling.logit_bias = {{tokenizer_.end(), 100.0f}};  // would end at once, were it free to
  one.sampling.thinking_budget = 9;
  one.sampling.thinking_end = tokenizer_.mark();
  const std::shared_ptr<Collect> sink = submit(*engine, one);
  ASSERT_TRUE(sink->wait());
  const std::vector<TokenId>& tokens = sink->choices[0].tokens;
  const auto mark = std::find(tokens.begin(), tokens.end(), tokenizer_.mark());
  ASSERT_NE(mark, tokens.end());
  const std::string text = tokenizer_.decode(std::vector<TokenId>(mark + 1, tokens.end()), true);
  EXPECT_TRUE(text == "abc" || text == "12") << text;
  EXPECT_EQ(std::count(tokens.begin(), tokens.end(), tokenizer_.end()), 0);
  EXPECT_EQ(sink->choices[0].finished, FinishReason::kStop);
}

TEST_F(ConstrainedEngine, ALimitCutsIt) {
  const std::unique_ptr<Engine> engine = start(2000, &grammars_);
  Request one = request(kPerson, 1);
  one.sampling.max_tokens = 4;
  const std::shared_ptr<Collect> sink = submit(*engine, one);
  ASSERT_TRUE(sink->wait());
  EXPECT_EQ(sink->choices[0].finished, FinishReason::kLength);
}

TEST_F(ConstrainedEngine, CompletenessEndsASequenceThatIgnoresStopTokens) {
  const std::unique_ptr<Engine> engine = start(2000, &grammars_);
  Request one = request(R"({"kind":"choice","choices":["ab"]})", 1);
  one.sampling.ignore_eos = true;
  const std::shared_ptr<Collect> sink = submit(*engine, one);
  ASSERT_TRUE(sink->wait());
  EXPECT_EQ(tokenizer_.decode(sink->choices[0].tokens, true), "ab");
  EXPECT_EQ(sink->choices[0].finished, FinishReason::kStop);
}

TEST_F(ConstrainedEngine, LogprobsAreThoseOfWhatIsAllowed) {
  const std::unique_ptr<Engine> engine = start(2000, &grammars_);
  Request one = request(R"({"kind":"regex","pattern":"a"})", 1);
  one.sampling.top_logprobs = 3;
  const std::shared_ptr<Collect> sink = submit(*engine, one);
  ASSERT_TRUE(sink->wait());
  ASSERT_EQ(sink->choices[0].tokens, std::vector<TokenId>{'a'});
  EXPECT_EQ(sink->choices[0].logprobs[0], 0.0f);
}

TEST_F(ConstrainedEngine, WhatCannotBeHonouredIsRefused) {
  const std::unique_ptr<Engine> engine = start(2000, &grammars_);
  Request one = request(R"({"kind":"json_schema","schema":{"not":{}}})", 1);
  EXPECT_EQ(engine->prepare(one.constraint).error().code, Code::kInvalidArgument);
  const Result<RequestId> id = engine->submit(one, std::make_shared<Collect>());
  ASSERT_FALSE(id.has_value());
  EXPECT_EQ(id.error().message, R"(the schema: keyword "not" at its root: it is not supported)");
  one = request(kPerson, 1);
  one.constraint.begins_after = vocab_size();
  EXPECT_FALSE(engine->submit(one, std::make_shared<Collect>()).has_value());
  const std::unique_ptr<Engine> none = start(2000, nullptr);
  EXPECT_EQ(none->submit(request(kPerson, 1), std::make_shared<Collect>()).error().code, Code::kUnsupported);
}

}  // namespace
}  // namespace deepinfer::engine
