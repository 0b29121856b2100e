#include "apps/measure_cache.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <fmt/format.h>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "io/linux_disk.h"
#include "kv/segment_format.h"
#include "kv/segment_store.h"

namespace deepinfer::apps {
namespace {

double seconds_since(int64_t begin_ns) { return static_cast<double>(SteadyClock().now_ns() - begin_ns) * 1e-9; }

kv::BlockKey key_number(uint64_t number) { return blake2b_256(std::as_bytes(std::span(&number, 1))); }

struct alignas(io::kDiskPage) Buffer {
  std::byte bytes[4u << 20];
};

Result<double> raw_write(io::Disk& disk, const std::string& path, uint64_t num_bytes, const Buffer& buffer) {
  DI_TRY(const std::unique_ptr<io::File> file, disk.open(path, io::Disk::Mode::kCreateDirect));
  const int64_t begin = SteadyClock().now_ns();
  const std::span<const std::byte> piece = buffer.bytes;
  for (uint64_t at = 0; at < num_bytes; at += piece.size()) DI_TRY(file->write(at, {&piece, 1}));
  DI_TRY(file->sync());
  return static_cast<double>(num_bytes) / seconds_since(begin);
}

Result<double> raw_read(io::Disk& disk, const std::string& path, uint64_t num_bytes, Buffer& buffer) {
  DI_TRY(const std::unique_ptr<io::File> file, disk.open(path, io::Disk::Mode::kReadDirect));
  const int64_t begin = SteadyClock().now_ns();
  for (uint64_t at = 0; at < num_bytes; at += sizeof buffer.bytes) DI_TRY(file->read(at, buffer.bytes));
  return static_cast<double>(num_bytes) / seconds_since(begin);
}

Result<std::unique_ptr<kv::SegmentStore>> open_at(std::shared_ptr<io::Disk> disk, const std::string& dir, uint64_t budget, const std::optional<kv::RowCipher>& cipher = {}) {
  kv::StoreOptions options{.dir = dir, .budget_bytes = budget, .classes = {{"chat", 168 * 3600}}, .block_tokens = 128, .block_bytes = kIoBlockBytes, .cipher = cipher};
  DI_TRY(options.folder, kv::open_store_folder(*disk, dir));
  return kv::SegmentStore::open(std::move(disk), std::make_shared<kv::SystemTime>(), std::move(options));
}

double store_write(kv::SegmentStore& store, std::span<const kv::BlockKey> keys, const Buffer& buffer) {
  const std::span<const std::byte> rows = std::span<const std::byte>(buffer.bytes).first(static_cast<size_t>(kIoBlockBytes));
  const int64_t begin = SteadyClock().now_ns();
  for (const kv::BlockKey& key : keys) {
    while (!store.publish({}, key, rows)) std::this_thread::sleep_for(std::chrono::microseconds(200));  // the backlog is full
  }
  store.flush();
  return static_cast<double>(keys.size()) * static_cast<double>(kIoBlockBytes) / seconds_since(begin);
}

Result<double> store_read(kv::SegmentStore& store, std::span<const kv::BlockKey> keys) {
  const int64_t begin = SteadyClock().now_ns();
  std::mutex mu;
  std::condition_variable came;
  bool news = false;
  const auto fetch = store.fetch({}, keys, [&] {
    const std::lock_guard lock(mu);
    news = true;
    came.notify_one();
  });
  size_t count = 0;
  for (kv::BlockFetch::State state = fetch->state(); state != kv::BlockFetch::State::kEnded; state = fetch->state()) {
    if (state == kv::BlockFetch::State::kReady) {
      fetch->pop();
      count += 1;
      continue;
    }
    std::unique_lock lock(mu);
    came.wait_for(lock, std::chrono::milliseconds(20), [&] { return news; });
    news = false;
  }
  if (count != keys.size()) return Error{Code::kInternal, fmt::format("{} of {} blocks came back", count, keys.size())};
  return static_cast<double>(count) * static_cast<double>(kIoBlockBytes) / seconds_since(begin);
}

Result<> make_sparse_segments(io::Disk& disk, const std::string& dir, uint64_t num_blocks) {
  constexpr uint64_t kPerSegment = 585, kLength = kIoBlockBytes;  // 64 MiB
  kv::SegmentHeader header{.model = {}, .tenant = {}, .retention_class = "chat", .writer = 77, .block_tokens = 128};
  header.bucket_unix_s = kv::SystemTime().wall_s();
  header.expires_unix_s = header.bucket_unix_s + 168 * 3600;
  const std::string folder = dir + "/" + kv::folder_name(header.model) + "/" + kv::folder_name(header.tenant);
  DI_TRY(disk.make_folder(folder));
  for (uint64_t first = 0; first < num_blocks; first += kPerSegment) {
    header.sequence += 1;
    std::vector<kv::FooterEntry> entries;
    uint64_t page = 1;
    for (uint64_t i = first; i < std::min(num_blocks, first + kPerSegment); ++i) {
      entries.push_back({.key = key_number(i), .page = static_cast<uint32_t>(page), .length = kLength});
      page += kv::record_pages(kLength);
    }
    std::array<std::byte, kv::kSegmentHeaderBytes> head;
    kv::encode_segment_header(header, head);
    const std::vector<std::byte> footer = kv::encode_footer(entries, page);
    DI_TRY(const std::unique_ptr<io::File> file, disk.open(folder + "/" + kv::segment_name(header), io::Disk::Mode::kCreate));
    const std::span<const std::byte> head_piece = head, footer_piece = footer;
    DI_TRY(file->write(0, {&head_piece, 1}));
    DI_TRY(file->write(page * io::kDiskPage, {&footer_piece, 1}));
  }
  return {};
}

}  // namespace

ScratchFolder::~ScratchFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

Result<CacheIoResult> measure_cache_io(const std::string& dir, uint64_t num_bytes) {
  const ScratchFolder own(dir + "/deepinfer-bench-io");
  const auto disk = std::make_shared<io::LinuxDisk>();
  const auto buffer = std::make_unique<Buffer>();
  for (size_t i = 0; i < sizeof buffer->bytes; ++i) buffer->bytes[i] = static_cast<std::byte>(i * 2654435761u >> 13);
  CacheIoResult result;
  DI_TRY(disk->make_folder(own.path()));
  const std::string raw = own.path() + "/raw";
  DI_TRY(result.raw_write, raw_write(*disk, raw, num_bytes, *buffer));
  DI_TRY(result.raw_read, raw_read(*disk, raw, num_bytes, *buffer));
  DI_TRY(disk->remove(raw));
  std::vector<kv::BlockKey> keys;
  for (uint64_t i = 0; i < std::max<uint64_t>(1, num_bytes / static_cast<uint64_t>(kIoBlockBytes)); ++i) keys.push_back(key_number(i));
  for (const bool sealed : {false, true}) {
    const ScratchFolder cache(own.path() + "/cache");
    std::optional<kv::RowCipher> cipher;
    if (sealed) cipher.emplace(random_256());
    DI_TRY(const std::unique_ptr<kv::SegmentStore> store, open_at(disk, cache.path(), num_bytes * 4, cipher));
    (sealed ? result.sealed_write : result.store_write) = store_write(*store, keys, *buffer);
    DI_TRY((sealed ? result.sealed_read : result.store_read), store_read(*store, keys));
  }
  return result;
}

Result<CacheStartResult> measure_cache_start(const std::string& dir, uint64_t num_blocks) {
  const ScratchFolder own(dir + "/deepinfer-bench-start");
  const auto disk = std::make_shared<io::LinuxDisk>();
  DI_TRY(kv::open_store_folder(*disk, own.path()));
  DI_TRY(make_sparse_segments(*disk, own.path(), num_blocks));
  const int64_t begin = SteadyClock().now_ns();
  const double begin_cpu_s = process_cpu_seconds();
  DI_TRY(const std::unique_ptr<kv::SegmentStore> store, open_at(disk, own.path(), uint64_t{1} << 50));
  CacheStartResult result{.open_s = seconds_since(begin), .open_cpu_s = process_cpu_seconds() - begin_cpu_s};
  const CacheStats stats = store->stats();
  result.num_blocks = stats.num_blocks;
  result.num_segments = stats.num_segments;
  result.index_bytes = stats.index_bytes;
  if (result.num_blocks != num_blocks) return Error{Code::kInternal, fmt::format("{} of {} blocks were found again", result.num_blocks, num_blocks)};
  std::vector<kv::BlockKey> keys;
  for (uint64_t i = 0; i < 1'000'000; ++i) keys.push_back(key_number(i * 7919 % num_blocks));
  const int64_t lookups = SteadyClock().now_ns();
  const int32_t found = store->find(keys).num_blocks;
  result.lookups_per_s = static_cast<double>(found) / seconds_since(lookups);
  return result;
}

}  // namespace deepinfer::apps
