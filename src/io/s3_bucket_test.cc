// The S3 client and the disk over it, against the server that tests/object_store/run starts; without one these tests skip.
#include "io/s3_bucket.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <ctime>

#include "base/hash.h"
#include "io/s3_disk.h"

namespace deepinfer::io {
namespace {

class S3BucketTest : public testing::Test {
 protected:
  void SetUp() override {
    const char* const bucket = std::getenv("DEEPINFER_TEST_BUCKET");
    if (bucket == nullptr) GTEST_SKIP() << "no server of object storage (tests/object_store/run starts one)";
    // A part of the bucket for each test.
    root_ = std::string("s3://") + bucket + "/" + testing::UnitTest::GetInstance()->current_test_info()->name();
    const Result<S3Options> options = s3_options(root_);
    ASSERT_TRUE(options) << options.error().message;
    options_ = *options;
    options_.part_bytes = size_t{5} << 20;
  }
  std::string key(const std::string& name) const { return root_.substr(root_.find('/', 5) + 1) + "/" + name; }
  static std::string read(S3Bucket& bucket, const std::string& key, uint64_t offset, size_t length) {
    std::string out(length, '\0');
    const Result<size_t> n = bucket.read(key, offset, std::as_writable_bytes(std::span(out)));
    if (!n) return "error: " + n.error().message;
    out.resize(*n);
    return out;
  }

  std::string root_;
  S3Options options_;
};

TEST_F(S3BucketTest, WhatIsPutIsReadByRanges) {
  S3Bucket bucket(options_);
  for (const std::string& name : {std::string("plain"), std::string("a b+c%41/\xc3\xbc=&?~")}) {
    ASSERT_TRUE(bucket.put(key(name), bytes_of("0123456789")));
    EXPECT_EQ(read(bucket, key(name), 0, 10), "0123456789");
    EXPECT_EQ(read(bucket, key(name), 3, 4), "3456");
    EXPECT_EQ(read(bucket, key(name), 8, 100), "89");
    EXPECT_EQ(read(bucket, key(name), 10, 5), "");
    EXPECT_EQ(read(bucket, key(name), 1000, 5), "");
    const Result<S3Bucket::Object> status = bucket.status(key(name));
    ASSERT_TRUE(status);
    EXPECT_EQ(status->size, 10u);
    EXPECT_NEAR(static_cast<double>(status->modified_unix_s), static_cast<double>(std::time(nullptr)), 60);
  }
  ASSERT_TRUE(bucket.put(key("plain"), bytes_of("new")));
  EXPECT_EQ(read(bucket, key("plain"), 0, 10), "new");
  ASSERT_TRUE(bucket.copy(key("plain"), key("copy")));
  ASSERT_TRUE(bucket.remove(key("plain")));
  EXPECT_EQ(bucket.status(key("plain")).error().code, Code::kNotFound);
  std::byte byte;
  EXPECT_EQ(bucket.read(key("plain"), 0, {&byte, 1}).error().code, Code::kNotFound);
  EXPECT_TRUE(bucket.remove(key("plain"))) << "gone is gone";
  EXPECT_EQ(read(bucket, key("copy"), 0, 10), "new");
  ASSERT_TRUE(bucket.put(key("empty"), {}));
  EXPECT_EQ(bucket.status(key("empty"))->size, 0u);
  EXPECT_EQ(read(bucket, key("empty"), 0, 1), "");
}

TEST_F(S3BucketTest, LongObjectsGoUpInParts) {
  S3Bucket bucket(options_);
  std::string content(size_t{12} << 20, '\0');
  for (size_t i = 0; i < content.size(); ++i) content[i] = static_cast<char>(i * 2654435761u >> 13);
  ASSERT_TRUE(bucket.put(key("long"), bytes_of(content)));
  EXPECT_EQ(bucket.status(key("long"))->size, content.size());
  EXPECT_TRUE(read(bucket, key("long"), 0, content.size()) == content);
  EXPECT_EQ(read(bucket, key("long"), (5 << 20) - 3, 6), content.substr((5 << 20) - 3, 6)) << "over the seam of two parts";
}

TEST_F(S3BucketTest, ListingsComeInPages) {
  S3Bucket bucket(options_);
  for (int i = 0; i < 1100; ++i) ASSERT_TRUE(bucket.put(key("many/" + std::to_string(10'000 + i)), bytes_of("x")));
  ASSERT_TRUE(bucket.put(key("many/below/one"), bytes_of("x")));
  const Result<S3Bucket::Listing> listing = bucket.list(key("many/"));
  ASSERT_TRUE(listing) << listing.error().message;
  EXPECT_EQ(listing->objects.size(), 1100u);
  EXPECT_EQ(listing->objects.back().key, key("many/11099"));
  EXPECT_EQ(listing->objects.back().size, 1u);
  EXPECT_NEAR(static_cast<double>(listing->objects.back().modified_unix_s), static_cast<double>(std::time(nullptr)), 120);
  EXPECT_EQ(listing->prefixes, std::vector<std::string>{key("many/below/")});
  EXPECT_TRUE(bucket.list(key("nothing/"))->objects.empty());
}

TEST_F(S3BucketTest, WhoMayNotAndWhereNobodyIsAreErrors) {
  S3Options wrong = options_;
  wrong.secret_key += "x";
  EXPECT_EQ(S3Bucket(wrong).status(key("x")).error().code, Code::kUnavailable);
  EXPECT_EQ(S3Bucket(wrong).put(key("x"), bytes_of("x")).error().code, Code::kUnavailable);
  const std::string told = S3Bucket(wrong).list(key("")).error().message;
  EXPECT_EQ(told.find(options_.secret_key), std::string::npos);
  S3Options nobody = options_;
  nobody.endpoint = "http://127.0.0.1:1";
  EXPECT_EQ(S3Bucket(nobody).status(key("x")).error().code, Code::kIo);
}

TEST_F(S3BucketTest, TheDiskHasFilesAndFolders) {
  S3Disk disk(options_);
  const std::string path = root_ + "/folder/file";
  {
    const auto file = disk.open(path, Disk::Mode::kCreate);
    ASSERT_TRUE(file);
    const std::span<const std::byte> piece = bytes_of("abc");
    ASSERT_TRUE((*file)->write(2, {&piece, 1}));
    EXPECT_EQ(disk.status(path).error().code, Code::kNotFound) << "nothing is there before it is made durable";
    ASSERT_TRUE((*file)->sync());
  }
  EXPECT_EQ(disk.status(path)->size, 5u);
  EXPECT_EQ(read_file(disk, path, 100).value(), std::string("\0\0abc", 5));
  EXPECT_EQ(disk.open(path, Disk::Mode::kCreate).error().code, Code::kIo);
  ASSERT_TRUE(replace_file(disk, path, "new"));
  EXPECT_EQ(*read_file(disk, path, 100), "new");
  EXPECT_EQ(*disk.list(root_), std::vector<std::string>{"folder"});
  EXPECT_EQ(*disk.list(root_ + "/folder"), std::vector<std::string>{"file"});
  EXPECT_EQ(disk.status(path)->size, 3u);
  ASSERT_TRUE(disk.remove(path));
  EXPECT_EQ(disk.status(path).error().code, Code::kNotFound);
  EXPECT_TRUE(disk.list(root_)->empty());
  EXPECT_EQ(disk.lock(path).error().code, Code::kUnsupported);
  EXPECT_EQ(disk.status("/etc/passwd").error().code, Code::kInvalidArgument);
}

TEST(S3Url, NamesABucketAndAPrefix) {
  EXPECT_TRUE(is_s3_url("s3://b/p"));
  EXPECT_FALSE(is_s3_url("/var/cache/s3://b/p"));
  for (const char* bad : {"s3://", "s3://b", "s3://b/", "s3:///p", "s3://b/p/", "b/p"}) EXPECT_EQ(s3_options(bad).error().code, Code::kInvalidArgument) << bad;
  const Result<S3Options> good = s3_options("s3://b/p/q");
  if (good) {
    EXPECT_EQ(good->bucket, "b");
  }
}

}  // namespace
}  // namespace deepinfer::io
