#include "model/v41_info.h"

#include <gtest/gtest.h>
#include <simdjson.h>

#include "model/model_info.h"
#include "model/v41_synth.h"
#include "v41_tiny.h"

namespace deepinfer::model {
namespace {

TEST(V41Info, CountsTheTinyCheckpoint) {
  const auto info = read_checkpoint_info(kTiny);
  ASSERT_TRUE(info) << info.error().message;
  EXPECT_EQ(info->architecture, "deepseek_v41");
  EXPECT_TRUE(info->obstacles.empty()) << info->obstacles[0];
  ASSERT_TRUE(info->v41);
  const V41Part total = v41_total(info->v41_parts);
  EXPECT_EQ(total.num_bytes, info->weight_bytes);
  EXPECT_EQ(total.num_tensors, info->num_tensors);
  EXPECT_EQ(total.num_parameters, info->num_parameters);
  for (const V41Part& part : info->v41_parts) {
    // 8 layers, 8 experts of which 2 are read; 3 matrices of 128 x 64 numbers, 17 bytes for 32 of them.
    if (part.name == "routed experts") {
      EXPECT_EQ(part.num_bytes, 8 * 8 * 3 * 128 * 64 / 32 * 17);
      EXPECT_EQ(part.decode_bytes, 8 * 2 * 3 * 128 * 64 / 32 * 17);
      EXPECT_EQ(part.decode_parameters, 8 * 2 * 3 * 128 * 64);
      EXPECT_EQ(part.encoder_parameters, 4 * 2 * 3 * 128 * 64);
    }
    const bool unread = part.name == "draft stages" || part.name == "vision";
    EXPECT_EQ(part.decode_bytes == 0, unread) << part.name;
    if (part.name == "embedding") {
      EXPECT_EQ(part.decode_bytes, 128 * 2);
    }
    if (part.name == "Engram tables") {
      EXPECT_NEAR(part.decode_bytes, 2 * 6 * 33, 1e-9);
    }
    if (part.name == "head") {
      EXPECT_EQ(part.encoder_parameters, 0);
    }
  }
}

// model.md 3.2: a block is 113,920 bytes, and what attention and indexers read of it grows until the selection is full.
TEST(V41Info, StateOfTheReleasedModel) {
  const V41Config c = v41_synth_shape("v4.1", {}).value();
  EXPECT_EQ(v41_state_bytes(c, 1).blocks, 113'920);
  EXPECT_EQ(v41_state_bytes(c, 129).blocks, 2 * 113'920);
  EXPECT_EQ(v41_state_bytes(c, 1).rings, v41_state_bytes(c, 1 << 20).rings);
  // One token: a window row in 40 layers, a compressed row in the 20 of the decoder, an index key in 5 sources of ratio 1.
  EXPECT_EQ(v41_state_bytes(c, 1).read, 40 * 528 + 20 * 288 + 5 * 68);
  const int64_t n = 1 << 20;
  EXPECT_EQ(v41_state_bytes(c, n).read, 40 * 128 * 528 + 38 * 512 * 288 + (3 * n / 2 + 5 * n) * 68);
}

// One token reads what `model info` says it reads; many read every expert, and narrowing spares those that stay out of the decoder.
TEST(V41Info, CostOfAStepFollowsItsRows) {
  const auto info = read_checkpoint_info(kTiny);
  ASSERT_TRUE(info);
  const V41Part total = v41_total(info->v41_parts);
  const auto model = tiny_model();
  const StepCost one = model->cost({});
  EXPECT_NEAR(one.weight_bytes, total.decode_bytes, 1e-6);
  EXPECT_FALSE(one.integer_products);
  double looked_up = 0;
  for (const V41Part& part : info->v41_parts)
    if (part.name == "embedding" || part.name == "Engram tables") looked_up += part.decode_parameters;
  EXPECT_NEAR(one.products, total.decode_parameters - looked_up, 1e-6);

  const StepCost many = model->cost({.num_rows = 1000, .num_decoder_rows = 1000, .num_logit_rows = 1});
  const StepCost narrowed = model->cost({.num_rows = 1000, .num_decoder_rows = 0, .num_logit_rows = 0});
  int64_t routed = 0;
  for (const V41Part& part : info->v41_parts)
    if (part.name == "routed experts") routed = part.num_bytes;
  EXPECT_NEAR(many.weight_bytes - one.weight_bytes, 0.75 * static_cast<double>(routed) + 999 * (128 * 2 + 2 * 6 * 33), 1);  // 2 of 8 experts, then all
  EXPECT_NEAR(narrowed.products, 1000 * (total.encoder_parameters - looked_up), 1e-3);
  EXPECT_LT(narrowed.weight_bytes, 0.7 * many.weight_bytes);
  EXPECT_EQ(one.state_bytes, 0);
  EXPECT_EQ(model->cost({.num_rows = 2, .context = 10}).state_bytes, 2 * static_cast<double>(v41_state_bytes(*info->v41, 10).read));
}

TEST(V41Info, TextAndJsonSayTheSame) {
  const auto info = read_checkpoint_info(kTiny);
  ASSERT_TRUE(info);
  const InfoView view{.contexts = {64, 1 << 30}, .read_bytes_per_s = 1e9};
  const std::string text = checkpoint_info_text(*info, view);
  for (const char* said : {"deepseek_v41", "8 layers (4 encoder, 4 decoder)", "routed experts", "Engram tables", "2 DSpark stages", "at 64 tokens", "tokens/s"})
    EXPECT_NE(text.find(said), std::string::npos) << said << "\n" << text;
  simdjson::dom::parser parser;
  simdjson::dom::element json;
  const std::string json_text = checkpoint_info_json(*info, view);
  ASSERT_EQ(parser.parse(json_text).get(json), simdjson::SUCCESS) << json_text;
  EXPECT_EQ(int64_t{json["encoder_layers"]}, 4);
  const double bytes = json["bytes_per_token"].get_int64().value() + json["state"].at(0)["bytes_read"].get_int64().value();
  EXPECT_NEAR(double{json["state"].at(0)["tokens_per_s"]}, 1e9 / bytes, 1);
  EXPECT_EQ(simdjson::dom::array{json["state"]}.size(), 1u);  // the longer one does not fit the model
}

TEST(V41Info, SaysWhatStandsInTheWay) {
  CheckpointInfo info;
  info.v41 = v41_synth_shape("v4.1-tiny", {}).value();
  info.obstacles = {"tensor x is missing"};
  const std::string text = checkpoint_info_text(info, {.read_bytes_per_s = 1e9});
  EXPECT_NE(text.find("tensor x is missing"), std::string::npos);
  EXPECT_EQ(text.find("tokens/s"), std::string::npos);  // nothing was counted
}

}  // namespace
}  // namespace deepinfer::model
