#include "model/v41_config.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "read_file.h"
#include "replaced.h"

namespace deepinfer::model {
namespace {

std::string tiny() { return read_file(DI_SOURCE_DIR "/tests/golden/v41-tiny/config.json"); }

// The released model's values in the names of the official inference code; like its file it has neither a length nor norm_topk_prob.
constexpr std::string_view kOfficial = R"({
 "vocab_size": 129280, "dim": 5120, "n_layers": 40, "n_heads": 64, "head_dim": 512, "rope_head_dim": 64, "q_lora_rank": 1280,
 "o_groups": 8, "o_lora_rank": 1024, "norm_eps": 1e-20, "window_size": 128,
 "compress_ratios": [0,0,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,0,0,0],
 "kv_source_layers": [2,8,14,20], "index_source_layers": [2,8,14,20,24,28,32,36], "candidate_source_layer": 20,
 "candidate_topk_blocks": 2048, "candidate_block_size": 8, "index_n_heads": 32, "index_head_dim": 128, "index_topk": 512,
 "rope_theta": 10000, "compress_rope_theta": 160000, "rope_factor": 16, "original_seq_len": 65536, "beta_fast": 32, "beta_slow": 1,
 "n_routed_experts": 384, "n_shared_experts": 1, "n_activated_experts": 6, "moe_inter_dim": 2304,
 "score_func": "sqrtsoftplus", "route_scale": 1.5, "swiglu_limit": 10.0, "hc_mult": 4, "hc_sinkhorn_iters": 20,
 "hc_eps": 1e-6, "engram_layer_ids": [1,14], "engram_num_embeddings": [384006168,384016682], "engram_vocab_size": 16000000,
 "engram_max_ngram_size": 4, "engram_n_heads": 8, "engram_head_dim": 256, "engram_pad_id": 2, "engram_compressed_vocab_size": 99092,
 "n_mtp_layers": 3, "dspark_block_size": 5, "dspark_noise_token_id": 128799, "dspark_target_layer_ids": [37,38,39],
 "dspark_markov_rank": 256, "dspark_n_routed_experts": 128, "dspark_n_activated_experts": 3, "image_token_id": 129264,
 "vision_n_layers": 32, "vision_dim": 1024, "vision_n_heads": 16, "vision_inter_dim": 2816, "vision_patch_size": 14,
 "vision_rope_theta": 10000, "vision_downsample_ratio": 3, "vision_max_n_token": 1024, "vision_min_pixels": 295936})";

TEST(V41Config, ReadsTheNestedSpelling) {
  const auto config = v41_config_from_json(tiny(), "config.json");
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->hidden_size, 128);
  EXPECT_EQ(config->num_draft_stages, 2);
  EXPECT_EQ(config->engram_token_map, "engram_token_map.json");
  EXPECT_EQ(config->rms_norm_eps, 1e-20f);
  EXPECT_EQ(config->rope_original_context, 32);
  EXPECT_EQ(config->image_token_id, 319);
  EXPECT_EQ(config->vision->patch_size, 4);
}

// model.md 1.3, row by row.
TEST(V41Config, RolesOfTheReleasedModel) {
  const auto config = v41_config_from_json(kOfficial, "config.json");
  ASSERT_TRUE(config) << config.error().message;
  const V41Config& c = *config;
  for (int32_t layer = 0; layer < 40; ++layer) {
    const int32_t kv = layer < 2 ? -1 : layer < 8 ? 2 : layer < 14 ? 8 : layer < 20 ? 14 : 20;
    const int32_t index = layer < 24 ? kv : layer / 4 * 4;
    EXPECT_EQ(c.kv_source(layer), kv) << layer;
    EXPECT_EQ(c.index_source(layer), index) << layer;
    EXPECT_EQ(c.is_reindex(layer), layer == 24 || layer == 28 || layer == 32 || layer == 36) << layer;
    EXPECT_EQ(c.engram_index(layer), layer == 1 ? 0 : layer == 14 ? 1 : -1) << layer;
  }
  EXPECT_EQ(c.max_position_embeddings, 1 << 20);
  EXPECT_TRUE(c.norm_topk_prob);
  EXPECT_EQ(c.narrowing_layer(), 20);
  EXPECT_EQ(c.rows_after(2, 129), 64);
  EXPECT_EQ(c.rows_after(20, 129), 129);
  EXPECT_EQ(c.rows_after(0, 129), 0);
}

// Whoever converts a model may leave one spelling beside the other.
TEST(V41Config, TwoSpellingsOfOneKeyMustAgree) {
  const auto agree = v41_config_from_json(replaced(tiny(), "\"hidden_size\": 128,", "\"hidden_size\": 128, \"dim\": 128, \"n_layers\": 8, \"swiglu_limit\": 10,"), "c");
  ASSERT_TRUE(agree) << agree.error().message;
  for (const std::string_view other : {"\"dim\": 256", "\"norm_eps\": 1e-6", "\"kv_source_layers\": [1, 4]", "\"score_func\": \"softmax\""}) {
    const auto config = v41_config_from_json(replaced(tiny(), "\"hidden_size\": 128,", fmt::format("\"hidden_size\": 128, {},", other)), "c");
    ASSERT_FALSE(config) << other;
    EXPECT_NE(config.error().message.find("contradict each other"), std::string::npos) << config.error().message;
  }
}

TEST(V41Config, TokenIdsStandBesideTheTextConfigOrInside) {
  const std::string inside = replaced(replaced(tiny(), " \"bos_token_id\": 0,\n \"eos_token_id\": 1,\n \"torch", " \"torch"), "\"eos_token_id\": 1", "\"eos_token_id\": 5");
  const auto config = v41_config_from_json(inside, "c");
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->eos_id, 5);
  const auto both = v41_config_from_json(replaced(tiny(), "\"eos_token_id\": 1,\n \"torch", "\"eos_token_id\": 5,\n \"torch"), "c");
  ASSERT_FALSE(both);
  EXPECT_EQ(both.error().message, "c: eos_token_id is 5, and 1 in text_config");
}

TEST(V41Config, RefusesWhatDoesNotFit) {
  const struct {
    std::string_view from, to, said;
  } cases[] = {
      {"\"hidden_size\": 128,", "", "hidden_size is missing"},
      {"\"hidden_size\": 128,", "\"hidden_size\": \"big\",", "hidden_size is not a whole number"},
      {"\"hidden_size\": 128,", "\"hidden_size\": 100,", "multiple of the quantisation block"},
      {"\"hidden_size\": 128,", "\"hidden_size\": -128,", "outside"},
      {"\"scoring_func\": \"sqrtsoftplus\"", "\"scoring_func\": \"softmax\"", "scoring_func is 'softmax'"},
      {"\"hc_mult\": 4", "\"hc_mult\": 2", "hc_mult is 2"},
      {"\"rope_type\": \"yarn\"", "\"rope_type\": \"longrope\"", "rope_type is 'longrope'"},
      {"\"kv_source_layer_ids\": [\n   1,", "\"kv_source_layer_ids\": [\n   2,", "not an index source"},
      {"\"index_source_layer_ids\": [\n   1,\n   3,", "\"index_source_layer_ids\": [\n   3,\n   1,", "do not ascend"},
      {"\"candidate_source_layer_id\": 4", "\"candidate_source_layer_id\": 6", "not a KV source"},
      {"\"candidate_source_layer_id\": 4", "\"candidate_source_layer_id\": 3", "another KV source"},
      {"\"compress_ratios\": [\n   0,\n   2,", "\"compress_ratios\": [\n   2,\n   2,", "no KV source at or before it"},
      {"\"compress_ratios\": [\n   0,\n   2,\n   2,", "\"compress_ratios\": [\n   0,\n   2,\n   1,", "differ in compress ratio"},
      {"\"compress_ratios\": [\n   0,\n   2,", "\"compress_ratios\": [\n   0,\n   3,", "outside 0..2"},
      {"\"num_nextn_predict_layers\": 2", "\"num_nextn_predict_layers\": 3", "entries for 11 layers"},
      {"\"engram_layer_ids\": [\n   1,\n   3", "\"engram_layer_ids\": [\n   1,\n   5", "after the last KV source"},
      {"\"engram_token_map\": \"engram", "\"engram_token_map\": \"../engram", "not the name of a .json file"},
      {"\"engram_token_map.json", "\"engram_token_map.bin", "not the name of a .json file"},
      {"\"image_token_id\": 319", "\"image_token_id\": 320", "not in the vocabulary"},
      {"\"num_experts_per_tok\": 2", "\"num_experts_per_tok\": 9", "above n_routed_experts"},
  };
  for (const auto& c : cases) {
    const auto config = v41_config_from_json(replaced(tiny(), c.from, c.to), "m/config.json");
    ASSERT_FALSE(config) << c.to;
    EXPECT_NE(config.error().message.find(c.said), std::string::npos) << config.error().message;
    EXPECT_EQ(config.error().message.find("m/config.json: "), 0u) << config.error().message;
  }
  EXPECT_FALSE(v41_config_from_json("[1]", "c"));
  EXPECT_FALSE(v41_config_from_json(tiny().substr(0, 500), "c"));
}

}  // namespace
}  // namespace deepinfer::model
