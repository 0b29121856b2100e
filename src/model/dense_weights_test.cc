#include "model/dense_weights.h"

#include <gtest/gtest.h>
#include <cstring>
#include <filesystem>
#include <map>

#include "broken_models.h"
#include "model/gguf.h"

namespace deepinfer::model {
namespace {

// A checkpoint of made-up tensors: names and shapes, F32 zeros.
class FakeCheckpoint final : public Checkpoint {
 public:
  explicit FakeCheckpoint(const std::map<std::string, std::vector<int64_t>>& tensors) : names_(tensors) {
    for (const auto& [name, shape] : names_) {
      TensorView view{.name = name, .dtype = DType::kF32, .shape = shape};
      storage_.emplace_back(static_cast<size_t>(view.num_elements()) * 4);
      view.data = storage_.back();
      views_.push_back(view);
    }
  }
  const std::string& path() const override { return path_; }
  std::span<const TensorView> tensors() const override { return views_; }
  const io::MappedFile* mapping_of(const TensorView&) const override { return nullptr; }
  std::span<io::MappedFile> mappings() override { return {}; }
  std::vector<std::vector<std::byte>>& storage() { return storage_; }
  std::vector<TensorView>& views() { return views_; }

 private:
  std::string path_ = "fake";
  std::map<std::string, std::vector<int64_t>> names_;  // sorted, as a checkpoint's tensors are
  std::vector<std::vector<std::byte>> storage_;
  std::vector<TensorView> views_;
};

DenseConfig small_config(TensorNaming naming) {
  DenseConfig c;
  c.naming = naming;
  c.num_hidden_layers = 2;
  c.hidden_size = 8;
  c.num_attention_heads = 2;
  c.num_key_value_heads = 1;
  c.head_dim = 6;
  c.intermediate_size = 10;
  c.vocab_size = 5;
  c.qkv_bias = c.output_bias = c.qk_norm = true;
  return c;
}

std::map<std::string, std::vector<int64_t>> tensors_of(const DenseConfig& c) {
  std::map<std::string, std::vector<int64_t>> out;
  const auto add = [&](std::string_view role, int layer, std::vector<int64_t> shape) {
    out[dense_tensor_name(c.naming, role, layer)] = std::move(shape);
  };
  add("embedding", -1, {5, 8});
  add("output_norm", -1, {8});
  if (!c.tied_head) add("head", -1, {5, 8});
  for (int i = 0; i < c.num_hidden_layers; ++i) {
    add("attention_norm", i, {8}), add("ffn_norm", i, {8});
    add("q", i, {12, 8}), add("k", i, {6, 8}), add("v", i, {6, 8}), add("output", i, {8, 12});
    add("q_bias", i, {12}), add("k_bias", i, {6}), add("v_bias", i, {6}), add("output_bias", i, {8});
    add("q_norm", i, {6}), add("k_norm", i, {6});
    add("gate", i, {10, 8}), add("up", i, {10, 8}), add("down", i, {8, 10});
  }
  return out;
}

class BindDense : public testing::TestWithParam<TensorNaming> {};
INSTANTIATE_TEST_SUITE_P(Namings, BindDense, testing::Values(TensorNaming::kGguf, TensorNaming::kHuggingFace));

TEST_P(BindDense, BindsEveryTensorOnce) {
  const DenseConfig config = small_config(GetParam());
  const auto tensors = tensors_of(config);
  ASSERT_EQ(tensors.size(), 3u + 2 * 15);
  const FakeCheckpoint checkpoint(tensors);
  const auto weights = bind_dense(checkpoint, config);
  ASSERT_TRUE(weights) << weights.error().message;
  EXPECT_EQ(weights->head, checkpoint.find(dense_tensor_name(GetParam(), "head")));
  EXPECT_EQ(weights->rope_divisors, nullptr);
  ASSERT_EQ(weights->layers.size(), 2u);
  EXPECT_EQ(weights->layers[1].k_norm, checkpoint.find(dense_tensor_name(GetParam(), "k_norm", 1)));
  EXPECT_EQ(weights->layers[0].down, checkpoint.find(dense_tensor_name(GetParam(), "down", 0)));
}

TEST_P(BindDense, NamesEachMissingMisshapenOrLeftOverTensor) {
  const DenseConfig config = small_config(GetParam());
  const auto all = tensors_of(config);
  for (const auto& [name, shape] : all) {
    auto tensors = all;
    tensors.erase(name);
    const auto missing = bind_dense(FakeCheckpoint(tensors), config);
    ASSERT_FALSE(missing) << name;
    EXPECT_EQ(missing.error().message, "fake: tensor " + name + " is missing");

    tensors[name] = shape;
    tensors[name].back() += 1;
    const auto misshapen = bind_dense(FakeCheckpoint(tensors), config);
    ASSERT_FALSE(misshapen) << name;
    EXPECT_NE(misshapen.error().message.find("tensor " + name + " is "), std::string::npos) << misshapen.error().message;

    tensors[name] = shape;
    tensors[name + "2"] = shape;
    const auto left_over = bind_dense(FakeCheckpoint(tensors), config);
    ASSERT_FALSE(left_over) << name;
    EXPECT_NE(left_over.error().message.find("tensor " + name + "2 is left over"), std::string::npos)
        << left_over.error().message;
  }
}

TEST_P(BindDense, WhatTheConfigurationDoesNotHaveIsLeftOver) {
  DenseConfig config = small_config(GetParam());
  const FakeCheckpoint checkpoint(tensors_of(config));
  for (bool DenseConfig::* trait : {&DenseConfig::qkv_bias, &DenseConfig::output_bias, &DenseConfig::qk_norm}) {
    DenseConfig without = config;
    without.*trait = false;
    EXPECT_FALSE(bind_dense(checkpoint, without));
  }
}

TEST_P(BindDense, TheHeadOfATiedModelIsItsEmbedding) {
  DenseConfig config = small_config(GetParam());
  config.tied_head = true;
  const FakeCheckpoint checkpoint(tensors_of(config));
  const auto weights = bind_dense(checkpoint, config);
  ASSERT_TRUE(weights) << weights.error().message;
  EXPECT_EQ(weights->head, weights->embedding);
  EXPECT_NE(weights->head, nullptr);
}

TEST(BindDenseSurplus, RotaryTablesAndTheCopyOfATiedHeadAreIgnored) {
  DenseConfig config = small_config(TensorNaming::kHuggingFace);
  config.tied_head = true;
  auto tensors = tensors_of(config);
  tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = {3};
  tensors["lm_head.weight"] = {5, 8};
  const auto weights = bind_dense(FakeCheckpoint(tensors), config);
  EXPECT_TRUE(weights) << weights.error().message;
}

TEST(BindDenseSurplus, VectorsAreNotQuantised) {
  DenseConfig config = small_config(TensorNaming::kGguf);
  config.hidden_size = 32;
  FakeCheckpoint checkpoint({{"token_embd.weight", {5, 32}}, {"output_norm.weight", {32}}});
  checkpoint.views()[0].dtype = DType::kQ8_0;
  const auto weights = bind_dense(checkpoint, config);
  ASSERT_FALSE(weights);
  EXPECT_EQ(weights.error().message, "fake: tensor output_norm.weight is a vector in Q8_0; F32, F16 or BF16 is expected");
}

TEST(BindDenseSurplus, FormatsWithScalesElsewhereAreNotUsed) {
  const DenseConfig config = small_config(TensorNaming::kHuggingFace);
  FakeCheckpoint checkpoint(tensors_of(config));
  for (TensorView& view : checkpoint.views()) {
    if (view.name == "model.layers.1.mlp.up_proj.weight") view.dtype = DType::kF8_E4M3;
  }
  const auto weights = bind_dense(checkpoint, config);
  ASSERT_FALSE(weights);
  EXPECT_EQ(weights.error().code, Code::kUnsupported);
  EXPECT_EQ(weights.error().message,
            "fake: tensor model.layers.1.mlp.up_proj.weight is in F8_E4M3, which dense models cannot use here");
}

TEST(BindDenseDivisors, AreBoundAndChecked) {
  DenseConfig config = small_config(TensorNaming::kGguf);
  auto tensors = tensors_of(config);
  tensors["rope_freqs.weight"] = {3};
  FakeCheckpoint checkpoint(tensors);
  const auto zeros = bind_dense(checkpoint, config);
  ASSERT_FALSE(zeros);
  EXPECT_EQ(zeros.error().message, "fake: tensor rope_freqs.weight holds a number that is not above zero");

  const float divisors[3] = {1, 2, 8};
  const auto index = static_cast<size_t>(checkpoint.find("rope_freqs.weight") - checkpoint.tensors().data());
  std::memcpy(checkpoint.storage()[index].data(), divisors, sizeof(divisors));
  const auto weights = bind_dense(checkpoint, config);
  ASSERT_TRUE(weights) << weights.error().message;
  EXPECT_EQ(weights->rope_divisors, checkpoint.find("rope_freqs.weight"));
}

TEST(BindDenseFile, BindsTheControl) {
  const auto file = GgufFile::open(kBroken + "good.gguf");
  ASSERT_TRUE(file) << file.error().message;
  const auto config = dense_config_from_gguf(**file);
  ASSERT_TRUE(config) << config.error().message;
  const auto weights = bind_dense(**file, *config);
  ASSERT_TRUE(weights) << weights.error().message;
  EXPECT_EQ(weights->layers.size(), 1u);
  EXPECT_EQ(weights->layers[0].q->dtype, DType::kQ8_0);
}

// The tiny models lie beside the repository; every GGUF file of theirs must bind.
TEST(BindDenseFile, BindsEveryTinyGguf) {
  const std::filesystem::path root = std::string(DI_SOURCE_DIR) + "/../shared/golden/dense";
  if (!std::filesystem::exists(root)) GTEST_SKIP() << root << " is not there";
  int num_files = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(root)) {
    const std::string path = entry.path();
    if (path.find("/tiny-") == std::string::npos || !path.ends_with(".gguf")) continue;
    const auto file = GgufFile::open(path);
    ASSERT_TRUE(file) << file.error().message;
    const auto config = dense_config_from_gguf(**file);
    ASSERT_TRUE(config) << config.error().message;
    const auto weights = bind_dense(**file, *config);
    ASSERT_TRUE(weights) << weights.error().message;
    ++num_files;
  }
  EXPECT_GE(num_files, 16);
}

}  // namespace
}  // namespace deepinfer::model
