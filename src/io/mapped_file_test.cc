#include "io/mapped_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cstdio>
#include <fstream>
#include <utility>

#include "temp_folder.h"

namespace deepinfer::io {
namespace {

std::string temporary_file(const std::string& name, const std::string& content) {
  const std::string path = temp_folder() + "mapped_file_" + name;
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

TEST(MappedFile, RefusesWhatIsNoFileAtOnce) {
  const std::string pipe = temp_folder() + "mapped_file_pipe";
  std::remove(pipe.c_str());
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  for (const std::string& path : {pipe, temp_folder(), std::string("/dev/zero")}) {
    const auto file = MappedFile::open(path);
    ASSERT_FALSE(file) << path;
    EXPECT_EQ(file.error().message, path + ": not a regular file");
  }
  std::remove(pipe.c_str());
}

// Whole pages come and go as told, and the bytes are the same whenever they are read.
TEST(MappedFile, KeepsWhatItIsTold) {
  std::string content(5 << 20, 'x');
  for (size_t i = 0; i < content.size(); i += 97) content[i] = static_cast<char>(i);
  const std::string path = temporary_file("pages", content);
  const int fd = ::open(path.c_str(), O_RDONLY);
  ::fsync(fd);  // pages that are not on the disk yet cannot be evicted
  ::close(fd);
  const auto file = MappedFile::open(path);
  ASSERT_TRUE(file);
  const auto bytes = file->bytes();
  file->evict(bytes);
  if (file->resident_bytes(bytes) > 0) {
    std::remove(path.c_str());
    GTEST_SKIP() << "this file system keeps pages that are given back";
  }
  file->expect_random(bytes);
  EXPECT_EQ(text(bytes.subspan(10'000, 3)), content.substr(10'000, 3));
  EXPECT_EQ(file->resident_bytes(bytes), 4096);
  file->read_ahead(bytes.subspan(1'000'000, 3'000'000));
  EXPECT_EQ(text(bytes.subspan(1'000'000, 3'000'000)), std::string_view(content).substr(1'000'000, 3'000'000));
  EXPECT_EQ(file->resident_bytes(bytes), 4096 + (4'000'000 + 4095) / 4096 * 4096 - 1'000'000 / 4096 * 4096);
  file->evict(bytes.subspan(1'000'000, 3'000'000));
  EXPECT_EQ(file->resident_bytes(bytes), 4096);
  EXPECT_EQ(text(bytes), content);
  std::remove(path.c_str());
}

// Parts of any begin and length: the same bytes at the same place, and no longer the file's.
TEST(MappedFile, CopiesOfPartsHoldTheSameBytes) {
  std::string content((6 << 20) + 1234, 'x');
  for (size_t i = 0; i < content.size(); i += 97) content[i] = static_cast<char>(i / 97);
  const std::string path = temporary_file("copied", content);
  auto file = MappedFile::open(path);
  ASSERT_TRUE(file);
  const auto bytes = file->bytes();
  ASSERT_TRUE(file->load(bytes.subspan(5000, 3'000'000)));
  EXPECT_EQ(file->loaded_bytes(), 3'005'000U / 4096 * 4096 - 8192);
  ASSERT_TRUE(file->load(bytes.subspan(4096 * 1000, 100)));  // no whole page: nothing happens
  ASSERT_TRUE(file->load(bytes.subspan(4096 * 1000, 4096)));
  EXPECT_EQ(text(bytes), content);
  file->release(bytes.first(5000));  // a neighbour may go and come back
  file->evict(bytes.first(8192));
  const MappedFile moved = std::move(*file);
  EXPECT_EQ(moved.bytes().data(), bytes.data());
  EXPECT_DEATH(moved.evict(bytes.subspan(8191, 2)), "loaded_");
  EXPECT_DEATH(moved.release(bytes), "loaded_");

  ASSERT_EQ(::truncate(path.c_str(), 0), 0);  // what was copied does not mind
  EXPECT_EQ(text(bytes.subspan(8192, 2'900'000)), std::string_view(content).substr(8192, 2'900'000));
  std::remove(path.c_str());
}

TEST(MappedFile, AFileThatBecameShorterIsNotCopied) {
  const std::string path = temporary_file("shorter", std::string(100'000, 'x'));
  auto file = MappedFile::open(path);
  ASSERT_TRUE(file);
  ASSERT_EQ(::truncate(path.c_str(), 50'000), 0);
  const Result<> loaded = file->load(file->bytes());
  ASSERT_FALSE(loaded);
  EXPECT_EQ(loaded.error().code, Code::kCorruption);
  EXPECT_EQ(loaded.error().message, path + ": the file has become shorter since it was opened");
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
