#include "apps/default_model.h"

#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

namespace deepinfer::apps {
namespace {

namespace fs = std::filesystem;

TEST(DefaultModel, ANamedModelIsNeverReplacedByAnother) {
  EXPECT_EQ(*find_model(DI_SOURCE_DIR "/LICENSE"), DI_SOURCE_DIR "/LICENSE");
  const Result<std::string> absent = find_model("/nonexistent.gguf");
  ASSERT_FALSE(absent);
  EXPECT_THAT(absent.error().message, testing::HasSubstr("/nonexistent.gguf"));
}

TEST(DefaultModel, LiesInTheInstallPrefixOrBesideTheProgram) {
  const fs::path prefix = fs::temp_directory_path() / ("default_model_test_" + std::to_string(getpid()));
  const fs::path installed = prefix / "share/deepinfer/models/nano", beside = prefix / "bin/models/nano";
  fs::create_directories(prefix / "bin");
  const Result<std::string> absent = default_model_folder(prefix / "bin");
  ASSERT_FALSE(absent);
  EXPECT_EQ(absent.error().code, Code::kNotFound);
  EXPECT_THAT(absent.error().message, testing::AllOf(testing::HasSubstr(installed.string()), testing::HasSubstr(beside.string())));
  fs::create_directories(installed);
  std::ofstream(installed / "config.json") << "{}";
  EXPECT_EQ(*default_model_folder(prefix / "bin"), installed.string());
  fs::create_directories(beside);
  std::ofstream(beside / "config.json") << "{}";
  EXPECT_EQ(*default_model_folder(prefix / "bin"), beside.string());
  fs::remove_all(prefix);
}

// The build tree has it beside the program.
TEST(DefaultModel, TheBuildTreeHasIt) { EXPECT_TRUE(default_model_folder(DI_BINARY_DIR)); }

}  // namespace
}  // namespace deepinfer::apps
