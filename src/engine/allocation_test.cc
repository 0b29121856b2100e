// Counts every operator new of the program by thread. A sink, which runs on the engine's thread, reads its count between steps.
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <vector>

#include "count_allocations.h"
#include "engine/engine.h"
#include "engine/fake_model.h"
#include "grammar/fake_vocabulary.h"

namespace deepinfer::engine {
namespace {

class CountingSink final : public EventSink {
 public:
  void on_event(const TokenEvent& event) override {
    if (num_events == 0) at_first = num_allocations_of_this_thread;
    at_last = num_allocations_of_this_thread;
    num_events += 1;
    if (event.finished) num_ended.fetch_add(1);
    num_ended.notify_all();
  }
  uint64_t at_first = 0, at_last = 0;
  int64_t num_events = 0;
  std::atomic<int> num_ended{0};
};

// Prefill in chunks, decodes, penalties, logprobs, truncation, several choices, preemption, evictions, arrivals and ends: none allocates,
// though others might bring constraints.
class EngineAllocations : public testing::TestWithParam<int32_t> {};

TEST_P(EngineAllocations, AStepAllocatesNothing) {
  SteadyClock clock;
  auto workers = Workers::create(2, false);
  EngineOptions options;
  options.kv_bytes = 64 * 120;  // 120 blocks of 4 tokens: too few for all
  options.max_num_batched_tokens = 24;
  options.max_num_sequences = 12;
  const grammar::FakeVocabulary tokenizer;
  grammar::GrammarCache grammars(tokenizer, tokenizer.vocab_size(), {tokenizer.end()});
  options.grammars = &grammars;
  auto started = Engine::start(std::make_unique<FakeModel>(FakeModelOptions{.vocab_size = tokenizer.vocab_size(), .window = GetParam()}), *workers, clock, options);
  ASSERT_TRUE(started.has_value());
  Engine& engine = **started;
  std::vector<std::shared_ptr<CountingSink>> sinks;
  int num_choices = 0;
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < 12; ++i) {
      Request request;
      for (int k = 0; k < 40 + i; ++k) request.prompt.push_back((k * 7 + i % 4) % 97);
      request.n = i % 4 == 0 ? 3 : 1;
      request.sampling = {.temperature = i % 3 * 0.7f, .top_p = i % 2 ? 0.9f : 1.0f, .top_k = i % 5 * 10, .repetition_penalty = i % 2 ? 1.1f : 1.0f,
                          .seed = 5, .top_logprobs = i % 4 == 1 ? 5 : -1, .max_tokens = 60};
      auto sink = std::make_shared<CountingSink>();
      ASSERT_TRUE(engine.submit(request, sink).has_value());
      sinks.push_back(sink);
      num_choices += request.n;
    }
  }
  int ended = 0;
  for (const auto& sink : sinks) {
    const int wanted = static_cast<int>(&sink - sinks.data()) % 12 % 4 == 0 ? 3 : 1;
    for (int n = sink->num_ended.load(); n < wanted; n = sink->num_ended.load()) sink->num_ended.wait(n);
    ended += wanted;
  }
  EXPECT_EQ(ended, num_choices);
  EXPECT_GT(engine.stats().preemptions_total, 0u);
  engine.stop();
  int64_t num_events = 0;
  uint64_t first = ~uint64_t{0}, last = 0;
  for (const auto& sink : sinks) {
    num_events += sink->num_events;
    first = std::min(first, sink->at_first);
    last = std::max(last, sink->at_last);
  }
  EXPECT_GT(num_events, 1000);
  EXPECT_EQ(last - first, 0u) << "allocations on the engine's thread between the first event and the last";
}

INSTANTIATE_TEST_SUITE_P(Windows, EngineAllocations, testing::Values(0, 6));

}  // namespace
}  // namespace deepinfer::engine
