#include "model/dense_synth.h"

#include <gtest/gtest.h>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "kernels/dequantize.h"
#include "kernels/quantize.h"
#include "model/dense_weights.h"
#include "model/gguf.h"
#include "model/gguf_vocabulary.h"
#include "model/model_file.h"
#include "temp_folder.h"

namespace deepinfer::model {
namespace {

std::string temporary(const std::string& name) { return temp_folder() + "dense_synth_" + name + ".gguf"; }

std::string content(const std::string& path) {
  const auto text = io::read_small_file(path, 64 << 20);
  EXPECT_TRUE(text);
  return text ? *text : "";
}

class DenseSynth : public testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(Types, DenseSynth, testing::Values(DType::kF32, DType::kF16, DType::kBF16, DType::kQ8_0, DType::kQ4_0),
                         [](const auto& test) { return std::string(dtype_info(test.param).name); });

TEST_P(DenseSynth, WritesACompleteModel) {
  for (const auto architecture : {DenseArchitecture::kLlama, DenseArchitecture::kQwen2, DenseArchitecture::kQwen3}) {
    DenseConfig shape = *dense_synth_shape("tiny");
    shape.architecture = architecture;
    shape.qkv_bias = architecture == DenseArchitecture::kQwen2;
    shape.qk_norm = architecture == DenseArchitecture::kQwen3;
    shape.tied_head = architecture != DenseArchitecture::kLlama;
    const std::string path = temporary(std::string(dtype_info(GetParam()).name));
    const auto written = write_dense_synth(path, shape, GetParam(), 7);
    ASSERT_TRUE(written) << written.error().message;
    const auto file = GgufFile::open(path);
    ASSERT_TRUE(file) << file.error().message;
    const auto config = dense_config_from_gguf(**file);
    ASSERT_TRUE(config) << config.error().message;
    EXPECT_EQ(config->architecture, architecture);
    EXPECT_EQ(config->head_dim, 32);
    EXPECT_EQ(config->max_context, 4096);
    EXPECT_EQ(config->rope.theta, 1e6);
    EXPECT_EQ(config->eos_ids, shape.eos_ids);
    const auto weights = bind_dense(**file, *config);
    ASSERT_TRUE(weights) << weights.error().message;
    EXPECT_EQ(weights->layers[1].down->dtype, GetParam());
    const auto vocabulary = gguf_vocabulary(**file);
    ASSERT_TRUE(vocabulary) << vocabulary.error().message;
    EXPECT_EQ(vocabulary->tokens.size(), 512u);
    EXPECT_EQ(vocabulary->tokens[' '], "\xc4\xa0");
    std::remove(path.c_str());
  }
}

TEST_P(DenseSynth, WeightsHaveTheSaidSpread) {
  const std::string path = temporary("spread");
  ASSERT_TRUE(write_dense_synth(path, *dense_synth_shape("tiny"), GetParam(), 1));
  const auto file = GgufFile::open(path);
  ASSERT_TRUE(file) << file.error().message;
  const TensorView* embedding = (*file)->find("token_embd.weight");
  std::vector<float> values(static_cast<size_t>(embedding->num_elements()));
  dequantize(embedding->dtype, embedding->data.data(), values.data(), embedding->num_elements());
  double sum = 0, squares = 0;
  for (const float v : values) sum += v, squares += double{v} * v;
  const double n = static_cast<double>(values.size());
  EXPECT_NEAR(sum / n, 0, 5e-4);
  EXPECT_NEAR(std::sqrt(squares / n), 0.02, 5e-4);
  std::remove(path.c_str());
}

TEST(DenseSynthFile, DependsOnTheSeedAlone) {
  const DenseConfig shape = *dense_synth_shape("tiny");
  const std::string a = temporary("a"), b = temporary("b"), c = temporary("c");
  ASSERT_TRUE(write_dense_synth(a, shape, DType::kQ4_0, 3));
  ASSERT_TRUE(write_dense_synth(b, shape, DType::kQ4_0, 3));
  ASSERT_TRUE(write_dense_synth(c, shape, DType::kQ4_0, 4));
  EXPECT_EQ(content(a), content(b));
  EXPECT_NE(content(a), content(c));
  for (const auto& path : {a, b, c}) std::remove(path.c_str());
}

TEST(DenseSynthFile, SaysWhatCannotBeWritten) {
  DenseConfig shape = *dense_synth_shape("tiny");
  EXPECT_EQ(write_dense_synth(temporary("x"), shape, DType::kQ6_K, 1).error().code, Code::kInvalidArgument);
  const auto nowhere = write_dense_synth("/nonexistent/x.gguf", shape, DType::kF16, 1);
  ASSERT_FALSE(nowhere);
  EXPECT_EQ(nowhere.error().message, "/nonexistent/x.gguf.part: No such file or directory");
  shape.hidden_size = 48;
  EXPECT_EQ(write_dense_synth(temporary("x"), shape, DType::kQ8_0, 1).error().message,
            "tensor token_embd.weight: rows of 48 are no whole number of Q8_0 blocks");
  EXPECT_FALSE(dense_synth_shape("no-such-shape"));
  for (const auto name : dense_synth_names()) EXPECT_TRUE(dense_synth_shape(name));
}

// The quantisers against another implementation: the gguf package quantised these files from the float weights beside them.
TEST(QuantizeGolden, MeetsTheGgufPackage) {
  const std::string root = std::string(DI_SOURCE_DIR) + "/../shared/golden/dense/tiny-qwen2/";
  if (!std::filesystem::exists(root)) GTEST_SKIP() << root << " is not there";
  const auto floats = open_model_file(root + "f32");
  ASSERT_TRUE(floats) << floats.error().message;
  const auto config = read_dense_config(*floats);
  ASSERT_TRUE(config);
  for (const DType dtype : {DType::kQ8_0, DType::kQ4_0, DType::kF16}) {
    const auto file = GgufFile::open(root + "tiny-qwen2-" + std::string(dtype_info(dtype).name) + ".gguf");
    ASSERT_TRUE(file) << file.error().message;
    for (const std::string_view role : {"q", "k", "v", "output", "gate", "up", "down"}) {
      for (int layer = 0; layer < config->num_hidden_layers; ++layer) {
        const TensorView* from = floats->checkpoint().find(dense_tensor_name(TensorNaming::kHuggingFace, role, layer));
        const TensorView* to = (*file)->find(dense_tensor_name(TensorNaming::kGguf, role, layer));
        ASSERT_EQ(to->dtype, dtype);
        std::vector<float> values(static_cast<size_t>(from->num_elements()));
        dequantize(from->dtype, from->data.data(), values.data(), from->num_elements());
        std::vector<std::byte> bytes(to->data.size());
        quantize(dtype, values.data(), bytes.data(), from->num_elements());
        EXPECT_EQ(std::memcmp(bytes.data(), to->data.data(), bytes.size()), 0) << to->name << " " << dtype_info(dtype).name;
      }
    }
  }
}

}  // namespace
}  // namespace deepinfer::model
