#include "io/direct_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "temp_folder.h"

namespace deepinfer::io {
namespace {

struct alignas(kPageBytes) DirectPage {
  std::byte bytes[kPageBytes];
};
std::span<std::byte> span_over(std::vector<DirectPage>& pages) { return {pages[0].bytes, pages.size() * kPageBytes}; }

// 3 pages and a piece of a fourth; on the disk, and not in the cache.
class DirectFileTest : public testing::TestWithParam<DirectFile::Way> {
 protected:
  void SetUp() override {
    for (size_t i = 0; i < 3 * kPageBytes + 1000; ++i) content_ += static_cast<char>(i * 7 + i / 256);
    std::ofstream(path_, std::ios::binary) << content_;
    const int fd = ::open(path_.c_str(), O_RDONLY);
    ::fsync(fd);
    ::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    ::close(fd);
  }
  void TearDown() override { std::remove(path_.c_str()); }

  std::string path_ = temp_folder() + "direct_file", content_;
};

TEST_P(DirectFileTest, ReadsPagesAndTheEnd) {
  const auto mapped = MappedFile::open(path_).value();
  const bool can_tell = mapped.resident_bytes(mapped.bytes()) == 0;  // else the file system keeps what is given back
  const auto file = DirectFile::open(mapped, GetParam()).value();
  std::vector<DirectPage> buffer(4);
  const auto out = span_over(buffer);
  const auto text = [&](size_t n) { return std::string_view(reinterpret_cast<const char*>(out.data()), n); };
  ASSERT_TRUE(file.read(kPageBytes, 100, out.first(kPageBytes)));
  EXPECT_EQ(text(100), content_.substr(kPageBytes, 100));
  ASSERT_TRUE(file.read(0, content_.size(), out));
  EXPECT_EQ(text(content_.size()), content_);
  ASSERT_TRUE(file.read(3 * kPageBytes, 1000, out.first(kPageBytes)));
  EXPECT_EQ(text(1000), content_.substr(3 * kPageBytes));
  if (can_tell) {
    EXPECT_EQ(mapped.resident_bytes(mapped.bytes()), 0) << "nothing stays in the cache";
  }
}

// Also where another file has taken the name since.
TEST_P(DirectFileTest, IsTheFileThatIsMapped) {
  const auto mapped = MappedFile::open(path_).value();
  std::remove(path_.c_str());
  std::ofstream(path_, std::ios::binary) << std::string(4 * kPageBytes, 'x');
  const auto file = DirectFile::open(mapped, GetParam()).value();
  std::vector<DirectPage> buffer(1);
  ASSERT_TRUE(file.read(0, kPageBytes, span_over(buffer)));
  EXPECT_EQ(std::memcmp(buffer[0].bytes, content_.data(), kPageBytes), 0);
}

TEST_P(DirectFileTest, SaysThatTheFileHasBecomeShorter) {
  const auto mapped = MappedFile::open(path_).value();
  const auto file = DirectFile::open(mapped, GetParam()).value();
  std::vector<DirectPage> buffer(4);
  for (const size_t size : {3 * kPageBytes + 999, 3 * kPageBytes, size_t{100}, size_t{0}}) {
    ASSERT_EQ(::truncate(path_.c_str(), static_cast<off_t>(size)), 0);
    const Result<> read = file.read(0, content_.size(), span_over(buffer));
    ASSERT_FALSE(read) << size;
    EXPECT_EQ(read.error().code, Code::kCorruption);
    EXPECT_EQ(read.error().message, path_ + ": the file has become shorter since it was opened");
  }
}

INSTANTIATE_TEST_SUITE_P(Ways, DirectFileTest, testing::Values(DirectFile::Way::kDirect, DirectFile::Way::kCached),
                         [](const auto& info) { return info.param == DirectFile::Way::kDirect ? "Direct" : "Cached"; });

}  // namespace
}  // namespace deepinfer::io
