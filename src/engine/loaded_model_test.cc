#include "engine/loaded_model.h"

#include <filesystem>
#include <fstream>
#include <functional>
#include <gtest/gtest.h>
#include <unistd.h>

#include "read_file.h"

namespace deepinfer::engine {
namespace {

namespace fs = std::filesystem;

const std::string kTiny = DI_SOURCE_DIR "/tests/golden/v41-tiny";

// A copy of the tiny V4.1 checkpoint that a test may spoil.
class V41Folder : public testing::Test {
 protected:
  V41Folder() {
    fs::create_directories(folder_);
    for (const char* name : {"config.json", "tokenizer.json", "engram_token_map.json", "model.safetensors.index.json"}) fs::copy(fs::path(kTiny) / name, folder_ / name);
    for (const char* name : {"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"}) fs::create_symlink(fs::path(kTiny) / name, folder_ / name);
  }
  ~V41Folder() override { fs::remove_all(folder_); }

  void replace_in(const std::string& name, const std::string& what, const std::string& by) {
    std::string text = read_file((folder_ / name).string());
    const size_t at = text.find(what);
    ASSERT_NE(at, std::string::npos) << what;
    std::ofstream(folder_ / name, std::ios::binary) << text.replace(at, what.size(), by);
  }
  void expect_refused(const std::string& word) {
    const auto open = open_model(folder_.string());
    ASSERT_FALSE(open) << word;
    EXPECT_NE(open.error().message.find(folder_.string()), std::string::npos) << open.error().message;
    EXPECT_NE(open.error().message.find(word), std::string::npos) << open.error().message;
    EXPECT_EQ(open.error().message.find('\n'), std::string::npos);
  }

  const fs::path folder_ = fs::temp_directory_path() / ("loaded_model_test_" + std::to_string(getpid()));
};

TEST_F(V41Folder, OpensAndLoads) {
  auto open = open_model(folder_.string());
  ASSERT_TRUE(open) << open.error().message;
  EXPECT_EQ(open->card.architecture, "deepseek_v41");
  EXPECT_EQ(open->card.vocab_size, 320);
  EXPECT_EQ(open->card.name, folder_.filename());
  EXPECT_FALSE(open->card.stop_token_ids.empty());
  const auto workers = Workers::create(1, false);
  const auto loaded = load_weights(std::move(*open), {.max_context = 64}, *workers);
  ASSERT_TRUE(loaded) << loaded.error().message;
  EXPECT_EQ(loaded->card.max_context, 64);
  EXPECT_GT(loaded->model->kv_layout().state_bytes, 0);
}

TEST_F(V41Folder, WhoOnlyComputesNeedsATokenizerIfTheWeightsDo) {
  const auto workers = Workers::create(1, false);
  fs::remove(folder_ / "tokenizer.json");
  expect_refused("tokenizer.json");
  const auto alone = load_weights(open_model(folder_.string(), TextNeed::kForWeights).value(), {}, *workers);
  ASSERT_TRUE(alone) << alone.error().message;
  EXPECT_EQ(alone->text.tokenizer, nullptr);
  EXPECT_EQ(alone->card.stop_token_ids.size(), 1u);  // the configuration's
  replace_in("config.json", "\"engram_token_map\"", "\"no_map\"");
  const auto open = open_model(folder_.string(), TextNeed::kForWeights);
  ASSERT_FALSE(open);
  EXPECT_NE(open.error().message.find("tokenizer.json"), std::string::npos) << open.error().message;
}

TEST_F(V41Folder, EachWrongThingIsOneSentence) {
  fs::remove(folder_ / "engram_token_map.json");
  expect_refused("engram_token_map.json");
  std::ofstream(folder_ / "engram_token_map.json") << "[0, 1, \"two\"]";
  expect_refused("entry 2 is not an id");
  std::ofstream(folder_ / "engram_token_map.json") << "[0, 1]";
  expect_refused("2 entries for a vocabulary of 320");
  fs::copy_file(kTiny + "/engram_token_map.json", folder_ / "engram_token_map.json", fs::copy_options::overwrite_existing);
  replace_in("config.json", "\"n_routed_experts\": 8", "\"n_routed_experts\": 9");
  expect_refused("layers.0.ffn.gate.weight is [8, 128]");
  fs::remove(folder_ / "tokenizer.json");
  expect_refused("tokenizer.json");
  std::ofstream(folder_ / "config.json") << "{\"model_type\": \"deepseek_v41\"}";
  expect_refused("vocab_size");
  fs::remove(folder_ / "config.json");
  expect_refused("config.json");
}

TEST_F(V41Folder, OptionsOfOtherArchitecturesAreRefused) {
  const auto workers = Workers::create(1, false);
  for (const WeightOptions& options : {WeightOptions{.activations = Activations::kF32}, WeightOptions{.kv_format = KvFormat::kQ8}}) {
    const auto loaded = load_weights(open_model(folder_.string()).value(), options, *workers);
    ASSERT_FALSE(loaded);
    EXPECT_EQ(loaded.error().code, Code::kUnsupported);
  }
}

TEST_F(V41Folder, MemoryBoundsReachTheModel) {
  const auto workers = Workers::create(1, false);
  const auto tiny = load_weights(open_model(folder_.string()).value(), {.memory = {.expert_bytes = 1}}, *workers);
  ASSERT_FALSE(tiny);
  EXPECT_NE(tiny.error().message.find("two of them need"), std::string::npos) << tiny.error().message;
  EXPECT_TRUE(load_weights(open_model(folder_.string()).value(), {.memory = {.engram_bytes = 1 << 20, .expert_bytes = 1 << 20}}, *workers));
  const std::string dense = DI_SOURCE_DIR "/tests/golden/dense/tiny-qwen3/tiny-qwen3-Q8_0.gguf";
  for (const model::V41MemoryOptions& memory : {model::V41MemoryOptions{.engram_bytes = 1 << 20}, {.expert_bytes = 1 << 20}, {.load = true}}) {
    const auto refused = load_weights(open_model(dense).value(), {.memory = memory}, *workers);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, Code::kUnsupported);
  }
}

}  // namespace
}  // namespace deepinfer::engine
