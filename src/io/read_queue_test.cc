#include "io/read_queue.h"

#include <gtest/gtest.h>
#include <unistd.h>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "base/rng.h"
#include "temp_folder.h"

namespace deepinfer::io {
namespace {

struct alignas(kPageBytes) QueuePage {
  std::byte bytes[kPageBytes];
};

class ReadQueueTest : public testing::Test {
 protected:
  static constexpr size_t kPages = 100;
  void SetUp() override {
    for (size_t i = 0; i < kPages * kPageBytes - 1234; ++i) content_ += static_cast<char>(i * 7 + i / 256);
    std::ofstream(path_, std::ios::binary) << content_;
    files_.push_back(DirectFile::open(MappedFile::open(path_).value()).value());
  }
  void TearDown() override { std::remove(path_.c_str()); }

  ReadQueue::Part part(size_t first_page, size_t num_pages, std::byte* to) const {
    const size_t begin = first_page * kPageBytes;
    return {&files_[0], begin, std::min(num_pages * kPageBytes, content_.size() - begin), {to, num_pages * kPageBytes}};
  }
  bool holds(const ReadQueue::Part& part) const { return std::memcmp(part.out.data(), content_.data() + part.offset, part.needed) == 0; }

  std::string path_ = temp_folder() + "read_queue", content_;
  std::vector<DirectFile> files_;
};

// Any parts in any places, again and again, awaited by others than the one who asks.
TEST_F(ReadQueueTest, ReadsWhatWasAskedFor) {
  constexpr int32_t kPlaces = 5;
  constexpr size_t kPagesEach = 40;
  std::vector<QueuePage> memory(kPlaces * kPagesEach);
  ReadQueue queue(kPlaces, {.num_threads = 3, .piece_bytes = 4 * kPageBytes});
  Rng rng(3);
  std::vector<std::vector<ReadQueue::Part>> asked(kPlaces);
  for (int round = 0; round < 200; ++round) {
    for (int32_t place = 0; place < kPlaces; ++place) {
      std::byte* at = memory[static_cast<size_t>(place) * kPagesEach].bytes;
      auto& parts = asked[static_cast<size_t>(place)];
      parts.clear();
      for (uint64_t i = 0, n = 1 + rng.below(ReadQueue::kMaxParts); i < n; ++i) {
        const size_t pages = 1 + rng.below(kPagesEach / ReadQueue::kMaxParts);
        parts.push_back(part(rng.below(kPages - pages + 1), pages, at));
        at += pages * kPageBytes;
      }
      queue.read(place, parts);
    }
    std::atomic<int> wrong = 0;
    const auto look = [&] {
      for (int32_t place = 0; place < kPlaces; ++place) {
        queue.await(place);
        if (!queue.is_read(place) || queue.has_failed(place)) ++wrong;
        for (const ReadQueue::Part& part : asked[static_cast<size_t>(place)])
          if (!holds(part)) ++wrong;
      }
    };
    std::thread other(look);
    look();
    other.join();
    ASSERT_EQ(wrong, 0);
  }
  EXPECT_TRUE(queue.take_error());
}

TEST_F(ReadQueueTest, APlaceThatIsBeingReadIsAwaitedBeforeItIsReadAgain) {
  std::vector<QueuePage> memory(kPages);
  ReadQueue queue(1, {.num_threads = 2, .piece_bytes = kPageBytes});
  const auto all = part(0, kPages, memory[0].bytes), few = part(50, 3, memory[0].bytes);
  queue.read(0, {&all, 1});
  queue.read(0, {&few, 1});
  queue.await(0);
  EXPECT_TRUE(holds(few));
  EXPECT_EQ(std::memcmp(memory[3].bytes, content_.data() + 3 * kPageBytes, kPageBytes), 0) << "the first had ended";
}

TEST_F(ReadQueueTest, AFailureIsToldOnceAndEndsWithThat) {
  std::vector<QueuePage> memory(2 * kPages);
  ReadQueue queue(2, {.num_threads = 2, .piece_bytes = 2 * kPageBytes});
  const auto whole = part(0, kPages, memory[0].bytes), front = part(0, 4, memory[kPages].bytes);
  ASSERT_EQ(::truncate(path_.c_str(), 10 * kPageBytes), 0);
  queue.read(0, {&whole, 1});
  queue.await(0);
  EXPECT_TRUE(queue.has_failed(0));
  EXPECT_FALSE(queue.is_read(0));
  queue.read(1, {&front, 1});  // could be read, but the step that wants it is lost
  queue.await(1);
  EXPECT_TRUE(queue.has_failed(1));
  const Result<> error = queue.take_error();
  ASSERT_FALSE(error);
  EXPECT_EQ(error.error().code, Code::kCorruption);
  EXPECT_EQ(error.error().message, path_ + ": the file has become shorter since it was opened");
  EXPECT_TRUE(queue.take_error());
  queue.read(1, {&front, 1});
  queue.await(1);
  EXPECT_TRUE(queue.is_read(1));
  EXPECT_TRUE(holds(front));
}

TEST_F(ReadQueueTest, EndsWithReadsUnderWay) {
  std::vector<QueuePage> memory(3 * kPages);
  ReadQueue queue(3, {.num_threads = 2, .piece_bytes = kPageBytes});
  for (int32_t place = 0; place < 3; ++place) {
    const auto all = part(0, kPages, memory[static_cast<size_t>(place) * kPages].bytes);
    queue.read(place, {&all, 1});
  }
}

}  // namespace
}  // namespace deepinfer::io
