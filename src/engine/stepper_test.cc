#include "engine/stepper.h"

#include <gtest/gtest.h>

#include <memory>
#include <tuple>
#include <utility>

#include "engine/fake_model.h"
#include "engine/schedules.h"

namespace deepinfer::engine {
namespace {

std::unique_ptr<model::Model> make_fake(Workers&) { return std::make_unique<FakeModel>(FakeModelOptions{}); }

TEST(Stepper, SameInputSameBitsUnderRandomSchedules) {
  ScheduleTotals totals;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    check_schedule(make_fake, seed, {.num_requests = 14, .max_tokens_in_all = 100}, totals);
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(totals.num_preemptions, 50u);  // the schedules reached what they are for
  EXPECT_GT(totals.num_hit_tokens, 1000u);
  EXPECT_GT(totals.num_cancelled, 20u);
  EXPECT_GT(totals.num_cancelled_alone, 10u);
}

// A model with windows beside its blocks: with exact replay a hit changes nothing.
TEST(Stepper, ExactReplayGivesTheBitsOfARunWithoutAGap) {
  ScheduleTotals totals;
  for (const int32_t window : {1, 7}) {
    const auto make = [&](Workers&) { return std::make_unique<FakeModel>(FakeModelOptions{.window = window}); };
    for (uint64_t seed = 0; seed < 12; ++seed) {
      check_schedule(make, seed, {.num_requests = 14, .max_tokens_in_all = 100, .bounded_replay = false}, totals);
      if (HasFatalFailure()) return;
    }
  }
  EXPECT_GT(totals.num_preemptions, 20u);
  EXPECT_GT(totals.num_hit_tokens, 500u);
  EXPECT_EQ(totals.num_cuts, 0u);
}

// With bounded replay the result is a function of the request and its cuts: not of batch, chunks, preemption or whose ring it was.
TEST(Stepper, BoundedReplayDependsOnTheCutsAlone) {
  ScheduleTotals totals;
  for (const int32_t window : {2, 7}) {
    const auto make = [&](Workers&) { return std::make_unique<FakeModel>(FakeModelOptions{.window = window}); };
    for (uint64_t seed = 0; seed < 15; ++seed) {
      check_schedule(make, seed, {.num_requests = 14, .max_tokens_in_all = 100}, totals);
      if (HasFatalFailure()) return;
    }
  }
  EXPECT_GT(totals.num_preemptions, 20u);
  EXPECT_GT(totals.num_hit_tokens, 500u);
  EXPECT_GT(totals.num_cuts, 100u);
}

// Where the replay reaches back to the beginning it is exact; where it does not, this model tells (so the tests above can fail).
TEST(Stepper, ABoundedReplayFromTheBeginningIsExact) {
  const auto answer = [](int32_t prompt_tokens, int32_t found, bool bounded) {
    const auto make = [](Workers&) { return std::make_unique<FakeModel>(FakeModelOptions{.window = 8}); };
    Bench bench(make, 1, 100, 512, 4, bounded);
    Request request;
    for (int32_t i = 0; i < prompt_tokens; ++i) request.prompt.push_back(i % 90);
    request.sampling = {.top_logprobs = 3, .max_tokens = 12};
    Request before = request;
    before.prompt.resize(static_cast<size_t>(found + 1));
    before.sampling.max_tokens = 1;
    if (found > 0) bench.submit(before, std::make_shared<Collect>());
    while (!bench.stepper->idle()) bench.stepper->step();
    auto sink = std::make_shared<Collect>();
    bench.submit(request, sink);
    while (!bench.stepper->idle()) bench.stepper->step();
    EXPECT_EQ(sink->choices[0].usage.cached_tokens, found);
    return sink->choices[0];
  };
  // Short prompts: no row is left out of the decoder, and a hit of a window at most starts over.
  EXPECT_TRUE(answer(8, 0, true).same_output(answer(8, 0, false)));
  EXPECT_TRUE(answer(8, 4, true).same_output(answer(8, 0, false)));
  EXPECT_TRUE(answer(20, 8, true).same_output(answer(20, 0, true)));
  EXPECT_TRUE(answer(20, 12, false).same_output(answer(20, 0, false)));
  EXPECT_FALSE(answer(20, 12, true).same_output(answer(20, 0, true)));
}

// Pictures of 1 x 1 to 4 x 4 positions, two of which differ by one pixel.
std::vector<std::shared_ptr<const InputImage>> some_images() {
  std::vector<std::shared_ptr<const InputImage>> images;
  const FakeImageEncoder encoder;
  for (const auto& [width, height, value] : {std::tuple{2, 2, 0}, {4, 2, 10}, {8, 8, 20}, {8, 8, 21}, {3, 7, 99}}) {
    image::Picture picture{.width = width, .height = height, .rgb = std::vector<uint8_t>(static_cast<size_t>(width * height * 3), 20)};
    picture.rgb.back() = static_cast<uint8_t>(value);
    images.push_back(fit_image(picture, encoder.patch_options()).value());
  }
  return images;
}

// Pictures cross blocks, chunks, cuts and windows; they are found in the cache with their text, computed again after a preemption, and seen
// by several choices. The model takes a picture's rows for its tokens, and does not take less.
TEST(Stepper, SameBitsWithPicturesUnderRandomSchedules) {
  for (const auto& [window, bounded] : {std::pair{0, true}, {7, false}, {7, true}, {2, true}}) {
    SCOPED_TRACE("window " + std::to_string(window) + (bounded ? ", bounded" : ", exact"));
    const auto make = [window = window](Workers&) { return std::make_unique<FakeModel>(FakeModelOptions{.window = window, .vision = true}); };
    ScheduleTotals totals;
    for (uint64_t seed = 0; seed < 15; ++seed) {
      check_schedule(make, seed, {.num_requests = 14, .max_tokens_in_all = 100, .bounded_replay = bounded, .images = some_images(), .image_token = 96}, totals);
      if (HasFatalFailure()) return;
    }
    EXPECT_GT(totals.num_preemptions, 20u);
    EXPECT_GT(totals.num_hit_tokens, 100u);
    EXPECT_EQ(totals.num_cuts > 0, window > 0 && bounded);
  }
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

// One of three choices goes after any number of steps, the first during the prompt too: it ends there, once, and gives its blocks back;
// the others have the same bits as if it had stayed.
TEST(Stepper, ACancelledChoiceLeavesItsSiblingsAlone) {
  Request request;
  for (int i = 0; i < 30; ++i) request.prompt.push_back(i % 90);
  request.n = 3;
  request.sampling.max_tokens = 25;
  request.sampling.top_logprobs = 3;
  auto expected = std::make_shared<Collect>(3);
  Bench whole(make_fake, 1, 200, 8, 8);  // the prompt takes four steps
  whole.submit(request, expected);
  while (!whole.stepper->idle()) whole.stepper->step();
  for (int32_t victim = 0; victim < 3; ++victim) {
    for (int num_steps = 0; num_steps < 25; ++num_steps) {
      SCOPED_TRACE("choice " + std::to_string(victim) + " after " + std::to_string(num_steps) + " steps");
      Bench bench(make_fake, 2, 200, 8, 8);
      auto got = std::make_shared<Collect>(3);
      RequestState& state = bench.submit(request, got);
      for (int i = 0; i < num_steps; ++i) bench.stepper->step();
      const auto at = static_cast<size_t>(victim);
      const bool held_blocks = !state.choices[at].blocks.empty();
      const int32_t num_in_use = bench.stepper->stats().num_blocks_in_use;
      ASSERT_FALSE(got->choices[at].finished);
      state.cancelled |= choice_mask(victim);
      bench.stepper->end_cancelled();
      ASSERT_EQ(got->choices[at].finished, FinishReason::kCancelled);
      EXPECT_EQ(bench.stepper->stats().num_blocks_in_use < num_in_use, held_blocks);
      while (!bench.stepper->idle()) {
        bench.stepper->end_cancelled();  // the wish stays set: it must not end anything twice
        bench.stepper->step();
      }
      for (size_t k = 0; k < 3; ++k) {
        ChoiceResult wanted = expected->choices[k];
        if (k == at) {
          ASSERT_LT(got->choices[k].tokens.size(), wanted.tokens.size());
          wanted.tokens.resize(got->choices[k].tokens.size());
          wanted.logprobs.resize(got->choices[k].logprobs.size());
        } else {
          EXPECT_EQ(got->choices[k].finished, FinishReason::kLength);
        }
        EXPECT_TRUE(got->choices[k].same_output(wanted)) << "choice " << k;
      }
      const InferenceStats stats = bench.stepper->stats();
      EXPECT_EQ(stats.num_blocks_in_use, 0);
      EXPECT_EQ(stats.requests_finished_total, 1u);
      EXPECT_EQ(stats.prompt_tokens_total, 30u);
    }
  }
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
