// Nano, the V4.1 model that comes with the project, against greedy answers of the official code (models/nano/goldens.json). Only that
// folder knows its values. Prompts above the window are run without narrowing, as the goldens were.
#include <algorithm>
#include <gtest/gtest.h>
#include <simdjson.h>

#include "model/safetensors.h"
#include "model/v41.h"
#include "model/v41_weights.h"
#include "read_file.h"
#include "tokenizer/engram_map.h"

namespace deepinfer {
namespace {

const std::string kNano = DI_SOURCE_DIR "/models/nano";
// A bf16 flip may turn a choice whose two best logits are nearer than this (models/README of the goldens).
constexpr double kUnsureGap = 0.3;

std::unique_ptr<model::V41> nano() {
  auto checkpoint = model::Safetensors::open(kNano).value();
  auto config = model::v41_config_from_json(read_file(kNano + "/config.json"), kNano + "/config.json").value();
  auto weights = model::bind_v41(*checkpoint, config).value();
  const auto tokenizer = tokenizer::Tokenizer::from_json(read_file(kNano + "/tokenizer.json"), "", kNano).value();
  auto engram = model::EngramHash::create(config, tokenizer::engram_token_map(*tokenizer, config.vocab_size)).value();
  return model::V41::create(std::move(config), std::move(weights), std::move(engram), std::move(checkpoint));
}

std::vector<TokenId> ids_of(simdjson::dom::element element) {
  const simdjson::dom::array array = element.get_array().value();
  std::vector<TokenId> ids;
  for (const auto id : array) ids.push_back(static_cast<TokenId>(id.get_int64().value()));
  return ids;
}

TEST(Nano, GreedyAnswersOfTheOfficialCode) {
  const auto model = nano();
  const auto workers = Workers::create(1, false);
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
                     arena.data(), logits.data(), *workers);
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

}  // namespace
}  // namespace deepinfer
