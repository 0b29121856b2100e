// A segment store on the machine's own file system: processes that are killed, space as du counts it, files full of holes.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sys/mman.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "io/linux_disk.h"
#include "kv/segment_format.h"
#include "kv/store_tools.h"
#include "kv/store_world.h"
#include "temp_folder.h"

namespace deepinfer::kv {
namespace {

// A store in a folder of its own, which goes with it.
struct DiskWorld {
  explicit DiskWorld(uint64_t budget_bytes = uint64_t{64} << 20, int64_t block_bytes = kBlockBytes) {
    folder = temp_folder() + "segment_store_XXXXXX";
    CHECK(::mkdtemp(folder.data()) != nullptr);
    options = StoreWorld(budget_bytes).options;
    options.dir = folder + "/cache";
    options.block_bytes = block_bytes;
    options.log = nullptr;
  }
  DiskWorld(const DiskWorld&) = delete;
  DiskWorld& operator=(const DiskWorld&) = delete;
  ~DiskWorld() {
    store.reset();
    std::filesystem::remove_all(folder);
  }
  void open() {
    store.reset();
    options.folder = open_store_folder(*disk, options.dir).value();
    store = SegmentStore::open(disk, time, options).value();
  }
  // Publishes and writes; true: all of it is acknowledged.
  bool put(std::span<const BlockKey> chain, const std::string& tenant = "") {
    for (const BlockKey& key : chain) {
      const std::string rows = rows_of(key, options.block_bytes);
      store->publish({.tenant = tenant_folder({}, tenant)}, key, std::as_bytes(std::span(rows)));
    }
    store->flush();
    return store->find(chain).num_blocks == static_cast<int32_t>(chain.size());
  }
  // How many blocks of the chain come back, each compared with what went in.
  size_t get(std::span<const BlockKey> chain) {
    const auto fetch = store->fetch({}, chain, nullptr);
    size_t count = 0;
    for (; fetch->state() == BlockFetch::State::kReady; fetch->pop(), ++count) {
      const std::string expected = rows_of(chain[count], options.block_bytes);
      EXPECT_EQ(std::memcmp(fetch->front().rows.data(), expected.data(), expected.size()), 0) << "a wrong block was served";
    }
    return count;
  }
  std::vector<std::string> segments() const {
    std::vector<std::string> paths;
    const auto listed = list_segments(*disk, options.dir);
    if (!listed) return paths;
    for (const SegmentPath& path : *listed) paths.push_back(path.path(options.dir));
    return paths;
  }
  uint64_t allocated_bytes() const {  // as du counts
    uint64_t bytes = disk->status(options.dir)->allocated_bytes;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(options.dir)) bytes += disk->status(entry.path())->allocated_bytes;
    return bytes;
  }

  std::shared_ptr<io::LinuxDisk> disk = std::make_shared<io::LinuxDisk>();
  std::shared_ptr<ManualTime> time = std::make_shared<ManualTime>();
  StoreOptions options;
  std::string folder;
  std::unique_ptr<SegmentStore> store;
};

// Memory that a parent and its children see alike.
template <class T>
class Shared {
 public:
  Shared() : at_(::mmap(nullptr, sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)) {
    CHECK(at_ != MAP_FAILED);
    new (at_) T();
  }
  Shared(const Shared&) = delete;
  Shared& operator=(const Shared&) = delete;
  ~Shared() { ::munmap(at_, sizeof(T)); }
  T* operator->() const { return static_cast<T*>(at_); }

 private:
  void* const at_;
};

// 200 rounds: two processes with the same writer's number fill one directory and are killed somewhere on the way. All that either of them
// saw acknowledged is there afterwards, and nothing else is.
TEST(StoreOnDisk, KilledAnywhereItLosesNothingThatWasAcknowledged) {
  constexpr int kDirectories = 10, kRounds = 20, kWriters = 2;
  constexpr int32_t kNumbers = 1000;  // of chains, a writer and round
  struct Acknowledged {
    std::atomic<int32_t> chains[kWriters] = {};
  };
  const auto chain_number = [](int32_t life, int32_t i) { return chain_of(life * kNumbers + i, 1 + static_cast<size_t>(i) % 4); };
  Rng rng(1);
  int64_t num_acknowledged = 0;
  for (int directory = 0; directory < kDirectories; ++directory) {
    DiskWorld world;
    world.options.writer = 42;
    std::vector<std::pair<int32_t, int32_t>> kept;  // life, chains
    for (int round = 0; round < kRounds; ++round) {
      const Shared<Acknowledged> acknowledged;
      std::vector<pid_t> children;
      for (int32_t writer = 0; writer < kWriters; ++writer) {
        const pid_t child = ::fork();
        ASSERT_GE(child, 0);
        if (child > 0) {
          children.push_back(child);
          continue;
        }
        world.open();
        for (int32_t i = 0; i < kNumbers; ++i) {
          if (world.put(chain_number(round * kWriters + writer, i))) acknowledged->chains[writer] = i + 1;
        }
        for (;;) ::pause();  // the parent may be held up for longer than that takes
      }
      const auto wanted = static_cast<int32_t>(rng.below(6));  // none: while they open the store
      const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(20);  // a disk may be slow
      while (acknowledged->chains[0] + acknowledged->chains[1] < wanted && std::chrono::steady_clock::now() < deadline) std::this_thread::sleep_for(std::chrono::microseconds(100));
      std::this_thread::sleep_for(std::chrono::microseconds(rng.below(3000)));
      for (const pid_t child : children) ::kill(child, SIGKILL);
      for (const pid_t child : children) {
        int status = 0;
        ASSERT_EQ(::waitpid(child, &status, 0), child);
        ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << "it ended by itself, with status " << status;
      }
      for (int32_t writer = 0; writer < kWriters; ++writer) kept.emplace_back(round * kWriters + writer, acknowledged->chains[writer]);
      num_acknowledged += kept[kept.size() - 2].second + kept.back().second;
    }
    world.open();
    for (const auto& [life, num_chains] : kept) {
      for (int32_t i = 0; i < num_chains; ++i) {
        const auto chain = chain_number(life, i);
        ASSERT_EQ(world.get(chain), chain.size()) << "directory " << directory << ", life " << life << ", chain " << i;
      }
    }
    EXPECT_TRUE(world.put(chain_of(-1, 5))) << "and it goes on";
    world.store.reset();
    const auto verified = verify_store(*world.disk, world.options.dir, std::nullopt, nullptr);
    ASSERT_TRUE(verified);
    EXPECT_EQ(verified->num_bad_blocks, 0u);
  }
  EXPECT_GT(num_acknowledged, 20) << "the children came to nothing: the test shows nothing";
}

// du itself, folders included: within a block of what the store says, whatever was done to the directory, and however many tenants have a folder there.
TEST(StoreOnDisk, SpaceIsWhatDuSaysAfterAThousandOperations) {
  constexpr int64_t kBytes = 10'000;
  DiskWorld world(uint64_t{3} << 20, kBytes);
  world.options.segment_bytes = 64 << 10;
  world.open();
  Rng rng(7);
  for (int i = 0; i < 1000; ++i) {
    const auto chain = chain_of(static_cast<int32_t>(rng.below(200)), 1 + rng.below(3));
    const auto segments = world.segments();
    switch (rng.below(8)) {
      case 0: world.get(chain); break;
      case 1: world.time->advance(static_cast<int64_t>(rng.below(3000))); break;
      case 2: world.store->maintain(); break;
      case 3:  // somebody removes a file, cuts it short, or adds to it
        if (segments.empty() || rng.below(4) > 0) break;
        world.store->maintain();
        (void)world.disk->remove(segments[rng.below(segments.size())]);
        break;
      case 4:
        if (segments.empty() || rng.below(8) > 0) break;
        std::filesystem::resize_file(segments.front(), std::filesystem::file_size(segments.front()) / 2);
        break;
      case 5:
        if (rng.below(20) == 0) world.open();
        break;
      default: world.put(chain, std::to_string(rng.below(40)));
    }
    ASSERT_LE(world.allocated_bytes(), world.options.budget_bytes) << i;
  }
  world.store->maintain();
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(::popen(("du -s --block-size=1 '" + world.options.dir + "'").c_str(), "r"), ::pclose);
  ASSERT_NE(pipe, nullptr);
  unsigned long long du = 0;
  ASSERT_EQ(std::fscanf(pipe.get(), "%llu", &du), 1);
  EXPECT_NEAR(static_cast<double>(world.store->stats().used_bytes), static_cast<double>(du), static_cast<double>(record_pages(kBytes) * kPage));
  EXPECT_GT(world.store->stats().evicted_segments, 0u);
}

// How many files of a folder this process holds open that are there no more: their room is taken, whatever du says.
size_t num_removed_and_open(const std::string& folder) {
  size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code closed_meanwhile;
    const std::string target = std::filesystem::read_symlink(entry.path(), closed_meanwhile);
    count += target.starts_with(folder) && target.ends_with(" (deleted)");
  }
  return count;
}

TEST(StoreOnDisk, WhatIsRemovedTakesNoRoom) {
  DiskWorld world(uint64_t{1} << 20);
  world.open();
  const auto number = [](int i) { return chain_of(i, 4); };
  const auto use_all = [&] {
    for (int i = 0; i < 60; ++i) world.get(number(i));
  };
  for (int i = 0; i < 60; ++i) {
    ASSERT_TRUE(world.put(number(i)));
    ASSERT_EQ(world.get(number(i)), 4u) << "opens its file";
    world.time->advance(30);
  }
  EXPECT_GT(world.store->stats().evicted_segments, 3u);
  EXPECT_EQ(num_removed_and_open(world.options.dir), 0u) << "evicted";
  use_all();
  ASSERT_TRUE(purge_store(*world.disk, world.options.dir, {}, nullptr));
  EXPECT_GT(num_removed_and_open(world.options.dir), 0u) << "or this test shows nothing";
  world.store->maintain();
  EXPECT_EQ(num_removed_and_open(world.options.dir), 0u) << "purged";
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(world.put(number(i)));
  use_all();
  world.time->advance(200 * 3600);
  world.store->maintain();
  EXPECT_EQ(world.segments().size(), 0u);
  EXPECT_EQ(num_removed_and_open(world.options.dir), 0u) << "expired";
  // A fetch in flight still gets what it was promised, and then lets go of it.
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(world.put(number(i)));
  {
    const auto fetch = world.store->fetch({}, number(3), nullptr);
    for (const std::string& path : world.segments()) ASSERT_TRUE(world.disk->remove(path));
    world.store->maintain();
    EXPECT_EQ(fetch->state(), BlockFetch::State::kReady);
  }
  EXPECT_EQ(num_removed_and_open(world.options.dir), 0u);
}

TEST(StoreOnDisk, FilesOf4GiBThatAreHoles) {
  DiskWorld world;
  const auto chain = chain_of(1, 30);
  world.open();
  EXPECT_TRUE(world.put(chain));
  EXPECT_EQ(world.get(chain), 30u);
  world.store.reset();
  const std::string first = world.segments().at(0), folder = first.substr(0, first.rfind('/') + 1);
  std::string header(kSegmentHeaderBytes, '\0');
  ASSERT_TRUE(world.disk->open(first, io::Disk::Mode::kRead).value()->read(0, std::as_writable_bytes(std::span(header))));
  for (const bool with_header : {false, true}) {
    const auto file = world.disk->open(folder + (with_header ? "chat.1.00000000000000aa.000001.seg" : "chat.1.00000000000000ab.000001.seg"), io::Disk::Mode::kCreate).value();
    const auto piece = std::as_bytes(std::span(header));
    if (with_header) {
      ASSERT_TRUE(file->write(0, {&piece, 1}));
    }
    ASSERT_TRUE(file->truncate(uint64_t{4} << 30));
  }
  world.open();
  EXPECT_EQ(world.get(chain), 30u);
  EXPECT_EQ(world.store->stats().used_bytes, world.allocated_bytes());
}

}  // namespace
}  // namespace deepinfer::kv
