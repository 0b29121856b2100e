#include "engine/engine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <numeric>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/rng.h"
#include "engine/collect.h"
#include "engine/fake_model.h"
#include "eventually.h"
#include "kv/store_world.h"

namespace deepinfer::engine {
namespace {

// The fake model's blocks are tiny: the default arena would have millions.
EngineOptions small(EngineOptions options = {}) {
  options.kv_bytes = std::min<uint64_t>(options.kv_bytes, 4 << 20);
  return options;
}

struct Setup {
  FakeModelOptions model;
  EngineOptions engine;
  int num_threads = 1;
};

class Server {
 public:
  explicit Server(Setup setup = {}) : workers(Workers::create(setup.num_threads, false)) {
    if (setup.engine.card.name.empty()) setup.engine.card.name = "fake";
    auto started = Engine::start(std::make_unique<FakeModel>(setup.model), *workers, clock, small(std::move(setup.engine)));
    CHECK(started.has_value());
    engine = std::move(started).value();
  }

  std::shared_ptr<Collect> submit(Request request) {
    auto sink = std::make_shared<Collect>(request.n);
    auto id = engine->submit(std::move(request), sink);
    EXPECT_TRUE(id.has_value()) << (id ? "" : id.error().message);
    if (id) last_id = id.value();
    return sink;
  }
  ChoiceResult answer(Request request) {
    auto sink = submit(std::move(request));
    EXPECT_TRUE(sink->wait());
    return sink->choices[0];
  }
  Error refused(Request request) {
    auto id = engine->submit(std::move(request), std::make_shared<Collect>());
    EXPECT_FALSE(id.has_value());
    return id ? Error{Code::kInternal, "accepted"} : id.error();
  }
  // Once the engine has seen that nothing is left.
  InferenceStats settled() {
    InferenceStats s;
    eventually([&] {
      s = engine->stats();
      return s.num_running == 0 && s.num_waiting == 0 && s.num_blocks_in_use == 0;
    });
    return s;
  }

  SteadyClock clock;
  std::unique_ptr<Workers> workers;
  std::unique_ptr<Engine> engine;
  RequestId last_id = 0;
};

std::vector<TokenId> prompt_of(int32_t length, TokenId first = 1) {
  std::vector<TokenId> prompt(static_cast<size_t>(length));
  for (int32_t i = 0; i < length; ++i) prompt[static_cast<size_t>(i)] = (first + i * 7) % 90;
  return prompt;
}

Request request_of(int32_t prompt_length, int32_t max_tokens, TokenId first = 1) {
  return {.prompt = prompt_of(prompt_length, first), .sampling = {.temperature = 0, .max_tokens = max_tokens}};
}

TEST(Engine, WarmOutputIsColdOutput) {
  Server server;
  Request request = request_of(50, 30);
  request.sampling.top_logprobs = 5;
  const ChoiceResult cold = server.answer(request);
  const ChoiceResult warm = server.answer(request);
  EXPECT_EQ(cold.tokens.size(), 30u);
  EXPECT_EQ(cold.usage.cached_tokens, 0);
  EXPECT_EQ(warm.usage.cached_tokens, 48);
  EXPECT_TRUE(warm.same_output(cold));
  EXPECT_EQ(cold.finished, FinishReason::kLength);
  // The next turn of the conversation finds the answer's blocks too.
  request.prompt.insert(request.prompt.end(), cold.tokens.begin(), cold.tokens.end());
  request.prompt.push_back(3);
  EXPECT_EQ(server.answer(request).usage.cached_tokens, 76);
}

// Draws are keyed by the position in the sequence, not by what a request has sampled so far: one that brings the first tokens of an
// answer in its prompt gets the rest.
TEST(Engine, AnAnswerGoesOnFromAnyOfItsTokens) {
  Server server;
  Request request = request_of(50, 20);
  request.sampling.temperature = 1;
  request.sampling.seed = 5;
  const std::vector<TokenId> whole = server.answer(request).tokens;
  ASSERT_EQ(whole.size(), 20u);
  for (const int32_t given : {1, 7, 19}) {
    Request rest = request;
    rest.prompt.insert(rest.prompt.end(), whole.begin(), whole.begin() + given);
    rest.sampling.max_tokens = 20 - given;
    EXPECT_EQ(server.answer(rest).tokens, std::vector<TokenId>(whole.begin() + given, whole.end())) << given;
  }
}

TEST(Engine, ATenantFindsOnlyItsOwnBlocks) {
  Server server;
  Request request = request_of(50, 4);
  const ChoiceResult first = server.answer(request);
  request.tenant = "other";
  const ChoiceResult other = server.answer(request);
  EXPECT_EQ(other.usage.cached_tokens, 0);
  EXPECT_TRUE(other.same_output(first));
}

// Of the class that the request names, counted from when its blocks were computed.
TEST(Engine, PastItsRetentionAPromptIsComputedAgain) {
  const auto time = std::make_shared<kv::ManualTime>();
  Server server({.engine = {.retention_classes = {{"chat", 1000}, {"agent", 100}}, .time = time}});
  const auto num_cached = [&](const std::string& retention, TokenId first) {
    Request request = request_of(41, 1, first);
    request.retention = retention;
    return server.answer(request).usage.cached_tokens;
  };
  EXPECT_EQ(num_cached("", 1), 0);
  EXPECT_EQ(num_cached("agent", 2), 0);
  time->advance(99);
  EXPECT_EQ(num_cached("", 1), 40);
  EXPECT_EQ(num_cached("agent", 2), 40);
  time->advance(1);
  EXPECT_EQ(num_cached("", 1), 40);
  EXPECT_EQ(num_cached("agent", 2), 0) << "to be used has not made it younger";
  time->advance(99);
  EXPECT_EQ(num_cached("agent", 2), 40) << "it was computed anew";
  time->advance(801);
  EXPECT_EQ(num_cached("", 1), 0);
}

TEST(Engine, ASaltNarrowsWithinTheTenant) {
  Server server;
  Request request = request_of(50, 4);
  server.answer(request);
  request.cache_salt = "mine";
  EXPECT_EQ(server.answer(request).usage.cached_tokens, 0);
  EXPECT_EQ(server.answer(request).usage.cached_tokens, 48);
  request.tenant = "other";  // the same salt opens no other tenant's blocks
  EXPECT_EQ(server.answer(request).usage.cached_tokens, 0);
}

TEST(Engine, WithoutThePrefixCacheOnlyItsOwnChoicesShare) {
  Server server({.engine = {.prefix_cache = false}});
  Request request = request_of(400, 4);
  server.answer(request);
  EXPECT_EQ(server.answer(request).usage.cached_tokens, 0);
  request.n = 4;
  auto sink = server.submit(request);
  EXPECT_TRUE(sink->wait());
  // Four times the prompt would be 100 blocks each.
  EXPECT_EQ(server.settled().prefix_hit_tokens_total, 0u);
}

TEST(Engine, StopsWhereItShould) {
  Server server({.engine = {.card = {.stop_token_ids = {}}}});
  const ChoiceResult free = server.answer(request_of(9, 40));
  const TokenId fifth = free.tokens[4];
  const auto first_of = [&](TokenId token) { return std::find(free.tokens.begin(), free.tokens.end(), token) - free.tokens.begin(); };
  Request request = request_of(9, 40);
  request.sampling.stop_token_ids = {fifth};
  const ChoiceResult stopped = server.answer(request);
  EXPECT_EQ(stopped.finished, FinishReason::kStop);
  EXPECT_EQ(static_cast<int64_t>(stopped.tokens.size()), first_of(fifth) + 1);
  EXPECT_EQ(stopped.tokens.back(), fifth);

  request.sampling.min_tokens = 20;  // before that it cannot be sampled at all
  const ChoiceResult late = server.answer(request);
  EXPECT_GE(late.tokens.size(), 20u);
  EXPECT_EQ(std::count(late.tokens.begin(), late.tokens.begin() + 20, fifth), 0);

  Server with_eos({.engine = {.card = {.stop_token_ids = {fifth}}}});
  EXPECT_EQ(with_eos.answer(request_of(9, 40)).finished, FinishReason::kStop);
  Request ignoring = request_of(9, 40);
  ignoring.sampling.ignore_eos = true;
  EXPECT_TRUE(with_eos.answer(ignoring).same_output(free));
}

TEST(Engine, ABudgetEndsThinking) {
  Server server;
  const ChoiceResult free = server.answer(request_of(9, 40));
  TokenId never = 0;  // a token that the model does not come to by itself
  while (std::find(free.tokens.begin(), free.tokens.end(), never) != free.tokens.end()) ++never;
  Request request = request_of(9, 40);
  request.sampling.thinking_end = never;
  for (const int32_t budget : {0, 1, 7, 39}) {
    request.sampling.thinking_budget = budget;
    const ChoiceResult cut = server.answer(request);
    ASSERT_EQ(cut.tokens.size(), 40u);
    EXPECT_TRUE(std::equal(cut.tokens.begin(), cut.tokens.begin() + budget, free.tokens.begin())) << budget;
    EXPECT_EQ(cut.tokens[static_cast<size_t>(budget)], never);
    EXPECT_TRUE(cut.same_output(server.answer(request))) << "again, and from the cache";
  }
  // Thinking that ends before the budget is left alone, and so is everything after it.
  request.sampling.thinking_end = free.tokens[3];
  request.sampling.thinking_budget = 20;
  EXPECT_TRUE(server.answer(request).same_output(free));
  request.sampling.thinking_budget = -1;
  EXPECT_TRUE(server.answer(request).same_output(free));
}

TEST(Engine, TheContextEndsASequence) {
  Server server({.model = {.max_context = 64}});
  const ChoiceResult result = server.answer(request_of(60, 1000));
  EXPECT_EQ(result.finished, FinishReason::kContext);
  EXPECT_EQ(result.tokens.size(), 4u);
  const Error error = server.refused(request_of(64, 1));
  EXPECT_EQ(error.code, Code::kInvalidArgument);
  EXPECT_EQ(error.message, "the prompt has 64 tokens and needs 65 with its output; the context holds 64");
}

TEST(Engine, TheArenaBoundsTheContextOfALoneSequence) {
  Server server({.engine = {.kv_bytes = 64 * 8}});  // 8 blocks of 4 tokens
  EXPECT_EQ(server.engine->model().max_context, 32);
  const ChoiceResult result = server.answer(request_of(20, 1000));
  EXPECT_EQ(result.finished, FinishReason::kContext);
  EXPECT_EQ(result.tokens.size(), 12u);
  const Error error = server.refused(request_of(40, 1));
  EXPECT_EQ(error.message, "the prompt has 40 tokens and needs 41 with its output; that is 704 B of KV memory, and there are 512 B");
}

TEST(Engine, RefusesWhatIsOutOfRange) {
  Server server;
  const auto refused = [&](auto change) {
    Request request = request_of(5, 4);
    change(request);
    const Error error = server.refused(request);
    EXPECT_EQ(error.code, Code::kInvalidArgument) << error.message;
  };
  refused([](Request& r) { r.prompt.clear(); });
  refused([](Request& r) { r.prompt[2] = 97; });
  refused([](Request& r) { r.prompt[2] = -1; });
  refused([](Request& r) { r.n = 0; });
  refused([](Request& r) { r.n = kMaxChoices + 1; });
  refused([](Request& r) { r.sampling.temperature = -1; });
  refused([](Request& r) { r.sampling.temperature = std::numeric_limits<float>::quiet_NaN(); });
  refused([](Request& r) { r.sampling.top_p = 0; });
  refused([](Request& r) { r.sampling.top_p = 1.5f; });
  refused([](Request& r) { r.sampling.min_p = -0.1f; });
  refused([](Request& r) { r.sampling.top_k = -1; });
  refused([](Request& r) { r.sampling.repetition_penalty = 0; });
  refused([](Request& r) { r.sampling.presence_penalty = std::numeric_limits<float>::infinity(); });
  refused([](Request& r) { r.sampling.logit_bias = {{97, 1.0f}}; });
  refused([](Request& r) { r.sampling.logit_bias = {{1, std::numeric_limits<float>::quiet_NaN()}}; });
  refused([](Request& r) { r.sampling.top_logprobs = 21; });
  refused([](Request& r) { r.sampling.max_tokens = 0; });
  refused([](Request& r) { r.sampling.min_tokens = 5; });
  refused([](Request& r) { r.sampling.stop_token_ids.assign(17, 1); });
  refused([](Request& r) { r.sampling.stop_token_ids = {97}; });
  refused([](Request& r) { r.sampling.thinking_budget = 0; });
  refused([](Request& r) {
    r.sampling.thinking_budget = 4;
    r.sampling.thinking_end = 97;
  });
}

TEST(Engine, AFaultEndsItsRequestAlone) {
  Server server({.model = {.poison = 96}});
  Request innocent = request_of(9, 200);
  innocent.sampling.logit_bias = {{96, -100.0f}};
  auto good = server.submit(innocent);
  Request bad = request_of(16, 10, 5);
  bad.sampling.logit_bias = innocent.sampling.logit_bias;
  bad.prompt.push_back(96);
  const ChoiceResult result = server.answer(bad);
  EXPECT_EQ(result.finished, FinishReason::kError);
  EXPECT_EQ(result.message, "the model's output is not a number");
  EXPECT_TRUE(result.tokens.empty());
  EXPECT_TRUE(good->wait());
  EXPECT_EQ(good->choices[0].finished, FinishReason::kLength);
  bad.prompt.back() = 95;
  EXPECT_EQ(server.answer(bad).usage.cached_tokens, 0) << "what a failed request computed is not trusted";
  EXPECT_EQ(server.settled().requests_failed_total, 1u);
}

// Weights that the disk does not give end the requests of their step; what is computed afterwards does not build on it.
TEST(Engine, AStepThatFailsEndsItsRequests) {
  std::vector<std::string> log;
  Server server({.model = {.unreadable = 96}, .engine = {.max_num_batched_tokens = 8, .log = [&](const std::string& line) { log.push_back(line); }}});
  Request bad = request_of(30, 10);
  bad.n = 2;
  bad.prompt[20] = 96;
  auto sink = server.submit(bad);
  EXPECT_TRUE(sink->wait());
  for (const ChoiceResult& choice : sink->choices) {
    EXPECT_EQ(choice.finished, FinishReason::kError);
    EXPECT_EQ(choice.message, "the model's weights could not be read");
    EXPECT_TRUE(choice.tokens.empty());
  }
  EXPECT_EQ(server.settled().requests_failed_total, 1u);
  const Request good = request_of(30, 10);  // the same beginning
  EXPECT_EQ(server.answer(good).usage.cached_tokens, 0);
  EXPECT_EQ(server.answer(good).usage.cached_tokens, 28);
  server.engine->stop();
  EXPECT_EQ(log, std::vector<std::string>(2, "a step has failed, and the requests in it: weights.bin: Input/output error"));
}

TEST(Engine, CancelGivesBlocksBackAtOnce) {
  Server server({.model = {.max_context = 1 << 20, .step_us = 200}});
  auto sink = server.submit(request_of(100, 1 << 19));
  EXPECT_TRUE(sink->wait_for_events(3));
  server.engine->cancel(server.last_id);
  EXPECT_TRUE(sink->wait());
  EXPECT_EQ(sink->choices[0].finished, FinishReason::kCancelled);
  const InferenceStats stats = server.settled();
  EXPECT_EQ(stats.num_blocks_in_use, 0);
  EXPECT_EQ(stats.requests_cancelled_total, 1u);
  server.engine->cancel(server.last_id);  // ended: ignored
  server.engine->cancel(123456);          // unknown: ignored
  EXPECT_EQ(server.answer(request_of(3, 3)).tokens.size(), 3u);
}

TEST(Engine, CancelsOneChoiceOfARunningRequest) {
  Server server({.model = {.max_context = 1 << 20, .step_us = 200}});
  Request request = request_of(50, 1 << 19);
  request.n = 3;
  request.sampling.temperature = 1;
  auto sink = server.submit(request);
  const RequestId id = server.last_id;
  EXPECT_TRUE(sink->wait_for_events(6));
  for (const int32_t nobody : {-1, 3, 31, 32, 1 << 30}) server.engine->cancel_choice(id, nobody);
  server.engine->cancel_choice(id, 1);
  server.engine->cancel_choice(id, 1);
  EXPECT_TRUE(sink->wait_for_end(1));
  EXPECT_TRUE(sink->wait_for_events(sink->count() + 20)) << "the others go on";
  EXPECT_FALSE(sink->done());
  server.engine->cancel_choice(id, 0);
  server.engine->cancel_choice(id, 2);
  EXPECT_TRUE(sink->wait());
  server.engine->cancel_choice(id, 2);  // ended: ignored
  for (const ChoiceResult& choice : sink->choices) EXPECT_EQ(choice.finished, FinishReason::kCancelled);
  const InferenceStats stats = server.settled();
  EXPECT_EQ(stats.num_blocks_in_use, 0);
  EXPECT_EQ(stats.requests_finished_total, 1u) << "choice by choice its owner had what it wanted";
}

TEST(Engine, AFullQueueRefusesAndDrainingToo) {
  Server server({.model = {.max_context = 1 << 20, .step_us = 500}, .engine = {.max_num_sequences = 1, .max_waiting_requests = 2}});
  auto running = server.submit(request_of(4, 1 << 19));
  EXPECT_TRUE(running->wait_for_events(2));  // the engine has told that it runs
  const RequestId running_id = server.last_id;
  auto second = server.submit(request_of(4, 2)), third = server.submit(request_of(4, 2));
  EXPECT_EQ(server.refused(request_of(4, 2)).code, Code::kResourceExhausted);
  EXPECT_EQ(server.engine->stats().num_waiting, 2);
  server.engine->drain();
  EXPECT_EQ(server.refused(request_of(4, 2)).code, Code::kUnavailable);
  server.engine->cancel(running_id);
  EXPECT_TRUE(second->wait() && third->wait());
  EXPECT_EQ(third->choices[0].finished, FinishReason::kLength) << "what was accepted before is served";
}

TEST(Engine, StopEndsEverything) {
  Server server({.model = {.max_context = 1 << 20, .step_us = 200}, .engine = {.max_num_sequences = 2}});
  std::vector<std::shared_ptr<Collect>> sinks;
  for (int i = 0; i < 6; ++i) {
    Request request = request_of(20, 1 << 19, i);
    request.n = 1 + i % 3;
    sinks.push_back(server.submit(request));
  }
  sinks[0]->wait_for_events(2);
  server.engine->stop();
  for (const auto& sink : sinks) {
    ASSERT_TRUE(sink->done());
    for (const ChoiceResult& choice : sink->choices) EXPECT_EQ(choice.finished, FinishReason::kCancelled);
  }
  EXPECT_EQ(server.engine->stats().num_blocks_in_use, 0);
  EXPECT_EQ(server.refused(request_of(4, 2)).code, Code::kUnavailable);
}

TEST(Engine, RefusesOptionsThatCannotWork) {
  SteadyClock clock;
  auto workers = Workers::create(1, false);
  const auto error = [&](EngineOptions options) {
    auto engine = Engine::start(std::make_unique<FakeModel>(FakeModelOptions{}), *workers, clock, options);
    return engine ? std::string("started") : engine.error().message;
  };
  EXPECT_EQ(error({.kv_bytes = 63}), "KV memory of 63 B holds not one block of 64 B");
  EXPECT_EQ(error({.max_num_batched_tokens = 0}), "max_num_batched_tokens must be at least 1");
}

TEST(Engine, AnIdleEngineUsesNoProcessor) {
  Server server({.num_threads = 2});
  server.answer(request_of(10, 10));
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // the workers fall asleep
  const double before_s = process_cpu_seconds();
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  EXPECT_LT(process_cpu_seconds() - before_s, 0.010);
}

// Clients that come and go at random: every choice ends once (Collect checks), and every block comes back.
TEST(Engine, TwoHundredClientsWithRandomCancels) {
  Server server({.engine = {.kv_bytes = 64 * 300, .max_num_batched_tokens = 64, .max_num_sequences = 16, .max_waiting_requests = 64}, .num_threads = 2});
  std::vector<std::thread> clients;
  std::atomic<int> num_accepted{0}, num_refused{0};
  for (uint64_t client = 0; client < 200; ++client) {
    clients.emplace_back([&, client] {
      Rng rng(client);
      for (int i = 0; i < 4; ++i) {
        Request request = request_of(static_cast<int32_t>(1 + rng.below(80)), static_cast<int32_t>(1 + rng.below(60)), static_cast<TokenId>(rng.below(3)));
        request.n = rng.below(4) == 0 ? static_cast<int32_t>(1 + rng.below(kMaxChoices)) : 1;
        request.sampling.temperature = static_cast<float>(rng.below(2));
        auto sink = std::make_shared<Collect>(request.n);
        const auto id = server.engine->submit(std::move(request), sink);
        if (!id) {
          EXPECT_EQ(id.error().code, Code::kResourceExhausted);
          num_refused += 1;
          std::this_thread::sleep_for(std::chrono::milliseconds(rng.below(5)));
          continue;
        }
        num_accepted += 1;
        if (rng.below(2)) {
          if (rng.below(2)) sink->wait_for_events(static_cast<int64_t>(rng.below(10)));
          rng.below(2) ? server.engine->cancel(id.value()) : server.engine->cancel_choice(id.value(), static_cast<int32_t>(rng.below(kMaxChoices)));
        }
        EXPECT_TRUE(sink->wait());
      }
    });
  }
  for (std::thread& client : clients) client.join();
  const InferenceStats stats = server.settled();
  EXPECT_EQ(stats.num_blocks_in_use, 0);
  EXPECT_EQ(stats.num_running + stats.num_waiting, 0);
  EXPECT_EQ(stats.requests_total, static_cast<uint64_t>(num_accepted));
  EXPECT_EQ(stats.requests_finished_total + stats.requests_cancelled_total, stats.requests_total);
  EXPECT_GT(stats.requests_cancelled_total, 0u);
}

}  // namespace
}  // namespace deepinfer::engine
