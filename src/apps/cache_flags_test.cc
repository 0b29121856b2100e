#include "apps/cache_flags.h"

#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <string>
#include <sys/stat.h>

#include "io/memory_disk.h"
#include "temp_folder.h"

namespace deepinfer::apps {
namespace {

namespace fs = std::filesystem;

// A model's folder, and a cache directory for its digests.
class Digests : public testing::Test {
 protected:
  void SetUp() override {
    fs::create_directories(folder);
    ASSERT_TRUE(disk.make_folder("/cache"));
    write("model.safetensors", std::string(300'000, 'w'));
    write("config.json", R"({"rope_theta": 10000})");
  }
  void TearDown() override { fs::remove_all(folder); }

  void write(const std::string& name, const std::string& content) const { std::ofstream(folder / name) << content; }
  std::string digest(const std::string& name = "") {
    const Result<std::string> out = weights_digest(name.empty() ? folder.string() : (folder / name).string(), disk, "/cache", 2);
    EXPECT_TRUE(out) << out.error().message;
    return out ? *out : "";
  }

  const fs::path folder = fs::path(temp_folder()) / "cache_flags";
  io::MemoryDisk disk;
};

// What says how weights are used changes what is computed with them, whether the folder was named or its file.
TEST_F(Digests, CoverTheConfigToo) {
  for (const std::string name : {"", "model.safetensors"}) {
    SCOPED_TRACE(name);
    const std::string before = digest(name);
    EXPECT_EQ(before.size(), 64u);
    EXPECT_EQ(digest(name), before);
    write("config.json", R"({"rope_theta": 20000})");
    EXPECT_NE(digest(name), before);
    write("config.json", R"({"rope_theta": 10000})");
    EXPECT_EQ(digest(name), before) << "by content, not by time";
  }
  write("README.md", "text");
  const std::string before = digest();
  write("README.md", "other text");
  EXPECT_EQ(digest(), before);
  write("model-2.safetensors", "more");
  EXPECT_NE(digest(), before);
}

TEST_F(Digests, AGgufFileStandsForItself) {
  write("model.gguf", "weights");
  const std::string before = digest("model.gguf");
  write("config.json", "{}");
  EXPECT_EQ(digest("model.gguf"), before);
  write("model.gguf", "Weights");
  EXPECT_NE(digest("model.gguf"), before);
}

// An archive that keeps times is unpacked over the model: same file, same size, same time of change.
TEST_F(Digests, OfOtherWeightsWithTheSameTimesDiffer) {
  const fs::path file = folder / "model.safetensors";
  const fs::file_time_type time = fs::last_write_time(file);
  const std::string before = digest();
  write("model.safetensors", std::string(300'000, 'v'));
  fs::last_write_time(file, time);
  EXPECT_NE(digest(), before);
}

TEST_F(Digests, OfAbsentFilesAreErrors) { EXPECT_FALSE(weights_digest((folder / "absent.gguf").string(), disk, "/cache", 1)); }

// The digest is kept: a second start does not read the weights again.
TEST_F(Digests, AreKept) {
  const std::string before = digest();
  for (const std::string& path : disk.files()) {
    ASSERT_TRUE(disk.put(path, std::string(64, 'f')));
  }
  EXPECT_EQ(digest(), std::string(64, 'f'));
}

TEST(Retention, IsReadOrRefused) {
  const auto classes = parse_retention("chat=168h,agent=72h");
  ASSERT_TRUE(classes);
  ASSERT_EQ(classes->size(), 2u);
  EXPECT_EQ(classes->at(0).name, "chat");
  EXPECT_EQ(classes->at(1).seconds, 72 * 3600);
  for (const char* wrong : {"", "chat", "chat=", "chat=x", "chat=1h,", "chat=1h,chat=2h", ",", "chat=1h;agent=2h"}) EXPECT_FALSE(parse_retention(wrong)) << wrong;
}

}  // namespace
}  // namespace deepinfer::apps
