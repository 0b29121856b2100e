// Pictures in requests: what the cache may give back, what is refused, what is kept. The model is the fake one, whose rows are hashes.
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "engine/collect.h"
#include "engine/engine.h"
#include "engine/fake_model.h"
#include "engine/image_reader.h"
#include "engine/schedules.h"
#include "image/ppm.h"
#include "read_file.h"

namespace deepinfer::engine {
namespace {

constexpr TokenId kImage = 96;

std::shared_ptr<const InputImage> picture(uint8_t value, int32_t width = 8, int32_t height = 8) {
  const image::Picture out{.width = width, .height = height, .rgb = std::vector<uint8_t>(static_cast<size_t>(width * height * 3), value)};
  return fit_image(out, FakeImageEncoder().patch_options()).value();
}

// 60 tokens, of which 22 from position 10 on are a picture's: five whole blocks of four and a piece of two more.
Request request_with(std::shared_ptr<const InputImage> image) {
  Request request;
  for (int32_t i = 0; i < 60; ++i) request.prompt.push_back((1 + i * 7) % 90);
  request.sampling = {.temperature = 0, .top_logprobs = 5, .max_tokens = 8};
  place_image(request, 10, std::move(image), kImage);
  EXPECT_EQ(request.images.size(), 1u);
  return request;
}

class EngineImages : public testing::Test {
 protected:
  void start(EngineOptions options = {}, bool vision = true) {
    options.kv_bytes = 1 << 20;
    options.card.name = "fake";
    engine_ = Engine::start(std::make_unique<FakeModel>(FakeModelOptions{.vision = vision}), *workers_, clock_, std::move(options)).value();
  }
  ChoiceResult answer(Request request) {
    auto sink = std::make_shared<Collect>(request.n);
    const auto id = engine_->submit(std::move(request), sink);
    EXPECT_TRUE(id) << (id ? "" : id.error().message);
    EXPECT_TRUE(sink->wait());
    return sink->choices[0];
  }
  Error refused(Request request) {
    const auto id = engine_->submit(std::move(request), std::make_shared<Collect>());
    EXPECT_FALSE(id);
    return id ? Error{Code::kInternal, "accepted"} : id.error();
  }
  InferenceStats settled() {
    while (engine_->stats().num_running + engine_->stats().num_waiting > 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return engine_->stats();
  }

  SteadyClock clock_;
  std::unique_ptr<Workers> workers_ = Workers::create(1, false);
  std::unique_ptr<Engine> engine_;
};

TEST_F(EngineImages, EqualPicturesAreHitsAndOthersAreNot) {
  start();
  EXPECT_EQ(engine_->model().image_token_id, kImage);
  const ChoiceResult first = answer(request_with(picture(1)));
  const ChoiceResult again = answer(request_with(picture(1)));
  const ChoiceResult other = answer(request_with(picture(2)));
  EXPECT_EQ(first.usage.prompt_tokens, 60);
  EXPECT_EQ(first.usage.cached_tokens, 0);
  EXPECT_EQ(again.usage.cached_tokens, 56);
  EXPECT_TRUE(again.same_output(first));
  EXPECT_EQ(other.usage.cached_tokens, 8) << "what stands before the picture";
  EXPECT_FALSE(other.same_output(first));
  // The same tokens without a picture are another prompt.
  Request bare = request_with(picture(1));
  bare.images.clear();
  const ChoiceResult without = answer(bare);
  EXPECT_EQ(without.usage.cached_tokens, 8);
  EXPECT_FALSE(without.same_output(first));
  // The same picture elsewhere among the same tokens, too.
  Request moved = request_with(picture(1, 8, 8));
  moved.prompt.assign(60, kImage);
  Request later = moved;
  moved.images[0].start = 0;
  later.images[0].start = 1;
  const ChoiceResult at0 = answer(moved), at1 = answer(later);
  EXPECT_EQ(at1.usage.cached_tokens, 0);
  EXPECT_FALSE(at1.same_output(at0));
}

TEST_F(EngineImages, WhatWasComputedFromAPictureIsUsedAgainWithinATenant) {
  start();
  const ChoiceResult first = answer(request_with(picture(1)));
  EXPECT_EQ(settled().images_encoded_total, 1u);
  answer(request_with(picture(1)));
  EXPECT_EQ(settled().images_encoded_total, 1u);
  EXPECT_EQ(settled().images_reused_total, 0u) << "its blocks were found: nobody asked for the picture";
  Request elsewhere = request_with(picture(1));
  elsewhere.prompt[0] = 50;
  answer(elsewhere);
  EXPECT_EQ(settled().images_encoded_total, 1u);
  EXPECT_EQ(settled().images_reused_total, 1u);
  Request foreign = request_with(picture(1));
  foreign.tenant = "other";
  const ChoiceResult theirs = answer(foreign);
  EXPECT_EQ(theirs.usage.cached_tokens, 0);
  EXPECT_TRUE(theirs.same_output(first));
  EXPECT_EQ(settled().images_encoded_total, 2u);
}

TEST_F(EngineImages, NothingIsKeptAboveTheBound) {
  // Room for the 22 rows of one picture.
  start({.image_cache_bytes = 22 * FakeImageEncoder::kHidden * sizeof(bf16)});
  TokenId first = 0;
  for (const uint8_t value : {1, 2, 1}) {
    Request request = request_with(picture(value));
    request.prompt[0] = first++;  // no block is found
    answer(std::move(request));
  }
  EXPECT_EQ(settled().images_encoded_total, 3u);
}

// Streams go on, and other prompts too, while a picture is encoded piece by piece: a step gives it what its rows leave of the budget. The two
// streams leave 62 rows of 64, so that its 126 products take three steps; all 64 would make two of them, and no bound one.
TEST(StepperImages, APictureStallsNobodyElse) {
  const ModelFactory model = [](Workers&) { return std::make_unique<FakeModel>(FakeModelOptions{.vision = true}); };
  constexpr int kBudget = 64, kPieces = 3;
  static_assert(2 * (kBudget - 2) < FakeImageEncoder::kProducts && FakeImageEncoder::kProducts <= 2 * kBudget);
  Bench bench(model, 1, 64, kBudget, 8);
  const auto stream = std::make_shared<Collect>(), shown = std::make_shared<Collect>(), late = std::make_shared<Collect>();
  Request text;
  text.prompt = {3, 1, 4, 1, 5};
  text.sampling = {.temperature = 0, .max_tokens = 40};
  bench.submit(text, stream);
  bench.stepper->step();
  bench.submit(request_with(picture(1)), shown);
  Request other = text;
  other.prompt = {2, 7, 1, 8, 2, 8};
  bench.submit(other, late);
  const auto num_tokens = [](const std::shared_ptr<Collect>& sink) { return sink->choices[0].tokens.size(); };
  const size_t before = num_tokens(stream);
  bench.stepper->step();  // what stands before the picture, and the other prompt
  EXPECT_EQ(num_tokens(late), 1u);
  for (int piece = 0; piece < kPieces; ++piece) {
    EXPECT_EQ(bench.stepper->stats().images_encoded_total, 0u);
    bench.stepper->step();
  }
  EXPECT_EQ(bench.stepper->stats().images_encoded_total, 1u);
  EXPECT_EQ(num_tokens(shown), 0u);
  bench.stepper->step();  // the picture's rows and all that follow
  EXPECT_EQ(num_tokens(shown), 1u);
  EXPECT_EQ(num_tokens(stream), before + 2 + kPieces);
  EXPECT_EQ(num_tokens(late), 2u + kPieces);
}

// Cancelled in the middle of its picture; the next one's begins at once.
TEST(StepperImages, APictureThatNobodyWaitsForIsGivenUp) {
  const ModelFactory model = [](Workers&) { return std::make_unique<FakeModel>(FakeModelOptions{.vision = true}); };
  Bench bench(model, 1, 64, 64, 8);
  const auto first = std::make_shared<Collect>(), second = std::make_shared<Collect>();
  RequestState& cancelled = bench.submit(request_with(picture(1)), first);
  for (int i = 0; i < 2; ++i) bench.stepper->step();
  bench.submit(request_with(picture(2)), second);
  cancelled.cancelled = kAllChoices;
  bench.stepper->end_cancelled();
  while (!bench.stepper->idle()) bench.stepper->step();
  EXPECT_EQ(bench.stepper->stats().images_encoded_total, 1u);
  EXPECT_EQ(second->choices[0].finished, FinishReason::kLength);
}

TEST_F(EngineImages, PixelsOfRequestsInsideAreBounded) {
  start({.max_image_bytes = 8 * 8 * 3});
  answer(request_with(picture(1)));
  settled();
  answer(request_with(picture(2)));  // the first has given its room back
  settled();
  Request two = request_with(picture(3));
  place_image(two, 34, picture(4), kImage);
  ASSERT_EQ(two.images.size(), 2u);
  EXPECT_EQ(refused(two).code, Code::kResourceExhausted);
}

TEST_F(EngineImages, RefusesWhatDoesNotFitItsPrompt) {
  start();
  const auto wrong = [&](auto change) {
    Request request = request_with(picture(1));
    change(request);
    const Error error = refused(std::move(request));
    EXPECT_EQ(error.code, Code::kInvalidArgument) << error.message;
    return error.message;
  };
  EXPECT_EQ(wrong([](Request& r) { r.images[0].start = 9; }), "an image stands where the prompt has other tokens than 96");
  EXPECT_EQ(wrong([](Request& r) { r.prompt[31] = 5; }), "an image stands where the prompt has other tokens than 96");
  EXPECT_EQ(wrong([](Request& r) { r.images[0].start = -1; }), "images do not stand one after the other in the prompt");
  EXPECT_EQ(wrong([](Request& r) { r.images[0].start = 39; }), "images do not stand one after the other in the prompt");
  EXPECT_EQ(wrong([](Request& r) { r.images.push_back(r.images[0]); }), "images do not stand one after the other in the prompt");
  EXPECT_EQ(wrong([](Request& r) { r.images[0].image = nullptr; }), "an image has not the size that the model reads");
  EXPECT_EQ(wrong([](Request& r) {
              auto image = std::make_shared<InputImage>(*r.images[0].image);
              image->num_tokens -= 1;
              r.images[0].image = image;
            }), "an image has not the size that the model reads");
  EXPECT_EQ(wrong([](Request& r) {
              auto image = std::make_shared<InputImage>(*r.images[0].image);
              image->rgb.pop_back();
              r.images[0].image = image;
            }), "an image has not the size that the model reads");
}

TEST_F(EngineImages, AModelWithoutVisionRefusesPictures) {
  start({}, false);
  EXPECT_EQ(engine_->model().image_token_id, -1);
  EXPECT_EQ(refused(request_with(picture(1))).message, "this model reads text only");
  EXPECT_EQ(engine_->read_image({}).error().code, Code::kUnsupported);
}

TEST_F(EngineImages, FilesAreReadWithinLimits) {
  start({.image_limits = {.max_bytes = 1 << 16, .max_pixels = 10000}});
  const auto bytes = [](const std::string& text) { return std::as_bytes(std::span(text)); };
  const std::string file = read_file(image::image_path("rgb.png"));
  const auto image = engine_->read_image(bytes(file));
  ASSERT_TRUE(image) << image.error().message;
  const auto same = fit_image(image::read_ppm(image::image_path("rgb.ppm")), FakeImageEncoder().patch_options()).value();
  EXPECT_EQ((*image)->rgb, same->rgb);
  EXPECT_EQ((*image)->digest, same->digest);
  EXPECT_NE((*image)->digest, picture(1)->digest);
  EXPECT_EQ(engine_->read_image(bytes("hello")).error().code, Code::kUnsupported);
  EXPECT_EQ(engine_->read_image(bytes(file.substr(0, file.size() / 2))).error().code, Code::kCorruption);
  EXPECT_EQ(engine_->read_image(bytes(std::string(1 << 17, 'x'))).error().code, Code::kResourceExhausted);
}

}  // namespace
}  // namespace deepinfer::engine
