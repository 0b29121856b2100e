// cache_bench: the block store without a model.
//   cache_bench replay TRACE…       hit rate with room for everything, and against capacity, LRU beside the policy of the store
//   cache_bench io DIR [MIB]        write and read rate of the store beside plain O_DIRECT files in the same minute
//   cache_bench start DIR BLOCKS    how long it takes to open a store with so many blocks; lookups a second; memory of the index
#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fmt/format.h>
#include <mutex>
#include <string>
#include <thread>

#include "base/clock.h"
#include "io/linux_disk.h"
#include "kv/segment_format.h"
#include "kv/segment_store.h"
#include "replay.h"

namespace deepinfer::bench {
namespace {

int fail(const Error& error) {
  fmt::print(stderr, "cache_bench: {}\n", error.message);
  return 1;
}

double seconds_since(int64_t begin_ns) { return static_cast<double>(SteadyClock().now_ns() - begin_ns) * 1e-9; }

int run_replay(int count, char** paths) {
  for (int i = 0; i < count; ++i) {
    const Result<std::vector<TraceRequest>> trace = read_trace(paths[i]);
    if (!trace) return fail(trace.error());
    const int64_t distinct = num_distinct_blocks(*trace);
    const Result<ReplayResult> all = replay(*trace, 0, kv::EvictionPolicy::kValue);
    if (!all) return fail(all.error());
    const auto share = [](const ReplayResult& r) { return 100.0 * static_cast<double>(r.hit_tokens) / static_cast<double>(r.tokens); };
    fmt::print("{}: {} requests, {} distinct blocks\nunbounded: {} of {} tokens = {:.2f} % ({} of {} blocks)\n\n", paths[i], trace->size(), distinct,
               all->hit_tokens, all->tokens, share(*all), all->hit_blocks, all->blocks);
    fmt::print("| capacity, of distinct blocks | LRU, % of tokens | value, % of tokens | copied, % of evicted |\n|---|---|---|---|\n");
    for (const int percent : {1, 2, 5, 10, 20, 50}) {
      const int64_t capacity = distinct * percent / 100;
      const Result<ReplayResult> lru = replay(*trace, capacity, kv::EvictionPolicy::kLru), value = replay(*trace, capacity, kv::EvictionPolicy::kValue);
      if (!lru) return fail(lru.error());
      if (!value) return fail(value.error());
      const double copied = 100.0 * static_cast<double>(value->copied_blocks) / static_cast<double>(std::max<uint64_t>(1, value->evicted_blocks));
      fmt::print("| {} % ({} blocks) | {:.2f} | {:.2f} | {:.0f} |\n", percent, capacity, share(*lru), share(*value), copied);
    }
    fmt::print("\n");
  }
  return 0;
}

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

constexpr int64_t kIoBlockBytes = 113'920;  // a block of DeepSeek-V4.1-Flash

Result<std::unique_ptr<kv::SegmentStore>> open_at(std::shared_ptr<io::Disk> disk, const std::string& dir, int64_t block_bytes, uint64_t budget) {
  kv::StoreOptions options{.dir = dir, .budget_bytes = budget, .classes = {{"chat", 168 * 3600}}, .block_tokens = 128, .block_bytes = block_bytes};
  DI_TRY(options.folder, kv::open_store_folder(*disk, dir));
  return kv::SegmentStore::open(std::move(disk), std::make_shared<kv::SystemTime>(), std::move(options));
}

struct IoRates {
  double raw_write, raw_read, store_write, store_read;
};

Result<IoRates> measure_io(const std::string& dir, uint64_t num_bytes) {
  const auto disk = std::make_shared<io::LinuxDisk>();
  const auto buffer = std::make_unique<Buffer>();
  for (size_t i = 0; i < sizeof buffer->bytes; ++i) buffer->bytes[i] = static_cast<std::byte>(i * 2654435761u >> 13);
  IoRates rates{};
  DI_TRY(disk->make_folder(dir));
  const std::string raw = dir + "/raw";
  DI_TRY(rates.raw_write, raw_write(*disk, raw, num_bytes, *buffer));
  DI_TRY(rates.raw_read, raw_read(*disk, raw, num_bytes, *buffer));
  DI_TRY(disk->remove(raw));
  DI_TRY(const std::unique_ptr<kv::SegmentStore> store, open_at(disk, dir + "/cache", kIoBlockBytes, num_bytes * 4));
  std::vector<kv::BlockKey> keys;
  for (uint64_t i = 0; i < num_bytes / static_cast<uint64_t>(kIoBlockBytes); ++i) keys.push_back(key_number(i));
  const std::span<const std::byte> rows = std::span<const std::byte>(buffer->bytes).first(static_cast<size_t>(kIoBlockBytes));
  int64_t begin = SteadyClock().now_ns();
  for (const kv::BlockKey& key : keys) {
    while (!store->publish({}, key, rows)) std::this_thread::sleep_for(std::chrono::microseconds(200));  // the backlog is full
  }
  store->flush();
  rates.store_write = static_cast<double>(keys.size()) * static_cast<double>(kIoBlockBytes) / seconds_since(begin);
  begin = SteadyClock().now_ns();
  std::mutex mu;
  std::condition_variable came;
  bool news = false;
  const auto fetch = store->fetch(keys, [&] {
    const std::lock_guard lock(mu);
    news = true;
    came.notify_one();
  });
  size_t count = 0;
  for (;;) {
    const kv::BlockFetch::State state = fetch->state();
    if (state == kv::BlockFetch::State::kEnded) break;
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
  rates.store_read = static_cast<double>(count) * static_cast<double>(kIoBlockBytes) / seconds_since(begin);
  return rates;
}

int run_io(const std::string& dir, uint64_t mib) {
  const std::string own = dir + "/cache_bench_io";
  const Result<IoRates> rates = measure_io(own, mib << 20);
  std::error_code ignored;
  std::filesystem::remove_all(own, ignored);
  if (!rates) return fail(rates.error());
  fmt::print("{} MiB, blocks of {} bytes, GB/s\n| | plain O_DIRECT file | store | share |\n|---|---|---|---|\n", mib, kIoBlockBytes);
  fmt::print("| write | {:.2f} | {:.2f} | {:.0f} % |\n", rates->raw_write / 1e9, rates->store_write / 1e9, 100 * rates->store_write / rates->raw_write);
  fmt::print("| read | {:.2f} | {:.2f} | {:.0f} % |\n", rates->raw_read / 1e9, rates->store_read / 1e9, 100 * rates->store_read / rates->raw_read);
  return 0;
}

// Segments with headers and footers and holes for rows: what a start reads is all there, and 10 million blocks fit a small disk.
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

int run_start(const std::string& dir, uint64_t num_blocks) {
  const std::string own = dir + "/cache_bench_start";
  const auto disk = std::make_shared<io::LinuxDisk>();
  const auto measure = [&]() -> Result<> {
    DI_TRY(kv::open_store_folder(*disk, own));
    DI_TRY(make_sparse_segments(*disk, own, num_blocks));
    const int64_t begin = SteadyClock().now_ns();
    DI_TRY(const std::unique_ptr<kv::SegmentStore> store, open_at(disk, own, kIoBlockBytes, uint64_t{1} << 50));
    const double open_s = seconds_since(begin);
    const CacheStats stats = store->stats();
    std::vector<kv::BlockKey> keys;
    for (uint64_t i = 0; i < 1'000'000; ++i) keys.push_back(key_number(i * 7919 % num_blocks));
    const int64_t lookups = SteadyClock().now_ns();
    const int32_t found = store->find(keys).num_blocks;
    fmt::print("{} blocks in {} segments: open {:.2f} s, {:.1f} bytes of index a block, {:.2f} M lookups/s ({} found)\n", stats.num_blocks, stats.num_segments,
               open_s, static_cast<double>(stats.index_bytes) / static_cast<double>(stats.num_blocks), static_cast<double>(keys.size()) / seconds_since(lookups) / 1e6, found);
    return {};
  };
  const Result<> done = measure();
  std::error_code ignored;
  std::filesystem::remove_all(own, ignored);
  return done ? 0 : fail(done.error());
}

int usage() {
  std::fputs("usage: cache_bench replay TRACE… | io DIR [MIB] | start DIR BLOCKS\n", stderr);
  return 2;
}

int run(int argc, char** argv) {
  const std::string what = argc > 2 ? argv[1] : "";
  if (what == "replay") return run_replay(argc - 2, argv + 2);
  if (what == "io") return run_io(argv[2], argc > 3 ? std::strtoull(argv[3], nullptr, 10) : 1024);
  if (what == "start" && argc > 3) return run_start(argv[2], std::strtoull(argv[3], nullptr, 10));
  return usage();
}

}  // namespace
}  // namespace deepinfer::bench

int main(int argc, char** argv) { return deepinfer::bench::run(argc, argv); }
