#include "model/v41_weights.h"

#include <cstring>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <unistd.h>

#include "model/safetensors.h"
#include "read_file.h"
#include "v41_tiny.h"

namespace deepinfer::model {
namespace {

V41Config tiny_config() { return v41_config_from_json(read_file(kTiny + "/config.json"), "config.json").value(); }

TEST(V41Weights, TheTinyCheckpointBindsWhole) {
  const auto checkpoint = Safetensors::open(kTiny);
  ASSERT_TRUE(checkpoint) << checkpoint.error().message;
  const auto weights = bind_v41(**checkpoint, tiny_config());
  ASSERT_TRUE(weights) << weights.error().message;
  EXPECT_EQ(weights->layers.size(), 8u);
  EXPECT_EQ(weights->draft_stages.size(), 2u);
  EXPECT_EQ(weights->layers[1].compressor_wgate.rows, 64);
  EXPECT_EQ(weights->layers[4].compressor_wgate.values, nullptr);
  EXPECT_EQ(weights->engrams[1].num_rows, 834);
}

// A config that asks for something else than the files hold: each kind of mismatch names the tensor.
TEST(V41Weights, MismatchesNameTheTensor) {
  const auto checkpoint = Safetensors::open(kTiny);
  ASSERT_TRUE(checkpoint);
  const struct {
    void (*change)(V41Config&);
    std::string_view said;
  } cases[] = {
      {[](V41Config& c) { c.n_routed_experts = 9; }, "layers.0.ffn.gate.weight is [8, 128], the configuration asks for [9, 128]"},
      {[](V41Config& c) { c.num_hidden_layers = 9; c.compress_ratios.push_back(1); }, "layers.8.attn_norm.weight is missing"},
      {[](V41Config& c) { c.vision.reset(); }, "is left over"},
      {[](V41Config& c) { c.engram_num_embeddings[0] = 631; }, "layers.1.engram.embed.weight is [630, 32]"},
      {[](V41Config& c) { c.num_draft_stages = 1; }, "mtp.0.norm.weight is missing"},
      {[](V41Config& c) { c.index_source_layer_ids = {1, 3, 4}; }, "layers.6.attn.indexer.weights_proj.weight is left over"},
  };
  for (const auto& c : cases) {
    V41Config config = tiny_config();
    c.change(config);
    const auto weights = bind_v41(**checkpoint, config);
    ASSERT_FALSE(weights) << c.said;
    EXPECT_NE(weights.error().message.find(c.said), std::string::npos) << weights.error().message;
    EXPECT_EQ(weights.error().code, Code::kCorruption);
  }
}

// A header that is one byte too long moves all data: what is read in words must not lie between them.
TEST(V41Weights, MisalignedDataIsRefused) {
  const std::filesystem::path folder = std::filesystem::temp_directory_path() / ("v41_weights_test_" + std::to_string(getpid()));
  std::filesystem::create_directories(folder);
  for (const auto& entry : std::filesystem::directory_iterator(kTiny)) {
    const std::string name = entry.path().filename();
    if (!name.starts_with("model")) continue;
    std::string bytes = read_file(entry.path());
    if (name == "model-00002-of-00002.safetensors") {
      uint64_t header = 0;
      std::memcpy(&header, bytes.data(), 8);
      bytes.insert(8 + header, 1, ' ');
      header += 1;
      std::memcpy(bytes.data(), &header, 8);
    }
    std::ofstream(folder / name, std::ios::binary) << bytes;
  }
  const auto checkpoint = Safetensors::open(folder);
  ASSERT_TRUE(checkpoint) << checkpoint.error().message;
  const auto weights = bind_v41(**checkpoint, tiny_config());
  ASSERT_FALSE(weights);
  EXPECT_NE(weights.error().message.find("begins at an address that is no multiple of"), std::string::npos) << weights.error().message;
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace deepinfer::model
