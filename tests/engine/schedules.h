// engine/schedules.h: "same input, same bits", as a property of any model: choices answered alone, each by a fresh Stepper with room and big
// steps, must get the same tokens and the same bits of every logprob in random company: arrivals, budgets, arenas so small that they
// preempt, cancelled neighbours, prefix hits, several choices, thread counts. With bounded replay the input is the request and its cuts
// (sched/sequence.h): alone, the choice finds a cache that was filled so that it is cut at the same places.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/rng.h"
#include "engine/collect.h"
#include "engine/image_reader.h"
#include "engine/stepper.h"

namespace deepinfer::engine {

using ModelFactory = std::function<std::unique_ptr<model::Model>(Workers&)>;

// A Stepper with a model of its own, driven by hand.
class Bench {
 public:
  Bench(const ModelFactory& make_model, int num_threads, int32_t num_blocks, int32_t budget, int32_t max_num_sequences, bool bounded_replay = true)
      : workers(Workers::create(num_threads, false)), model(make_model(*workers)) {
    const int64_t block_bytes = model->kv_layout().block_bytes;
    const int32_t block_tokens = model->kv_layout().block_tokens;
    max_context = std::min(model->info().max_context, num_blocks * block_tokens);
    limits = {.vocab_size = model->info().vocab_size, .max_context = max_context, .model_max_context = max_context,
              .block_tokens = block_tokens, .block_bytes = block_bytes, .model_stop_tokens = {}, .image_encoder = model->image_encoder()};
    const StepperOptions options{.max_num_batched_tokens = budget, .max_num_sequences = max_num_sequences, .max_num_requests = 64,
                                 .max_context = max_context, .num_blocks = num_blocks, .bounded_replay = bounded_replay};
    auto arena = kv::Arena::map(Stepper::arena_bytes(model->kv_layout(), options));
    CHECK(arena.has_value());
    std::memset(arena.value().data(), 0xff, arena.value().size());  // no number: what is read must have been written
    stepper = std::make_unique<Stepper>(*model, *workers, clock, std::move(arena).value(), options);
  }
  // The request must have been checked to fit.
  // first_choice: the number of the only choice, or of the first.
  RequestState& submit(Request request, std::shared_ptr<EventSink> sink, bool prefix_cache = true, int32_t first_choice = 0) {
    const auto checked = check_request(request, limits);
    CHECK(checked.has_value());
    return submit_unchecked(std::move(request), std::move(sink), prefix_cache, first_choice);
  }
  // Also of a prompt that ends within a picture.
  RequestState& submit_unchecked(Request request, std::shared_ptr<EventSink> sink, bool prefix_cache = true, int32_t first_choice = 0) {
    const std::string salt = prefix_cache ? "" : std::to_string(next_id_);
    auto state = make_request_state(next_id_++, std::move(request), std::move(sink), limits,
                                    kv::root_key({.weights = "w", .format = model->kv_layout().format, .block_tokens = limits.block_tokens, .salt = salt}));
    RequestState& reference = *state;
    for (SequenceState& choice : reference.choices) choice.choice += first_choice;
    stepper->add(std::move(state));
    return reference;
  }

  ManualClock clock;
  std::unique_ptr<Workers> workers;
  std::unique_ptr<model::Model> model;
  int32_t max_context = 0;
  RequestLimits limits{};
  std::unique_ptr<Stepper> stepper;

 private:
  RequestId next_id_ = 1;
};

struct ScheduleOptions {
  int num_requests;
  int32_t max_tokens_in_all;
  int32_t min_tokens_in_all = 2;
  bool bounded_replay = true;
  int max_threads = 3;
  int32_t max_choices = kMaxChoices;
  std::vector<std::shared_ptr<const InputImage>> images{};  // of which prompts show some; the model sees them
  TokenId image_token = -1;
};

// Puts a picture over positions of a prompt, if it fits there behind the ones before.
inline void place_image(Request& request, int32_t start, std::shared_ptr<const InputImage> image, TokenId token) {
  const int32_t taken = request.images.empty() ? 0 : request.images.back().start + request.images.back().image->num_tokens;
  const int32_t end = start + image->num_tokens;
  if (start < taken || end > static_cast<int32_t>(request.prompt.size())) return;
  std::fill(request.prompt.begin() + start, request.prompt.begin() + end, token);
  request.images.push_back({.start = start, .image = std::move(image)});
}

// One picture after the other at places that are mostly the same, so that prompts share prefixes that show pictures; now and then another.
inline void place_random_images(Rng& rng, const ScheduleOptions& how, Request& request) {
  const auto length = static_cast<int32_t>(request.prompt.size());
  size_t next = rng.below(4) == 0;
  for (int32_t start = 5; start < length; start += 29) {
    next += 1 + (rng.below(8) == 0);
    place_image(request, start, how.images[next % how.images.size()], how.image_token);
  }
}

inline Request random_request(Rng& rng, int32_t vocab_size, const ScheduleOptions& how) {
  // Few starts and one alphabet: prompts share prefixes of all lengths.
  Request request;
  const int32_t least = how.min_tokens_in_all;
  const auto total = least + static_cast<int32_t>(rng.below(static_cast<uint64_t>(how.max_tokens_in_all - least + 1)));
  const auto length = std::max(1, static_cast<int32_t>(rng.below(static_cast<uint64_t>(total))));
  const auto start = static_cast<int32_t>(rng.below(2));
  for (int32_t i = 0; i < length; ++i) request.prompt.push_back((start * 31 + i * 17) % vocab_size);
  if (rng.below(2)) request.prompt.back() = static_cast<TokenId>(rng.below(static_cast<uint64_t>(vocab_size)));
  if (!how.images.empty()) place_random_images(rng, how, request);
  SamplingParams& p = request.sampling;
  p.max_tokens = total - length;
  p.seed = rng.next_u64();
  p.temperature = rng.below(3) == 0 ? 0.0f : static_cast<float>(0.3 + rng.uniform());
  if (rng.below(3) == 0) p.top_k = static_cast<int32_t>(1 + rng.below(30));
  if (rng.below(3) == 0) p.top_p = static_cast<float>(0.1 + 0.8 * rng.uniform());
  if (rng.below(4) == 0) p.min_p = static_cast<float>(0.3 * rng.uniform());
  if (rng.below(4) == 0) p.repetition_penalty = 1.2f, p.frequency_penalty = 0.3f;
  if (rng.below(4) == 0) p.stop_token_ids = {static_cast<TokenId>(rng.below(static_cast<uint64_t>(vocab_size)))};
  if (rng.below(4) == 0) p.min_tokens = std::min(3, p.max_tokens);
  p.top_logprobs = static_cast<int32_t>(rng.below(5)) - 1;
  if (rng.below(4) == 0) request.n = static_cast<int32_t>(1 + rng.below(static_cast<uint64_t>(how.max_choices)));
  return request;
}

// One choice of a request without company, cut where it says.
inline ChoiceResult answer_alone(const ModelFactory& make_model, int32_t num_blocks, bool bounded_replay, const Request& request, int32_t choice,
                                 const std::vector<int32_t>& cuts) {
  Bench bench(make_model, 1, num_blocks, 512, 2, bounded_replay);
  for (const int32_t cut : cuts) {  // each finds what the one before left, and leaves the blocks up to its own end
    Request filler;
    filler.prompt.assign(request.prompt.begin(), request.prompt.begin() + cut + 1);
    for (const ImageSpan& span : request.images) {
      if (span.start <= cut) filler.images.push_back(span);
    }
    filler.sampling.max_tokens = 1;
    bench.submit_unchecked(std::move(filler), std::make_shared<Collect>());
    while (!bench.stepper->idle()) bench.stepper->step();
  }
  Request one = request;
  one.n = 1;
  auto sink = std::make_shared<Collect>(choice + 1);
  RequestState& state = bench.submit(std::move(one), sink, true, choice);
  std::vector<std::unique_ptr<RequestState>> ended;
  while (!bench.stepper->idle()) bench.stepper->step();
  bench.stepper->take_ended(ended);
  EXPECT_EQ(state.choices[0].cuts, cuts);
  EXPECT_TRUE(sink->choices[static_cast<size_t>(choice)].finished);
  return sink->choices[static_cast<size_t>(choice)];
}

struct ScheduleTotals {
  uint64_t num_preemptions = 0, num_hit_tokens = 0, num_cancelled = 0;
  uint64_t num_cuts = 0;
  uint64_t num_cancelled_alone = 0;  // choices whose siblings went on
};

inline void check_schedule(const ModelFactory& make_model, uint64_t seed, const ScheduleOptions& how, ScheduleTotals& totals) {
  SCOPED_TRACE("seed " + std::to_string(seed));
  Rng rng(seed);
  const int num_threads = static_cast<int>(1 + rng.below(static_cast<uint64_t>(how.max_threads)));
  const auto budget = static_cast<int32_t>(1 + rng.below(rng.below(2) ? 12 : 512));
  const auto max_num_sequences = static_cast<int32_t>(1 + rng.below(10));
  const bool prefix_cache = rng.below(4) != 0;
  std::unique_ptr<model::Model> probe = make_model(*Workers::create(1, false));
  const int32_t block_tokens = probe->kv_layout().block_tokens, vocab_size = probe->info().vocab_size;
  const int32_t least = (how.max_tokens_in_all + block_tokens - 1) / block_tokens;  // one sequence fits alone
  const auto num_blocks = static_cast<int32_t>(static_cast<uint64_t>(least) + rng.below(static_cast<uint64_t>(2 * least)));

  struct Case {
    Request request;
    std::shared_ptr<Collect> got;
    ChoiceMask cancel = 0;  // these, at random steps
    ChoiceMask cancelled = 0;
    RequestState* state = nullptr;
    int arrival = 0;
  };
  std::vector<Case> cases(static_cast<size_t>(how.num_requests));
  int arrival = 0;
  for (Case& c : cases) {
    c.request = random_request(rng, vocab_size, how);
    c.got = std::make_shared<Collect>(c.request.n);
    if (rng.below(4) == 0) c.cancel = rng.below(2) ? kAllChoices : choice_mask(static_cast<int32_t>(rng.below(static_cast<uint64_t>(c.request.n))));
    c.arrival = arrival += static_cast<int>(rng.below(5));
  }

  Bench bench(make_model, num_threads, num_blocks, budget, max_num_sequences, how.bounded_replay);
  std::vector<std::unique_ptr<RequestState>> ended;  // kept: cases point to them
  std::vector<std::unique_ptr<RequestState>> some;
  size_t next = 0;
  for (int step = 0; next < cases.size() || !bench.stepper->idle(); ++step) {
    ASSERT_LT(step, 100000) << "no progress";
    for (; next < cases.size() && cases[next].arrival <= step; ++next) {
      cases[next].state = &bench.submit(cases[next].request, cases[next].got, prefix_cache);
    }
    for (Case& c : cases) {
      if (c.cancel == 0 || c.state == nullptr || rng.below(8) != 0) continue;
      c.state->cancelled |= c.cancel;
      c.cancelled = c.cancel;
    }
    bench.stepper->end_cancelled();
    if (!bench.stepper->idle()) bench.stepper->step();
    bench.stepper->take_ended(some);
    for (auto& request : some) ended.push_back(std::move(request));
  }
  for (size_t i = 0; i < cases.size(); ++i) {
    const Case& c = cases[i];
    ASSERT_TRUE(c.got->done()) << "request " << i;
    for (size_t k = 0; k < c.got->choices.size(); ++k) {
      const ChoiceResult& got = c.got->choices[k];
      const std::vector<int32_t>& cuts = c.state->choices[k].cuts;
      totals.num_cuts += cuts.size();
      ChoiceResult expected = answer_alone(make_model, 2 * least + 2, how.bounded_replay, c.request, static_cast<int32_t>(k), cuts);
      if (got.finished == FinishReason::kCancelled) {  // what came until then is the beginning of what would have come
        ASSERT_LE(got.tokens.size(), expected.tokens.size());
        expected.tokens.resize(got.tokens.size());
        ASSERT_LE(got.logprobs.size(), expected.logprobs.size());
        expected.logprobs.resize(got.logprobs.size());
        ASSERT_TRUE(c.cancelled & choice_mask(static_cast<int32_t>(k))) << "nobody asked for that";
        totals.num_cancelled += 1;
        totals.num_cancelled_alone += c.cancelled != kAllChoices && c.request.n > 1;
      } else {
        ASSERT_EQ(got.finished, expected.finished);
      }
      ASSERT_TRUE(got.same_output(expected)) << "request " << i << " choice " << k;
    }
  }
  const InferenceStats stats = bench.stepper->stats();
  ASSERT_EQ(stats.num_blocks_in_use, 0);
  ASSERT_EQ(stats.requests_finished_total + stats.requests_cancelled_total, cases.size());
  totals.num_preemptions += stats.preemptions_total;
  totals.num_hit_tokens += stats.prefix_hit_tokens_total;
}

}  // namespace deepinfer::engine
