#include "io/disk_rate.h"

#include <fcntl.h>
#include <cstdio>
#include <fstream>
#include <gtest/gtest.h>
#include <unistd.h>

#include "temp_folder.h"

namespace deepinfer::io {
namespace {

TEST(DiskRate, ReadsTheWholeFile) {
  const std::string path = temp_folder() + "disk_rate";
  std::ofstream(path, std::ios::binary) << std::string(9'000'001, 'x');
  const int fd = ::open(path.c_str(), O_RDONLY);
  ::fsync(fd);
  ::close(fd);
  const int64_t before = bytes_read_from_disk();
  const auto rate = measure_disk_rate(path, int64_t{1} << 40);
  if (!rate && rate.error().code == Code::kIo) GTEST_SKIP() << rate.error().message;
  ASSERT_TRUE(rate) << rate.error().message;
  EXPECT_GT(*rate, 0);
  if (before > 0) {
    EXPECT_GE(bytes_read_from_disk() - before, 9'000'000);
  }
  std::remove(path.c_str());
}

TEST(DiskRate, SaysWhatIsWrong) {
  EXPECT_EQ(measure_disk_rate("/nonexistent/x", 1).error().code, Code::kNotFound);
  const std::string path = temp_folder() + "disk_rate_empty";
  std::ofstream(path, std::ios::binary).close();
  const auto empty = measure_disk_rate(path, 1);
  ASSERT_FALSE(empty);
  EXPECT_TRUE(empty.error().code == Code::kInvalidArgument || empty.error().code == Code::kIo);
  std::remove(path.c_str());
}

}  // namespace
}  // namespace deepinfer::io
