#include "model/v41_synth.h"

#include <cmath>
#include <filesystem>
#include <gtest/gtest.h>

#include "model/check_values.h"
#include "model/v41_weights.h"
#include "temp_folder.h"
#include "v41_folder.h"

namespace deepinfer::model {
namespace {

class V41Synth : public testing::Test {
 protected:
  std::string write(const std::string& name, const V41SynthSizes& sizes, const V41SynthOptions& options = {}) {
    return write_config(name, v41_synth_shape("v4.1-tiny", sizes).value(), options);
  }
  std::string write_config(const std::string& name, const V41Config& config, const V41SynthOptions& options) {
    const std::string folder = temp_folder() + "v41_synth_" + name;
    std::filesystem::remove_all(folder);
    folders_.push_back(folder);
    const auto written = write_v41_synth(folder, config, options);
    EXPECT_TRUE(written) << written.error().message;
    return folder;
  }
  ~V41Synth() override {
    for (const std::string& folder : folders_) std::filesystem::remove_all(folder);
  }

 private:
  std::vector<std::string> folders_;
};

std::vector<TokenId> some_tokens(int32_t n) {
  std::vector<TokenId> tokens;
  for (int32_t i = 0; i < n; ++i) tokens.push_back((i * 37 + 11) % 315);
  return tokens;
}

TEST_F(V41Synth, LoadsAndComputesTheSameEveryTime) {
  const V41SynthSizes sizes{.layers = 4, .experts = 6, .experts_per_token = 3};
  const std::string a = write("a", sizes, {.seed = 3}), b = write("b", sizes, {.seed = 3, .shard_bytes = 100'000}), other = write("other", sizes, {.seed = 4});
  const auto tokens = some_tokens(40);
  std::vector<std::vector<float>> logits;
  for (const std::string& folder : {a, b, other}) {
    const auto model = open_v41(folder);
    EXPECT_EQ(model->config().n_routed_experts, 6);
    Runner runner(*model);
    logits.push_back(runner.run(tokens, 0, 40));
    for (const float x : logits.back()) ASSERT_TRUE(std::isfinite(x));
  }
  EXPECT_EQ(logits[0], logits[1]);  // however it is cut into shards
  EXPECT_NE(logits[0], logits[2]);
  // Positions differ, and no logit runs away: weights of a bearable size.
  double squares = 0;
  for (const float x : logits[0]) squares += double{x} * x;
  EXPECT_GT(squares / static_cast<double>(logits[0].size()), 0.1);
  EXPECT_LT(squares / static_cast<double>(logits[0].size()), 1000);
  EXPECT_GT(std::distance(std::filesystem::directory_iterator(b), {}), 6);  // several shards
}

// The golden model's lists have 12 rows at most, the attention walks blocks of 64: here a list fills more than two, and a window that is
// not full yet must leave its places free, or the first tokens of a prompt would depend on how it is cut.
TEST_F(V41Synth, ChunksChangeNothingWhereListsFillSeveralBlocks) {
  V41Config config = v41_synth_shape("v4.1-tiny", {.layers = 4}).value();
  config.sliding_window = 96;
  config.index_topk = config.candidate_topk_blocks = 40;
  const auto model = open_v41(write_config("long_lists", config, {.seed = 5}));
  const auto tokens = some_tokens(200);
  Runner whole(*model);
  const auto expected = whole.run(tokens, 0, 200);
  for (const int chunk : {1, 3, 64, 127}) {
    Runner runner(*model, chunk == 3 ? 2 : 1);
    std::vector<float> logits;
    for (int start = 0; start < 200; start += chunk) {
      const auto part = runner.run(tokens, start, std::min(chunk, 200 - start));
      logits.insert(logits.end(), part.begin(), part.end());
    }
    EXPECT_EQ(logits, expected) << chunk;
  }
}

TEST_F(V41Synth, FilesDependOnTheSeedAlone) {
  const std::string a = write("a", {}, {.seed = 9}), b = write("b", {}, {.seed = 9});
  for (const auto& entry : std::filesystem::directory_iterator(a))
    EXPECT_EQ(read_file(entry.path()), read_file(b + "/" + entry.path().filename().string())) << entry.path();
  const auto finite = check_values(*Safetensors::open(a).value());
  EXPECT_TRUE(finite) << finite.error().message;
}

TEST(V41SynthShape, TheReleasedModelComesOut) {
  const V41Config c = v41_synth_shape("v4.1", {}).value();
  EXPECT_EQ(c.kv_source_layer_ids, (std::vector<int32_t>{2, 8, 14, 20}));
  EXPECT_EQ(c.index_source_layer_ids, (std::vector<int32_t>{2, 8, 14, 20, 24, 28, 32, 36}));
  EXPECT_EQ(c.engram_layer_ids, (std::vector<int32_t>{1, 14}));
  EXPECT_EQ(c.engram_num_embeddings, (std::vector<int64_t>{384006168, 384016682}));
  EXPECT_EQ(c.dspark_target_layer_ids, (std::vector<int32_t>{37, 38, 39}));
  EXPECT_EQ(c.compress_ratios.size(), 43u);
  const std::vector<V41Tensor> tensors = v41_tensors(c);
  EXPECT_EQ(tensors.size(), 96'085u);
  int64_t bytes = 0;
  for (const V41Tensor& t : tensors) bytes += t.num_bytes();
  EXPECT_EQ(bytes, 510'286'023'000);
}

TEST(V41SynthShape, ASliceHasEveryRole) {
  const V41Config c = v41_synth_shape("v4.1", {.layers = 4, .experts = 16}).value();
  EXPECT_EQ(c.compress_ratios, (std::vector<int32_t>{0, 2, 1, 1}));
  EXPECT_EQ(c.kv_source_layer_ids, (std::vector<int32_t>{1, 2}));
  EXPECT_EQ(c.engram_layer_ids, (std::vector<int32_t>{1}));
  EXPECT_EQ(c.num_experts_per_tok, 6);
  EXPECT_FALSE(c.vision);
  for (int32_t layers = 3; layers <= 64; ++layers) EXPECT_TRUE(v41_synth_shape("v4.1", {.layers = layers})) << layers;
}

TEST(V41SynthShape, SaysWhatCannotBe) {
  EXPECT_EQ(v41_synth_shape("deepseek-v5", {}).error().code, Code::kNotFound);
  for (const V41SynthSizes& sizes : {V41SynthSizes{.layers = 2}, {.experts = 3, .experts_per_token = 4}}) {
    const auto shape = v41_synth_shape("v4.1-tiny", sizes);
    ASSERT_FALSE(shape);
    EXPECT_EQ(shape.error().code, Code::kInvalidArgument);
  }
  EXPECT_EQ(write_v41_synth(temp_folder(), v41_synth_shape("v4.1-tiny", {}).value(), {}).error().code, Code::kInvalidArgument);  // is there
  const auto nowhere = write_v41_synth("/proc/x", v41_synth_shape("v4.1-tiny", {}).value(), {});
  ASSERT_FALSE(nowhere);
  EXPECT_EQ(nowhere.error().code, Code::kIo);
  const auto huge = write_v41_synth(temp_folder() + "v41_synth_huge", v41_synth_shape("v4.1", {.experts = 4096, .engram_vocab = int64_t{1} << 35}).value(), {});
  ASSERT_FALSE(huge);
  EXPECT_EQ(huge.error().code, Code::kResourceExhausted);
}

TEST(V41SynthFolder, WritesBesideTheFolderAndTakesUpNothing) {
  namespace fs = std::filesystem;
  const std::string folder = temp_folder() + "v41_synth_beside";
  fs::remove_all(folder);
  const V41Config c = v41_synth_shape("v4.1-tiny", {.layers = 3, .experts = 2}).value();
  const auto files = [](const std::string& in) { return std::distance(fs::directory_iterator(in), fs::directory_iterator()); };
  ASSERT_TRUE(write_v41_synth(folder + "//", c, {}));
  EXPECT_EQ(files(folder), 5);  // config, tokenizer, token map, index, shard
  EXPECT_FALSE(fs::exists(folder + ".part"));
  fs::rename(folder, folder + ".part");
  const auto again = write_v41_synth(folder, c, {});
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().message, folder + ".part is there already: a run that was interrupted left it");
  EXPECT_EQ(files(folder + ".part"), 5);
  fs::remove_all(folder + ".part");
}

// What synth writes as config.json says every value of the configuration.
TEST(V41SynthShape, ConfigsReadBack) {
  for (const std::string_view name : v41_synth_names()) {
    const V41Config c = v41_synth_shape(name, {}).value();
    EXPECT_EQ(v41_config_json(v41_config_from_json(v41_config_json(c), "c").value()), v41_config_json(c));
    EXPECT_TRUE(is_v41_config(v41_config_json(c)));
  }
}

}  // namespace
}  // namespace deepinfer::model
