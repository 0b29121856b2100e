#include "engine/model_text.h"

#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>

#include "temp_folder.h"

namespace deepinfer::engine {
namespace {

namespace fs = std::filesystem;

// A tiny model's folder with a tokenizer_config.json of our own and no chat_template.jinja.
class ModelTextFolder : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(temp_folder()) / testing::UnitTest::GetInstance()->current_test_info()->name();
    fs::remove_all(folder_);
    fs::copy(fs::path(DI_SOURCE_DIR) / "tests/golden/dense/tiny-qwen3/f32", folder_);
    fs::remove(folder_ / "chat_template.jinja");
  }
  void TearDown() override { fs::remove_all(folder_); }

  Result<ModelText> read(const std::string& config) {
    std::ofstream(folder_ / "tokenizer_config.json") << config;
    const auto file = model::open_model_file(folder_.string());
    EXPECT_TRUE(file) << file.error().message;
    return read_model_text(*file);
  }

  fs::path folder_;
};

TEST_F(ModelTextFolder, TemplateBesideNumbersThatNoIntegerHolds) {
  const auto text = read(R"({"model_max_length": 1000000000000000019884624838656, "chat_template": "{{ 1 }}"})");
  ASSERT_TRUE(text) << text.error().message;
  EXPECT_EQ(text->chat_template, "{{ 1 }}");
}

TEST_F(ModelTextFolder, TemplateFromAListIsTheDefault) {
  const auto text = read(R"({"chat_template": [{"name": "tool_use", "template": "a"}, {"template": "b", "name": "default"}], "x": 1e400})");
  ASSERT_TRUE(text) << text.error().message;
  EXPECT_EQ(text->chat_template, "b");
}

TEST_F(ModelTextFolder, NoTemplate) {
  for (const char* config : {"{}", R"({"chat_template": null, "a": 1})"}) {
    const auto text = read(config);
    ASSERT_TRUE(text) << text.error().message;
    EXPECT_EQ(text->chat_template, "");
  }
}

TEST_F(ModelTextFolder, NeitherTextNorList) {
  for (const char* config : {R"({"chat_template": 5})", R"({"chat_template": []})", R"({"chat_template": [{"name": "other", "template": "a"}]})"}) {
    const auto text = read(config);
    ASSERT_FALSE(text) << config;
    EXPECT_NE(text.error().message.find("tokenizer_config.json: chat_template"), std::string::npos) << text.error().message;
  }
}

}  // namespace
}  // namespace deepinfer::engine
