// deepinfer bench cache: the figures of measure_cache.h as a table or as JSON.
#include <boost/json.hpp>
#include <cstdio>
#include <fmt/format.h>
#include <optional>
#include <vector>

#include "apps/commands.h"
#include "apps/flags.h"
#include "apps/measure_cache.h"

namespace deepinfer::apps {
namespace {

struct BenchCacheFlags {
  std::string dir;
  std::optional<uint64_t> size;
  int32_t blocks = 1'000'000;
  bool json = false;
};

void print_table(const CacheIoResult& io, const CacheStartResult& start) {
  fmt::print("blocks of {} bytes, GB/s\n\n{:<8} {:>20} {:>8} {:>8}\n", kIoBlockBytes, "", "plain O_DIRECT file", "store", "share");
  fmt::print("{:<8} {:>20.2f} {:>8.2f} {:>6.0f} %\n", "write", io.raw_write / 1e9, io.store_write / 1e9, 100 * io.store_write / io.raw_write);
  fmt::print("{:<8} {:>20.2f} {:>8.2f} {:>6.0f} %\n\n", "read", io.raw_read / 1e9, io.store_read / 1e9, 100 * io.store_read / io.raw_read);
  fmt::print("{} blocks in {} segments: opened in {:.2f} s ({:.2f} s of CPU), {:.1f} bytes of index a block, {:.2f} M lookups/s\n", start.num_blocks, start.num_segments,
             start.open_s, start.open_cpu_s, static_cast<double>(start.index_bytes) / static_cast<double>(start.num_blocks), start.lookups_per_s / 1e6);
}

void print_json(const CacheIoResult& io, const CacheStartResult& start) {
  const boost::json::object out{
      {"block_bytes", kIoBlockBytes},
      {"bytes_per_s", {{"raw_write", io.raw_write}, {"raw_read", io.raw_read}, {"store_write", io.store_write}, {"store_read", io.store_read}}},
      {"start", {{"blocks", start.num_blocks}, {"segments", start.num_segments}, {"index_bytes", start.index_bytes}, {"open_s", start.open_s},
                 {"open_cpu_s", start.open_cpu_s}, {"lookups_per_s", start.lookups_per_s}}}};
  std::puts(boost::json::serialize(out).c_str());
}

Result<> run_bench_cache(const BenchCacheFlags& flags) {
  DI_TRY(const CacheIoResult io, measure_cache_io(flags.dir, flags.size.value_or(uint64_t{1} << 30)));
  DI_TRY(const CacheStartResult start, measure_cache_start(flags.dir, static_cast<uint64_t>(flags.blocks)));
  flags.json ? print_json(io, start) : print_table(io, start);
  return {};
}

}  // namespace

Command add_bench_cache(CLI::App& bench) {
  CLI::App* app = bench.add_subcommand("cache", "Measures the block store next to the disk it is on, and how fast a store of many blocks opens.");
  app->footer("Example:\n  deepinfer bench cache /var/cache --size 4GiB --blocks 10000000");
  auto flags = std::make_shared<BenchCacheFlags>();
  Flags add(*app);
  add.text("DIR", flags->dir, "DIR", "a directory on the disk to be measured; what is written there is removed again")->required();
  add.size("--size", flags->size, "bytes that are written and read", "1GiB");
  add.number("--blocks", flags->blocks, 1, 100'000'000, "N", "blocks of the store that is opened");
  add.toggle("--json", flags->json, "prints JSON");
  return {app, [flags] {
            const Result<> done = run_bench_cache(*flags);
            return done ? kExitDone : report(done.error());
          }};
}

}  // namespace deepinfer::apps
