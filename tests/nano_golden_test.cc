// Nano, the V4.1 model that comes with the project, against greedy answers of the official code (models/nano/goldens.json). Only that
// folder knows its values. Prompts above the window are run without narrowing, as the goldens were.
#include <algorithm>
#include <gtest/gtest.h>
#include <simdjson.h>

#include "engine/collect.h"
#include "engine/engine.h"
#include "engine/loaded_model.h"

namespace deepinfer {
namespace {

const std::string kNano = DI_SOURCE_DIR "/models/nano";
// A bf16 flip may turn a choice whose two best logits are nearer than this (models/README of the goldens).
constexpr double kUnsureGap = 0.3;

engine::LoadedModel nano(Workers& workers) { return engine::load_weights(engine::open_model(kNano).value(), {}, workers).value(); }

std::vector<TokenId> ids_of(simdjson::dom::element element) {
  const simdjson::dom::array array = element.get_array().value();
  std::vector<TokenId> ids;
  for (const auto id : array) ids.push_back(static_cast<TokenId>(id.get_int64().value()));
  return ids;
}

TEST(Nano, GreedyAnswersOfTheOfficialCode) {
  const auto workers = Workers::create(1, false);
  const auto model = std::move(nano(*workers).model);
  model->reserve({.max_rows = 1024, .max_sequences = 1, .max_logit_rows = 1, .max_context = 2048}, *workers);
  const auto& layout = model->kv_layout();
  std::vector<std::byte> arena(static_cast<size_t>(16 * layout.block_bytes)), state(static_cast<size_t>(layout.state_bytes) + 64);
  auto* aligned = reinterpret_cast<std::byte*>((reinterpret_cast<uintptr_t>(state.data()) + 63) / 64 * 64);
  std::vector<model::BlockId> blocks(16);
  for (size_t i = 0; i < blocks.size(); ++i) blocks[i] = static_cast<model::BlockId>(15 - i);
  std::vector<float> logits(static_cast<size_t>(model->info().vocab_size));
  simdjson::dom::parser parser;
  const simdjson::dom::array cases = parser.load(kNano + "/goldens.json")["cases"].get_array().value();
  int sure = 0;
  for (const auto golden : cases) {
    std::vector<TokenId> tokens = ids_of(golden["prompt"]);
    const std::vector<TokenId> output = ids_of(golden["output"]);
    const simdjson::dom::array gaps = golden["gap"].get_array().value();
    int32_t start = 0;
    for (size_t step = 0; step < output.size(); ++step) {
      const int32_t count = static_cast<int32_t>(tokens.size()) - start, last = count - 1;
      const model::SequenceRows rows{.first_row = 0, .num_rows = count, .start = start, .block_table = blocks, .state = aligned,
                                     .previous = std::span(tokens).first(static_cast<size_t>(start))};
      model->forward({.tokens = std::span(tokens).subspan(static_cast<size_t>(start)), .sequences = {&rows, 1}, .logit_rows = {&last, 1}},
                     arena.data(), logits.data(), *workers).value();
      const auto best = static_cast<TokenId>(std::max_element(logits.begin(), logits.end()) - logits.begin());
      const double gap = gaps.at(step).get_double().value();
      if (gap > kUnsureGap) {
        sure += 1;
        EXPECT_EQ(best, output[step]) << golden["name"].get_string().value() << " step " << step << ", gap " << gap;
      }
      start = static_cast<int32_t>(tokens.size());
      tokens.push_back(output[step]);
    }
  }
  EXPECT_GT(sure, 300);
  RecordProperty("sure_choices", sure);
}

// Through the engine, which feeds back its own tokens: the answers may part where the golden itself is unsure, and not before. With
// bounded replay a prompt above the window is computed otherwise than the goldens were.
TEST(Nano, TheEngineAnswersTheSame) {
  for (const bool bounded_replay : {false, true}) {
    const auto workers = Workers::create(1, false);
    engine::LoadedModel loaded = nano(*workers);
    const int32_t window = loaded.model->kv_layout().replay_tokens;
    const SteadyClock clock;
    engine::EngineOptions options{.card = loaded.card, .weights_identity = "nano", .kv_bytes = 64u << 20, .max_num_batched_tokens = 96};
    options.bounded_replay = bounded_replay;
    auto engine = engine::Engine::start(std::move(loaded.model), *workers, clock, std::move(options)).value();
    simdjson::dom::parser parser;
    const simdjson::dom::array cases = parser.load(kNano + "/goldens.json")["cases"].get_array().value();
    std::vector<std::shared_ptr<engine::Collect>> answers;
    for (const auto golden : cases) {
      Request request;
      request.prompt = ids_of(golden["prompt"]);
      request.sampling.temperature = 0;
      request.sampling.max_tokens = static_cast<int32_t>(ids_of(golden["output"]).size());
      request.sampling.ignore_eos = true;
      answers.push_back(std::make_shared<engine::Collect>());
      ASSERT_TRUE(engine->submit(std::move(request), answers.back()));
    }
    int same = 0;
    size_t i = 0;
    for (const auto golden : cases) {
      ASSERT_TRUE(answers[i]->wait());
      const std::vector<TokenId>& got = answers[i++]->choices[0].tokens;
      if (bounded_replay && ids_of(golden["prompt"]).size() > static_cast<size_t>(window)) continue;
      const std::vector<TokenId> output = ids_of(golden["output"]);
      ASSERT_EQ(got.size(), output.size());
      const auto parting = static_cast<size_t>(std::mismatch(got.begin(), got.end(), output.begin()).first - got.begin());
      same += static_cast<int>(parting);
      if (parting == output.size()) continue;
      const double gap = golden["gap"].get_array().at(parting).get_double().value();
      EXPECT_LE(gap, kUnsureGap) << golden["name"].get_string().value() << " step " << parting;
    }
    EXPECT_GT(same, bounded_replay ? 200 : 350);
  }
}

}  // namespace
}  // namespace deepinfer
