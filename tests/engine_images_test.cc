// Pictures through the whole engine with real forward passes: the tiny V4.1 checkpoint against the official code's logits, and the same bits
// whatever happens on the way.
#include <gtest/gtest.h>

#include <cmath>

#include "engine/engine.h"
#include "engine/fake_model.h"
#include "engine/image_reader.h"
#include "engine/schedules.h"
#include "golden_safetensors.h"
#include "model/image_encoder.h"
#include "model/load.h"

namespace deepinfer::engine {
namespace {

const std::string kTiny = DI_SOURCE_DIR "/tests/golden/v41-tiny";

std::unique_ptr<model::Model> tiny(Workers& workers) { return std::move(model::load_model(kTiny, {}, workers).value().model); }

struct Golden {
  Golden() : file(kTiny + "/vision.safetensors") {
    const auto workers = Workers::create(1, false);
    const auto model = tiny(*workers);
    options = model->image_encoder()->patch_options();
    token = model->image_encoder()->token_id();
  }
  std::shared_ptr<const InputImage> image(const std::string& name) const {
    const auto shape = file.shape(name + ".rgb");
    return fit_image({.width = static_cast<int32_t>(shape[1]), .height = static_cast<int32_t>(shape[0]), .rgb = file.bytes(name + ".rgb")}, options).value();
  }
  Request request(const std::string& name, const std::vector<std::string>& pictures) const {
    Request request;
    for (const int64_t id : file.integers(name + ".tokens")) request.prompt.push_back(static_cast<TokenId>(id));
    const auto types = file.integers(name + ".types");
    for (size_t at = 0, next = 0; at < types.size(); ++at) {
      if (types[at] == 0) request.images.push_back({.start = static_cast<int32_t>(at), .image = image(pictures.at(next++))});  // a picture's start
    }
    return request;
  }
  GoldenFile file;
  image::PatchOptions options;
  TokenId token = -1;
};

// The tiny model with the reference's own rows of pictures: what remains is the way of a picture through the engine.
class WithGoldenRows final : public model::Model, public model::ImageEncoder {
 public:
  WithGoldenRows(std::unique_ptr<model::Model> inner, const Golden& golden, const std::string& name)
      : inner_(std::move(inner)), embed_(golden.file.floats(name + ".embed")), types_(golden.file.integers(name + ".types")) {}

  const model::ModelInfo& info() const override { return inner_->info(); }
  const model::KvLayout& kv_layout() const override { return inner_->kv_layout(); }
  model::StepCost cost(const model::StepShape& shape) const override { return inner_->cost(shape); }
  const model::ImageEncoder* image_encoder() const override { return this; }
  void reserve(const model::ModelLimits& limits, Workers& workers) override { inner_->reserve(limits, workers); }
  Result<> forward(const model::StepBatch& batch, std::byte* arena, float* logits, Workers& workers) override { return inner_->forward(batch, arena, logits, workers); }

  TokenId token_id() const override { return inner_->image_encoder()->token_id(); }
  const image::PatchOptions& patch_options() const override { return inner_->image_encoder()->patch_options(); }
  // The pictures of a prompt differ in size: the rows are those of the first that is as long.
  std::unique_ptr<model::ImageEncoding> begin(std::vector<bf16>, const image::PatchPlan& plan, Workers&) const override {
    const auto hidden = static_cast<size_t>(inner_->info().hidden_size), count = static_cast<size_t>(plan.num_tokens());
    for (size_t at = 0; at + count <= types_.size(); ++at) {
      if (types_[at] != 0 || types_[at + count - 1] != 3) continue;  // its start and its end
      std::vector<bf16> rows;
      for (size_t i = at * hidden; i < (at + count) * hidden; ++i) rows.push_back(to_bf16(embed_[i]));
      return std::make_unique<ReadyImage>(std::move(rows));
    }
    return std::make_unique<ReadyImage>(std::vector<bf16>());
  }

 private:
  std::unique_ptr<model::Model> inner_;
  const std::vector<float> embed_;
  const std::vector<int64_t> types_;
};

// The logarithm of the largest probabilities after each position behind the pictures, as the engine reports them for prompts that end there.
double median_difference(const Golden& golden, const std::string& name, const std::vector<std::string>& pictures, int32_t budget, bool golden_rows) {
  const auto workers = Workers::create(1, false);
  const SteadyClock clock;
  std::unique_ptr<model::Model> model = tiny(*workers);
  if (golden_rows) model = std::make_unique<WithGoldenRows>(std::move(model), golden, name);
  const auto engine = Engine::start(std::move(model), *workers, clock,
                                    {.kv_bytes = 1 << 20, .max_num_batched_tokens = budget, .max_num_sequences = 2, .bounded_replay = false}).value();
  const Request whole = golden.request(name, pictures);
  EXPECT_EQ(whole.images.size(), pictures.size());
  const auto logits = golden.file.floats(name + ".logits");
  const size_t vocab = logits.size() / whole.prompt.size();
  std::vector<double> worst;
  const auto first = static_cast<size_t>(whole.images.back().start + whole.images.back().image->num_tokens);
  for (size_t length = first; length <= whole.prompt.size(); ++length) {
    Request request = whole;
    request.prompt.resize(length);
    request.sampling = {.temperature = 0, .top_logprobs = 20, .max_tokens = 1, .ignore_eos = true};
    struct Last final : EventSink {
      void on_event(const TokenEvent& e) override {
        event = e;
        if (e.finished) ended.store(true);
        ended.notify_all();
      }
      TokenEvent event;
      std::atomic<bool> ended = false;
    };
    const auto sink = std::make_shared<Last>();
    EXPECT_TRUE(engine->submit(std::move(request), sink));
    sink->ended.wait(false);
    EXPECT_EQ(sink->event.num_top, 20);
    const std::span<const float> row = std::span(logits).subspan((length - 1) * vocab, vocab);
    double sum = 0;
    for (const float v : row) sum += std::exp(double{v});
    double largest = 0;
    for (int32_t i = 0; i < 20; ++i) {
      const TokenLogprob& top = sink->event.top[static_cast<size_t>(i)];
      largest = std::max(largest, std::fabs(top.logprob - (row[static_cast<size_t>(top.token)] - std::log(sum))));
    }
    worst.push_back(largest);
  }
  EXPECT_GE(worst.size(), 5u);
  std::nth_element(worst.begin(), worst.begin() + static_cast<ptrdiff_t>(worst.size() / 2), worst.end());
  return worst[worst.size() / 2];
}

TEST(EngineImages, ProbabilitiesMeetTheReference) {
  const Golden golden;
  for (const int32_t budget : {512, 7}) {
    SCOPED_TRACE(budget);
    // Behind a row of the picture in `prompt` in which one bf16 number falls the other way (v41_image_test); `prompt2` has none before its end.
    EXPECT_LE(median_difference(golden, "prompt", {"a"}, budget, true), 0.1);
    EXPECT_LE(median_difference(golden, "prompt2", {"b", "a"}, budget, true), 1e-3);
    // With rows computed here, .006 apart from the reference's, its own variants differ by .1 (RMS) in what they say behind pictures.
    EXPECT_LE(median_difference(golden, "prompt", {"a"}, budget, false), 0.35);
    EXPECT_LE(median_difference(golden, "prompt2", {"b", "a"}, budget, false), 0.35);
  }
}

class EngineV41Images : public testing::TestWithParam<bool> {};

TEST_P(EngineV41Images, SameInputSameBitsUnderRandomSchedules) {
  const Golden golden;
  const ScheduleOptions how{.num_requests = 6, .max_tokens_in_all = 300, .min_tokens_in_all = 220, .bounded_replay = GetParam(), .max_threads = 1, .max_choices = 3,
                            .images = {golden.image("a"), golden.image("b"), golden.image("d")}, .image_token = golden.token};
  ScheduleTotals totals;
  const auto reached = [&] { return totals.num_hit_tokens > 0 && totals.num_preemptions > 0 && (totals.num_cuts > 0) == GetParam(); };
  for (uint64_t seed = 200; seed < 260 && !reached(); ++seed) {
    check_schedule(tiny, seed, how, totals);
    if (HasFatalFailure()) return;
  }
  EXPECT_TRUE(reached()) << totals.num_hit_tokens << " tokens hit, " << totals.num_preemptions << " preemptions, " << totals.num_cuts << " cuts";
}

INSTANTIATE_TEST_SUITE_P(Replay, EngineV41Images, testing::Bool(), [](const auto& info) { return info.param ? "Bounded" : "Exact"; });

}  // namespace
}  // namespace deepinfer::engine
