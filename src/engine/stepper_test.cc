#include "engine/stepper.h"

#include <gtest/gtest.h>

#include <memory>

#include "engine/fake_model.h"
#include "engine/schedules.h"

namespace deepinfer::engine {
namespace {

std::unique_ptr<model::Model> make_fake(Workers&) { return std::make_unique<FakeModel>(FakeModelOptions{}); }

TEST(Stepper, SameInputSameBitsUnderRandomSchedules) {
  ScheduleTotals totals;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    check_schedule(make_fake, seed, 14, 100, totals);
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(totals.num_preemptions, 50u);  // the schedules reached what they are for
  EXPECT_GT(totals.num_hit_tokens, 1000u);
  EXPECT_GT(totals.num_cancelled, 20u);
}

TEST(Stepper, FurtherChoicesComputeThePromptsEndOnly) {
  Bench bench(make_fake, 1, 200, 512, 8);
  Request request;
  for (int i = 0; i < 101; ++i) request.prompt.push_back(i % 90);
  request.n = 8;
  request.sampling.max_tokens = 3;
  auto sink = std::make_shared<Collect>(8);
  bench.submit(request, sink);
  bench.stepper->step();
  bench.stepper->step();
  // 26 blocks for the first, one more for each of the others.
  EXPECT_EQ(bench.stepper->stats().num_blocks_in_use, 26 + 7);
  while (!bench.stepper->idle()) bench.stepper->step();
  for (const ChoiceResult& choice : sink->choices) EXPECT_EQ(choice.usage.prompt_tokens, 101);
  EXPECT_NE(sink->choices[0].tokens, sink->choices[1].tokens) << "choices draw apart";
}

TEST(RateMeter, EstimatesFromWhatItSaw) {
  RateMeter meter;
  EXPECT_EQ(meter.queue_seconds({.num_prefill_tokens = 1000, .num_sequences = 100, .max_num_sequences = 4}), 0) << "nothing measured yet";
  meter.record_step(0.010, 4, 0);
  meter.record_step(0.010 + 0.100, 4, 200);  // 0.5 ms a prompt token
  meter.record_sequence(100);
  EXPECT_NEAR(meter.queue_seconds({.num_prefill_tokens = 1000, .num_sequences = 2, .max_num_sequences = 4}), 0.5, 1e-9);
  // Eight in front of four places: the ninth waits for five to end, in rounds of four, a second each.
  EXPECT_NEAR(meter.queue_seconds({.num_prefill_tokens = 0, .num_sequences = 8, .max_num_sequences = 4}), 1.25, 1e-9);
}

}  // namespace
}  // namespace deepinfer::engine
