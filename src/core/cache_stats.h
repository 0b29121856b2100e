// core/cache_stats.h: numbers of a block store, for /metrics and reports. Counters only grow.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace deepinfer {

// Why a block that was looked for, or promised, had to be computed after all.
enum class CacheMiss : uint8_t {
  kAbsent,   // nobody stored it, or it is gone
  kLate,     // the deadline passed
  kShort,    // the file ends before the record does
  kCorrupt,  // checksum, key or authentication differ
  kIo,       // the medium said no
  kBusy,     // no thread, buffer or block of memory was free, or reads are off
  kPriced,   // computing is cheaper than fetching
};
constexpr std::array<std::string_view, 7> kCacheMissNames = {"absent", "late", "short", "corrupt", "io", "busy", "priced"};

struct CacheStats {
  bool present = false;  // there is a store
  bool read_only = false, reads_off = false;
  uint64_t hit_blocks_disk = 0, hit_blocks_shared = 0;  // fetched and verified
  std::array<uint64_t, kCacheMissNames.size()> missed_blocks{};
  uint64_t read_bytes = 0, written_bytes = 0, written_blocks = 0;
  uint64_t dropped_blocks = 0;  // not written: backlog full, no space, read-only, failed
  uint64_t evicted_blocks = 0, evicted_segments = 0, expired_segments = 0, copied_blocks = 0, vanished_segments = 0;
  uint64_t rejected_segments = 0;  // files with our name that are not ours, damaged, or of a newer version
  uint64_t write_errors = 0, clock_jumps = 0;
  uint64_t num_fetches = 0;
  double fetch_seconds = 0;  // summed over fetches, from asking to the last block
  uint64_t num_blocks = 0, num_segments = 0, index_bytes = 0;
  uint64_t used_bytes = 0, budget_bytes = 0, backlog_bytes = 0;

  struct Index {  // shared by processes, in another server
    bool present = false;
    bool off = false;              // it failed, and is not asked for a while
    uint64_t lookups = 0, found_blocks = 0;
    uint64_t wrong_places = 0;     // what it said and what lies there differ, or it made no sense
    uint64_t told_blocks = 0, dropped_blocks = 0, errors = 0;
  } index;
};

}  // namespace deepinfer
