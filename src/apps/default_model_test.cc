#include "apps/default_model.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

namespace deepinfer::apps {
namespace {

namespace fs = std::filesystem;

Environment with(const std::string& name, const std::string& value) {
  return [=](const std::string& asked) { return asked == name ? std::optional(value) : std::nullopt; };
}

TEST(DefaultModel, CacheFolder) {
  EXPECT_EQ(*model_cache_folder(with("DEEPINFER_CACHE_DIR", "/a")), "/a/models");
  EXPECT_EQ(*model_cache_folder(with("XDG_CACHE_HOME", "/b")), "/b/deepinfer/models");
  EXPECT_EQ(*model_cache_folder(with("HOME", "/c")), "/c/.cache/deepinfer/models");
  EXPECT_FALSE(model_cache_folder(with("OTHER", "/d")));
}

TEST(DefaultModel, ANamedModelIsNeverReplacedByAnother) {
  EXPECT_EQ(*find_model(DI_SOURCE_DIR "/LICENSE", with("HOME", "/nonexistent")), DI_SOURCE_DIR "/LICENSE");
  const Result<std::string> absent = find_model("/nonexistent.gguf", with("HOME", "/nonexistent"));
  ASSERT_FALSE(absent);
  EXPECT_THAT(absent.error().message, testing::HasSubstr("/nonexistent.gguf"));
}

// A python3 of our own in front of the PATH: what is run, and what a failure becomes.
TEST(DefaultModel, AFetchThatFailsIsSaidAndLeavesNoFile) {
  const fs::path folder = fs::temp_directory_path() / ("default_model_test_" + std::to_string(getpid()));
  fs::create_directories(folder / "bin");
  std::ofstream(folder / "bin/python3") << "#!/bin/sh\n[ \"$1\" = -c ] && [ \"$4\" = smollm2 ] && echo \"$3\" > " << (folder / "called") << "\nexit 1\n";
  fs::permissions(folder / "bin/python3", fs::perms::owner_all);
  const std::string path = std::getenv("PATH");
  setenv("PATH", ((folder / "bin").string() + ":" + path).c_str(), 1);
  const Result<std::string> got = find_model("", with("DEEPINFER_CACHE_DIR", folder / "cache"));
  setenv("PATH", path.c_str(), 1);
  ASSERT_FALSE(got);
  EXPECT_EQ(got.error().code, Code::kUnavailable);
  std::string called;
  std::getline(std::ifstream(folder / "called"), called);
  EXPECT_EQ(called, (folder / "cache/models").string());
  EXPECT_TRUE(fs::is_empty(folder / "cache/models"));
  fs::remove_all(folder);
}

}  // namespace
}  // namespace deepinfer::apps
