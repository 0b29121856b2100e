// What the block store's policies and its way to the disk were decided on: hit rates of request traces against capacity, with LRU and with the
// store's policy; the rates of a disk by one request after the other, by threads and by io_uring.
// usage: cache_bench replay TRACE…
//        cache_bench disk FOLDER
#include <algorithm>
#include <cstdio>
#include <fmt/format.h>
#include <string>

#include "base/median.h"
#include "disk_ways.h"
#include "replay.h"

namespace deepinfer::bench {
namespace {

int fail(const Error& error) {
  fmt::print(stderr, "cache_bench: {}\n", error.message);
  return 1;
}

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

int run_disk(const char* folder) {
  constexpr int kRounds = 5;
  const Result<std::vector<DiskWay>> ways = measure_disk_ways(folder, uint64_t{1} << 30, kRounds);
  if (!ways) return fail(ways.error());
  fmt::print("| medians of {} rounds, GB/s | write | read |\n|---|---|---|\n", kRounds);
  for (const DiskWay& way : *ways) fmt::print("| {} | {:.2f} | {:.2f} |\n", way.name, median(way.write_bytes_per_s) / 1e9, median(way.read_bytes_per_s) / 1e9);
  return 0;
}

int run(int argc, char** argv) {
  if (argc > 2 && std::string(argv[1]) == "replay") return run_replay(argc - 2, argv + 2);
  if (argc == 3 && std::string(argv[1]) == "disk") return run_disk(argv[2]);
  std::fputs("usage: cache_bench replay TRACE…\n       cache_bench disk FOLDER\n", stderr);
  return 2;
}

}  // namespace
}  // namespace deepinfer::bench

int main(int argc, char** argv) { return deepinfer::bench::run(argc, argv); }
