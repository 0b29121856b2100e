#include "model/model_info.h"

#include <gtest/gtest.h>
#include <simdjson.h>
#include <cstdlib>
#include <filesystem>

#include "broken_models.h"

namespace deepinfer::model {
namespace {

TEST(CheckpointInfo, CountsTheControl) {
  const auto info = read_checkpoint_info(kBroken + "good.gguf");
  ASSERT_TRUE(info) << info.error().message;
  EXPECT_EQ(info->format, "GGUF version 3");
  EXPECT_EQ(info->name, "broken-base");
  EXPECT_EQ(info->architecture, "llama");
  EXPECT_EQ(info->num_tensors, 11);
  // Embedding 260 x 32, q and o 32 x 32, k and v 16 x 32, three feed-forward matrices 32 x 32, three norms of 32.
  EXPECT_EQ(info->num_parameters, 8320 + 2 * 1024 + 2 * 512 + 3 * 1024 + 3 * 32);
  ASSERT_EQ(info->types.size(), 2u);
  EXPECT_EQ(info->types[0].type, "Q8_0");
  EXPECT_EQ(info->types[0].num_bytes, (8320 + 2 * 1024 + 2 * 512 + 3 * 1024) / 32 * 34);
  EXPECT_EQ(info->types[1].num_bytes, 3 * 32 * 4);
  EXPECT_EQ(info->weight_bytes, info->types[0].num_bytes + info->types[1].num_bytes);
  EXPECT_TRUE(info->obstacles.empty());
}

TEST(CheckpointInfo, KvComesInWholeBlocks) {
  DenseConfig c;
  c.num_hidden_layers = 24;
  c.num_key_value_heads = 2;
  c.head_dim = 64;
  const int64_t block = 24 * 2 * 64 * 2 * 32 * 2;  // layers, heads, numbers, K and V, tokens, bytes
  EXPECT_EQ(kv_cache_bytes(c, KvFormat::kBf16, 0), 0);
  EXPECT_EQ(kv_cache_bytes(c, KvFormat::kBf16, 1), block);
  EXPECT_EQ(kv_cache_bytes(c, KvFormat::kBf16, 32), block);
  EXPECT_EQ(kv_cache_bytes(c, KvFormat::kBf16, 33), 2 * block);
  EXPECT_LT(kv_cache_bytes(c, KvFormat::kQ8, 32), block * 6 / 10);
}

TEST(CheckpointInfo, TextAndJsonSayTheSame) {
  const auto info = read_checkpoint_info(kBroken + "good.gguf");
  ASSERT_TRUE(info);
  const std::string text = checkpoint_info_text(*info, {.contexts = {64, 1'000'000}});
  EXPECT_NE(text.find("1 layers, hidden 32, 2 heads (1 KV) of 16"), std::string::npos) << text;
  EXPECT_NE(text.find("128 tokens"), std::string::npos) << text;
  EXPECT_NE(text.find("at 64 tokens"), std::string::npos) << text;
  EXPECT_EQ(text.find("1000000"), std::string::npos) << text;
  EXPECT_NE(text.find("nothing: this model can be served"), std::string::npos) << text;

  simdjson::dom::parser parser;
  simdjson::dom::element json;
  const std::string json_text = checkpoint_info_json(*info, {.contexts = {64}});
  ASSERT_EQ(parser.parse(json_text).get(json), simdjson::SUCCESS) << json_text;
  EXPECT_EQ(int64_t{json["parameters"]}, info->num_parameters);
  EXPECT_EQ(int64_t{json["head_dim"]}, 16);
  EXPECT_EQ(int64_t{json["memory"].at(0)["kv_bytes"]}, kv_cache_bytes(*info->config, KvFormat::kBf16, 64));
  EXPECT_EQ(std::string_view{json["types"].at(0)["type"]}, "Q8_0");
  EXPECT_EQ(simdjson::dom::array{json["unsupported"]}.size(), 0u);
}

TEST(CheckpointInfo, ForeignTextIsEscaped) {
  CheckpointInfo info;
  info.name = "a\"b\\c\n\x1b[31m\xff\xc3\xa9\xe2\x82";
  simdjson::dom::parser parser;
  simdjson::dom::element json;
  const std::string text = checkpoint_info_json(info, {});
  ASSERT_EQ(parser.parse(text).get(json), simdjson::SUCCESS) << text;
  EXPECT_EQ(std::string_view{json["name"]}, "a\"b\\c\n\x1b[31m\xef\xbf\xbd\xc3\xa9\xef\xbf\xbd\xef\xbf\xbd");
  EXPECT_EQ(checkpoint_info_text(info, {}).find('\x1b'), std::string::npos);
}

TEST(CheckpointInfo, SaysWhatStandsInTheWay) {
  const auto unknown = read_checkpoint_info(kBroken + "gguf-architecture-unknown.gguf");
  ASSERT_TRUE(unknown) << unknown.error().message;
  EXPECT_EQ(unknown->architecture, "no-such-arch");
  EXPECT_EQ(unknown->num_tensors, 11);
  ASSERT_EQ(unknown->obstacles.size(), 1u);
  EXPECT_NE(unknown->obstacles[0].find("no-such-arch"), std::string::npos);

  const auto incomplete = read_checkpoint_info(kBroken + "index-missing-tensor");
  ASSERT_TRUE(incomplete) << incomplete.error().message;
  ASSERT_EQ(incomplete->obstacles.size(), 1u);
  EXPECT_NE(incomplete->obstacles[0].find("model.layers.0.mlp.down_proj.weight is missing"), std::string::npos);

  EXPECT_FALSE(read_checkpoint_info(kBroken + "gguf-bad-magic.gguf"));
  EXPECT_FALSE(read_checkpoint_info(kBroken + "absent.gguf"));
}

// A real model, where one is there: DEEPINFER_TEST_MODELS or the cache of fetched models.
TEST(CheckpointInfo, CountsARealModel) {
  const char* folder = std::getenv("DEEPINFER_TEST_MODELS");
  const char* home = std::getenv("HOME");
  const std::string path =
      (folder != nullptr ? std::string(folder) : std::string(home != nullptr ? home : "") + "/.cache/deepinfer/models") +
      "/smollm2-135m-instruct-q4_1.gguf";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " is not there";
  const auto info = read_checkpoint_info(path);
  ASSERT_TRUE(info) << info.error().message;
  EXPECT_EQ(info->num_parameters, 134'515'008);
  EXPECT_EQ(info->config->max_context, 8192);
  EXPECT_TRUE(info->obstacles.empty()) << info->obstacles[0];
}

}  // namespace
}  // namespace deepinfer::model
