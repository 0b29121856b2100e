// deepinfer bench cache: the figures of measure_cache.h and measure_hit.h as tables or as JSON.
#include <boost/json.hpp>
#include <cstdio>
#include <fmt/format.h>
#include <optional>
#include <vector>

#include "apps/commands.h"
#include "apps/flags.h"
#include "apps/measure_cache.h"
#include "apps/measure_hit.h"
#include "base/median.h"

namespace deepinfer::apps {
namespace {

struct BenchCacheFlags {
  std::string dir;
  std::optional<uint64_t> size;
  int32_t blocks = 1'000'000, rounds = 5, tokens = 4000;
  ModelFlags model;
  bool json = false;
};

struct CacheReport {
  std::vector<CacheIoResult> io;  // a round each
  CacheStartResult start;
  std::optional<StoredHitResult> hits;
};

using Rate = double CacheIoResult::*;

double median_rate(const CacheReport& report, Rate rate) {
  std::vector<double> values;
  for (const CacheIoResult& round : report.io) values.push_back(round.*rate);
  return median(std::move(values));
}

// Of the same round: what falls on one falls on the other.
double median_share(const CacheReport& report, Rate rate, Rate of) {
  std::vector<double> values;
  for (const CacheIoResult& round : report.io) values.push_back(round.*rate / (round.*of));
  return median(std::move(values));
}

void print_io(const CacheReport& report) {
  const auto row = [&](const char* name, Rate raw, Rate store, Rate sealed) {
    fmt::print("{:<8} {:>20.2f} {:>8.2f} {:>6.0f} % {:>10.2f} {:>6.0f} %\n", name, median_rate(report, raw) / 1e9, median_rate(report, store) / 1e9,
               100 * median_share(report, store, raw), median_rate(report, sealed) / 1e9, 100 * median_share(report, sealed, raw));
  };
  fmt::print("blocks of {} bytes, GB/s, medians of {} rounds\n\n{:<8} {:>20} {:>8} {:>8} {:>10} {:>8}\n", kIoBlockBytes, report.io.size(), "", "plain O_DIRECT file", "store",
             "share", "encrypted", "share");
  row("write", &CacheIoResult::raw_write, &CacheIoResult::store_write, &CacheIoResult::sealed_write);
  row("read", &CacheIoResult::raw_read, &CacheIoResult::store_read, &CacheIoResult::sealed_read);
}

void print_hits(const StoredHitResult& hits) {
  fmt::print("\nfirst token of a prompt of {} tokens, medians of {} rounds\n\n{:<28} {:>9} {:>8}  cached tokens: memory, disk, shared\n", hits.prompt_tokens, hits.cold.seconds.size(), "",
             "ms", "x cold");
  const auto row = [&](const char* name, const StoredHitResult::Case& one) {
    fmt::print("{:<28} {:>9.1f} {:>8.1f}  {}, {}, {}\n", name, one.median_s * 1e3, hits.cold.median_s / one.median_s, one.ram_tokens, one.disk_tokens, one.shared_tokens);
  };
  row("cold", hits.cold);
  row("memory", hits.memory);
  row("disk after a restart", hits.restart);
  row("another process's segment", hits.other);
}

void print_tables(const CacheReport& report) {
  print_io(report);
  const CacheStartResult& start = report.start;
  fmt::print("\n{} blocks in {} segments: opened in {:.2f} s ({:.2f} s of CPU), {:.1f} bytes of index a block, {:.2f} M lookups/s\n", start.num_blocks, start.num_segments,
             start.open_s, start.open_cpu_s, static_cast<double>(start.index_bytes) / static_cast<double>(start.num_blocks), start.lookups_per_s / 1e6);
  if (report.hits) print_hits(*report.hits);
}

boost::json::object to_json(const StoredHitResult::Case& one) {
  return {{"seconds", boost::json::value_from(one.seconds)}, {"median_s", one.median_s}, {"ram_tokens", one.ram_tokens}, {"disk_tokens", one.disk_tokens},
          {"shared_tokens", one.shared_tokens}};
}

void print_json(const CacheReport& report) {
  boost::json::array io;
  for (const CacheIoResult& round : report.io)
    io.push_back({{"raw_write", round.raw_write}, {"raw_read", round.raw_read}, {"store_write", round.store_write}, {"store_read", round.store_read},
                  {"encrypted_write", round.sealed_write}, {"encrypted_read", round.sealed_read}});
  const CacheStartResult& start = report.start;
  boost::json::object out{
      {"block_bytes", kIoBlockBytes},
      {"bytes_per_s", std::move(io)},
      {"start", {{"blocks", start.num_blocks}, {"segments", start.num_segments}, {"index_bytes", start.index_bytes}, {"open_s", start.open_s},
                 {"open_cpu_s", start.open_cpu_s}, {"lookups_per_s", start.lookups_per_s}}}};
  if (report.hits)
    out["first_token"] = {{"prompt_tokens", report.hits->prompt_tokens}, {"cold", to_json(report.hits->cold)}, {"memory", to_json(report.hits->memory)},
                          {"restart", to_json(report.hits->restart)}, {"other_process", to_json(report.hits->other)}};
  std::puts(boost::json::serialize(out).c_str());
}

Result<CacheReport> run_bench_cache(const BenchCacheFlags& flags) {
  CacheReport report;
  for (int32_t round = 0; round < flags.rounds; ++round) {
    DI_TRY(const CacheIoResult io, measure_cache_io(flags.dir, flags.size.value_or(uint64_t{1} << 30)));
    report.io.push_back(io);
  }
  DI_TRY(report.start, measure_cache_start(flags.dir, static_cast<uint64_t>(flags.blocks)));
  if (!flags.model.model.empty()) {
    const ScratchFolder folder(flags.dir + "/deepinfer-bench-hits");
    DI_TRY(report.hits, measure_stored_hits(flags.model, folder.path(), flags.tokens, flags.rounds));
  }
  return report;
}

}  // namespace

Command add_bench_cache(CLI::App& bench) {
  CLI::App* app = bench.add_subcommand("cache", "Measures the block store next to the disk it is on, how fast a store of many blocks opens, and first tokens of stored prompts.");
  app->footer("Example:\n  deepinfer bench cache /var/cache --size 4GiB --blocks 10000000\n  deepinfer bench cache /var/cache --model model.gguf");
  auto flags = std::make_shared<BenchCacheFlags>();
  Flags add(*app);
  add.text("DIR", flags->dir, "DIR", "a directory on the disk to be measured; what is written there is removed again")->required();
  add.size("--size", flags->size, "bytes that are written and read", "1GiB");
  add.number("--blocks", flags->blocks, 1, 100'000'000, "N", "blocks of the store that is opened");
  add.number("--rounds", flags->rounds, 1, 1000, "N", "how often each is timed; medians count");
  add.text("--model", flags->model.model, "MODEL", "also times first tokens: computed, from memory, from disk, from another process", "none");
  add.number("--tokens", flags->tokens, 2, 1 << 28, "N", "tokens of those prompts");
  add.number("-t,--threads", flags->model.threads, 1, 1024, "N", "compute threads", "one a core");
  add.toggle("--json", flags->json, "prints JSON");
  return {app, [flags] {
            const Result<CacheReport> measured = run_bench_cache(*flags);
            if (!measured) return report(measured.error());
            flags->json ? print_json(*measured) : print_tables(*measured);
            return kExitDone;
          }};
}

}  // namespace deepinfer::apps
