#include "io/linux_disk.h"

#include <gtest/gtest.h>
#include <filesystem>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hash.h"
#include "temp_folder.h"

namespace deepinfer::io {
namespace {

namespace fs = std::filesystem;
using Mode = Disk::Mode;

class LinuxDiskTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = temp_folder() + "linux_disk_XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    dir_ = pattern;
  }
  void TearDown() override { fs::remove_all(dir_); }
  std::string path(const std::string& name) const { return dir_ + "/" + name; }
  static mode_t mode_of(const std::string& path) {
    struct stat s {};
    EXPECT_EQ(::stat(path.c_str(), &s), 0);
    return s.st_mode & 0777;
  }

  LinuxDisk disk_;
  std::string dir_;
};

struct alignas(kDiskPage) Page {
  std::byte bytes[kDiskPage];
};

TEST_F(LinuxDiskTest, WhatIsWrittenIsReadBothWays) {
  std::vector<Page> pages(200);
  for (size_t i = 0; i < pages.size(); ++i) std::fill_n(pages[i].bytes, kDiskPage, static_cast<std::byte>(i));
  std::vector<std::span<const std::byte>> pieces;
  for (const Page& page : pages) pieces.emplace_back(page.bytes);
  for (const Mode mode : {Mode::kCreate, Mode::kCreateDirect}) {
    auto file = disk_.open(path("a"), mode);
    ASSERT_TRUE(file) << file.error().message;
    ASSERT_TRUE((*file)->write(kDiskPage, pieces));
    ASSERT_TRUE((*file)->sync());
    const auto status = (*file)->status();
    ASSERT_TRUE(status);
    EXPECT_EQ(status->size, 201 * kDiskPage);
    EXPECT_GE(status->allocated_bytes, 200 * kDiskPage);
    for (const Mode read_mode : {Mode::kRead, Mode::kReadDirect}) {
      auto again = disk_.open(path("a"), read_mode);
      ASSERT_TRUE(again);
      std::vector<Page> got(3);
      auto n = (*again)->read(100 * kDiskPage, std::as_writable_bytes(std::span(got)));
      ASSERT_TRUE(n);
      EXPECT_EQ(*n, 3 * kDiskPage);
      EXPECT_EQ(got[2].bytes[17], static_cast<std::byte>(101));
      n = (*again)->read(200 * kDiskPage, std::as_writable_bytes(std::span(got)));
      ASSERT_TRUE(n);
      EXPECT_EQ(*n, kDiskPage) << "short at the end of the file";
      std::array<std::byte, 5> odd;
      n = (*again)->read(101 * kDiskPage - 2, odd);
      ASSERT_TRUE(n);
      EXPECT_EQ(odd[1], static_cast<std::byte>(99));
      EXPECT_EQ(odd[2], static_cast<std::byte>(100));
    }
    ASSERT_TRUE(disk_.remove(path("a")));
  }
}

TEST_F(LinuxDiskTest, NewFilesAndFoldersAreTheOwnersAlone) {
  ASSERT_TRUE(disk_.make_folder(path("x/y/z")));
  ASSERT_TRUE(disk_.make_folder(path("x/y/z")));
  EXPECT_EQ(mode_of(path("x")), 0700u);
  EXPECT_EQ(mode_of(path("x/y/z")), 0700u);
  ASSERT_TRUE(disk_.open(path("x/f"), Mode::kCreate));
  EXPECT_EQ(mode_of(path("x/f")), 0600u);
  ASSERT_FALSE(disk_.open(path("x/f"), Mode::kCreate)) << "never over an existing file";
  ASSERT_TRUE(disk_.sync_folder(path("x")));
  EXPECT_EQ(*disk_.list(path("x")), (std::vector<std::string>{"f", "y"}));
  ASSERT_FALSE(disk_.make_folder(path("x/f")));
}

TEST_F(LinuxDiskTest, LinksAreNotFollowed) {
  ASSERT_TRUE(disk_.open(path("f"), Mode::kCreate));
  fs::create_symlink(path("f"), path("link"));
  EXPECT_FALSE(disk_.open(path("link"), Mode::kRead));
  EXPECT_FALSE(disk_.open(dir_, Mode::kRead));
}

TEST_F(LinuxDiskTest, OneHolderOfALock) {
  auto first = disk_.lock(path("lock"));
  ASSERT_TRUE(first);
  const auto second = disk_.lock(path("lock"));
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, Code::kUnavailable);
  first->reset();
  EXPECT_TRUE(disk_.lock(path("lock")));
}

TEST_F(LinuxDiskTest, SmallFilesAreReplacedWhole) {
  ASSERT_TRUE(replace_file(disk_, path("s"), "one"));
  ASSERT_TRUE(replace_file(disk_, path("s"), "three"));
  EXPECT_EQ(*read_file(disk_, path("s"), 100), "three");
  EXPECT_EQ(read_file(disk_, path("s"), 4).error().code, Code::kCorruption);
  EXPECT_EQ(disk_.list(dir_)->size(), 1u) << "no temporary file stays";
  EXPECT_FALSE(replace_file(disk_, path("no/s"), "x"));
}

TEST_F(LinuxDiskTest, SaysWhatIsWrong) {
  EXPECT_EQ(disk_.open(path("no"), Mode::kRead).error().code, Code::kNotFound);
  EXPECT_EQ(disk_.remove(path("no")).error().code, Code::kNotFound);
  EXPECT_EQ(disk_.status(path("no")).error().code, Code::kNotFound);
  EXPECT_EQ(disk_.list(path("no")).error().code, Code::kNotFound);
  EXPECT_EQ(disk_.touch(path("no"), 1).error().code, Code::kNotFound);
  EXPECT_EQ(disk_.rename(path("no"), path("n")).error().code, Code::kNotFound);
  const auto full = disk_.open("/dev/full", Mode::kRead);
  EXPECT_FALSE(full) << "devices are no files";
}

TEST_F(LinuxDiskTest, TouchSetsTheTimeOfChange) {
  { ASSERT_TRUE(disk_.open(path("f"), Mode::kCreate)); }
  ASSERT_TRUE(disk_.touch(path("f"), 1'700'000'000));
  EXPECT_EQ(disk_.status(path("f"))->changed_unix_s, 1'700'000'000);
  auto file = disk_.open(path("f"), Mode::kRead);
  const auto text = bytes_of("no");
  EXPECT_FALSE((*file)->write(0, {&text, 1})) << "opened for reading";
}

// Somebody's pipe under a name of ours: to open it would wait for somebody who writes to it.
TEST_F(LinuxDiskTest, WhatIsNoFileIsRefusedAtOnce) {
  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0600), 0);
  ASSERT_TRUE(disk_.make_folder(path("folder")));
  for (const std::string name : {"pipe", "folder"}) {
    for (const Mode mode : {Mode::kRead, Mode::kReadDirect}) {
      const auto opened = disk_.open(path(name), mode);
      ASSERT_FALSE(opened) << name;
      EXPECT_EQ(opened.error().code, Code::kIo) << name;
    }
  }
}

}  // namespace
}  // namespace deepinfer::io
