#include "io/mapped_file.h"

#include <gtest/gtest.h>
#include <cstdio>
#include <fstream>
#include <utility>

namespace deepinfer::io {
namespace {

std::string temporary_file(const std::string& name, const std::string& content) {
  const std::string path = testing::TempDir() + "mapped_file_" + name;
  std::ofstream(path, std::ios::binary) << content;
  return path;
}

std::string_view text(std::span<const std::byte> bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

TEST(MappedFile, ReadsWhatIsThere) {
  std::string content;
  for (int i = 0; i < 3000; ++i) content += std::to_string(i) + ",";
  const std::string path = temporary_file("content", content);
  auto file = MappedFile::open(path);
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(text(file->bytes()), content);

  const std::byte* where = file->bytes().data();
  MappedFile moved = std::move(*file);
  EXPECT_EQ(moved.bytes().data(), where);
  EXPECT_TRUE(file->bytes().empty());
  moved.release(moved.bytes());                // released pages are read again
  moved.release(moved.bytes().subspan(5, 7));  // no whole page: nothing happens
  EXPECT_EQ(text(moved.bytes()), content);
  std::remove(path.c_str());
}

TEST(MappedFile, AnEmptyFileIsEmpty) {
  const std::string path = temporary_file("empty", "");
  auto file = MappedFile::open(path);
  ASSERT_TRUE(file);
  EXPECT_TRUE(file->bytes().empty());
  file->release({});
}

TEST(MappedFile, SaysWhatIsWrong) {
  const auto absent = MappedFile::open("/nonexistent/model.gguf");
  ASSERT_FALSE(absent);
  EXPECT_EQ(absent.error().code, Code::kNotFound);
  EXPECT_EQ(absent.error().message, "/nonexistent/model.gguf: No such file or directory");
  const auto folder = MappedFile::open("/");
  ASSERT_FALSE(folder);
  EXPECT_EQ(folder.error().message, "/: not a regular file");
}

TEST(ReadSmallFile, RefusesLargeOnes) {
  const std::string path = temporary_file("small", "12345");
  EXPECT_EQ(*read_small_file(path, 5), "12345");
  const auto large = read_small_file(path, 4);
  ASSERT_FALSE(large);
  EXPECT_EQ(large.error().code, Code::kResourceExhausted);
}

}  // namespace
}  // namespace deepinfer::io
