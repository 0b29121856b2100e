// kv/store_world.h: a segment store over a disk in memory with a clock of its own, chains of blocks whose bytes follow from their keys, and
// the question that every fault test asks: is what comes out what went in, or nothing?
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/rng.h"
#include "io/memory_disk.h"
#include "kv/segment_store.h"

namespace deepinfer::kv {

class ManualTime final : public TimeSource {
 public:
  int64_t wall_s() const override { return wall; }
  int64_t boot_ns() const override { return boot; }
  void advance(int64_t seconds) {
    wall += seconds;
    boot += seconds * 1'000'000'000;
  }
  std::atomic<int64_t> wall = 1'795'000'000, boot = 1;  // background threads read them
};

constexpr int64_t kHour = 3600;
constexpr int64_t kBlockBytes = 5000;  // two pages a record, and not a whole number of them
constexpr uint64_t kRecordPages = 2;

inline std::string rows_of(const BlockKey& key, int64_t num_bytes = kBlockBytes) {
  uint64_t seed;
  std::memcpy(&seed, key.bytes.data(), 8);
  Rng rng(seed);
  std::string rows(static_cast<size_t>(num_bytes), '\0');
  for (size_t i = 0; i < rows.size(); i += 8) {
    const uint64_t word = rng.next_u64();
    std::memcpy(rows.data() + i, &word, std::min<size_t>(8, rows.size() - i));
  }
  return rows;
}

// Keys of `count` blocks; the same number gives the same chain, and chains with the same first number share no block.
inline std::vector<BlockKey> chain_of(int32_t number, size_t count) {
  std::vector<BlockKey> keys;
  BlockKey parent = root_key({.weights = "w", .block_tokens = 4});
  for (size_t i = 0; i < count; ++i) {
    const TokenId tokens[4] = {number, static_cast<TokenId>(i), 0, 0};
    keys.push_back(parent = block_key(parent, tokens));
  }
  return keys;
}

// Fetches a chain and compares every block that comes; returns how many came. tiers: of each.
inline size_t fetch_all(BlockStore& store, const StoreTag& tag, std::span<const BlockKey> chain, std::vector<Tier>* tiers = nullptr, int64_t num_bytes = kBlockBytes) {
  const std::unique_ptr<BlockFetch> fetch = store.fetch(tag, chain, nullptr);
  size_t count = 0;
  for (; fetch->state() == BlockFetch::State::kReady; fetch->pop(), ++count) {
    const BlockFetch::Block block = fetch->front();
    const std::string expected = rows_of(chain[count], num_bytes);
    EXPECT_EQ(block.rows.size(), expected.size());
    EXPECT_EQ(std::memcmp(block.rows.data(), expected.data(), expected.size()), 0) << "a wrong block was served";
    if (tiers != nullptr) tiers->push_back(block.tier);
  }
  EXPECT_EQ(fetch->state(), BlockFetch::State::kEnded);
  fetch->give_up();
  return count;
}

struct StoreWorld {
  std::shared_ptr<io::MemoryDisk> disk = std::make_shared<io::MemoryDisk>();
  std::shared_ptr<ManualTime> time = std::make_shared<ManualTime>();
  StoreOptions options;
  std::unique_ptr<SegmentStore> store;
  std::vector<std::string> log;

  explicit StoreWorld(uint64_t budget_bytes = uint64_t{64} << 20) {
    options = {.dir = "/cache", .budget_bytes = budget_bytes, .classes = {{"chat", 168 * 3600}, {"agent", 72 * 3600}},
               .model = namespace_of("w", "a-v1", "f", 4), .block_tokens = 4, .block_bytes = kBlockBytes, .segment_bytes = 64 << 10, .background = false};
    options.log = [this](const std::string& line) { log.push_back(line); };
    disk->set_time([t = time] { return t->wall_s(); });
  }
  ~StoreWorld() { disk->set_fault(nullptr); }

  // Another process on the same disk and clock; to be opened after it.
  void share(const StoreWorld& other) {
    disk = other.disk;
    time = other.time;
  }

  Result<> try_open() {
    store.reset();
    DI_TRY(options.folder, open_store_folder(*disk, options.dir));
    DI_TRY(store, SegmentStore::open(disk, time, options));
    return {};
  }
  void open() {
    const Result<> opened = try_open();
    ASSERT_TRUE(opened) << opened.error().message;
  }
  void crash(size_t kept_bytes = 0) {
    disk->set_fault([](const io::MemoryDisk::Access&) -> Result<> { return Error{Code::kIo, "the machine is off"}; });
    store.reset();
    disk->set_fault(nullptr);
    disk->crash(kept_bytes);
  }

  StoreTag tag(const std::string& tenant = "", uint8_t retention = 0) const { return {.tenant = tenant_folder(options.folder.secret, tenant), .retention = retention}; }
  bool publish(const BlockKey& key, uint8_t retention = 0) {
    const std::string rows = rows_of(key, options.block_bytes);
    return store->publish(tag("", retention), key, std::as_bytes(std::span(rows)));
  }
  // Publishes and writes; returns how many are then known.
  size_t put(std::span<const BlockKey> chain, uint8_t retention = 0) {
    for (const BlockKey& key : chain) publish(key, retention);
    store->flush();
    return known(chain);
  }
  size_t known(std::span<const BlockKey> chain) {
    const BlockStore::Known known = store->find(chain);
    return known.readable ? static_cast<size_t>(known.num_blocks) : 0;
  }
  bool knows(const BlockKey& key) { return known({&key, 1}) == 1; }

  size_t get(std::span<const BlockKey> chain, Tier* tier = nullptr) {  // tier: of the last
    std::vector<Tier> tiers;
    const size_t count = fetch_all(*store, tag(), chain, &tiers, options.block_bytes);
    if (tier != nullptr && count > 0) *tier = tiers.back();
    return count;
  }
  bool gets(const BlockKey& key) { return get({&key, 1}) == 1; }

  std::vector<std::string> segments() const {
    std::vector<std::string> out;
    for (const std::string& path : disk->files()) {
      if (is_segment_path(path)) out.push_back(path);
    }
    return out;
  }
  static bool is_segment_path(const std::string& path) { return path.ends_with(".seg"); }
  uint64_t missed(CacheMiss cause) const { return store->stats().missed_blocks[static_cast<size_t>(cause)]; }
};

}  // namespace deepinfer::kv
