#include "replay.h"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <memory>
#include <simdjson.h>
#include <unordered_set>

#include "io/memory_disk.h"
#include "kv/segment_store.h"

namespace deepinfer::bench {
namespace {

constexpr int64_t kBlockTokens = 512, kBlockBytes = 64;  // a page on disk each
constexpr int64_t kStart = 1'795'000'000;

class TraceTime final : public kv::TimeSource {
 public:
  int64_t wall_s() const override { return kStart + ms / 1000; }
  int64_t boot_ns() const override { return ms * 1'000'000; }
  int64_t ms = 0;
};

kv::BlockKey key_of(int64_t block) { return blake2b_256(std::as_bytes(std::span(&block, 1))); }

}  // namespace

Result<std::vector<TraceRequest>> read_trace(const std::string& path) {
  std::ifstream in(path);
  if (!in) return Error{Code::kIo, path + ": cannot be read"};
  std::vector<TraceRequest> trace;
  simdjson::dom::parser parser;
  for (std::string line; std::getline(in, line);) {
    simdjson::dom::element request;
    simdjson::dom::array ids;
    TraceRequest one;
    const bool good = parser.parse(line).get(request) == simdjson::SUCCESS && request["timestamp"].get(one.time_ms) == simdjson::SUCCESS &&
                      request["input_length"].get(one.input_tokens) == simdjson::SUCCESS && request["hash_ids"].get(ids) == simdjson::SUCCESS;
    if (!good) return Error{Code::kCorruption, path + ": line " + std::to_string(trace.size() + 1) + " is no request"};
    for (const simdjson::dom::element id : ids) {
      int64_t block = 0;
      if (id.get(block) != simdjson::SUCCESS) return Error{Code::kCorruption, path + ": a block id is no number"};
      one.blocks.push_back(block);
    }
    trace.push_back(std::move(one));
  }
  return trace;
}

int64_t num_distinct_blocks(const std::vector<TraceRequest>& trace) {
  std::unordered_set<int64_t> seen;
  for (const TraceRequest& request : trace) seen.insert(request.blocks.begin(), request.blocks.end());
  return static_cast<int64_t>(seen.size());
}

Result<ReplayResult> replay(const std::vector<TraceRequest>& trace, int64_t capacity_blocks, kv::EvictionPolicy policy) {
  const auto disk = std::make_shared<io::MemoryDisk>();
  const auto time = std::make_shared<TraceTime>();
  disk->set_time([time] { return time->wall_s(); });
  kv::StoreOptions options{.dir = "/cache", .classes = {{"chat", 168 * 3600}}, .block_tokens = kBlockTokens, .block_bytes = kBlockBytes};
  const auto budget = static_cast<uint64_t>(capacity_blocks) * io::kDiskPage;
  options.budget_bytes = capacity_blocks == 0 ? uint64_t{1} << 40 : budget;
  // A hundred segments or so, as a store of 200 GiB with the default size has thousands: what goes at a time is a small part.
  options.segment_bytes = capacity_blocks == 0 ? 64u << 20 : std::max<uint64_t>(budget / 128, 16 * io::kDiskPage);
  options.policy = policy;
  options.background = false;
  DI_TRY(options.folder, kv::open_store_folder(*disk, options.dir));
  DI_TRY(const std::unique_ptr<kv::SegmentStore> store, kv::SegmentStore::open(disk, time, options));
  const kv::StoreTag tag{};
  const std::byte rows[kBlockBytes]{};

  ReplayResult result;
  std::vector<kv::BlockKey> keys;
  for (const TraceRequest& request : trace) {
    time->ms = std::max(time->ms, request.time_ms);
    keys.clear();
    for (const int64_t block : request.blocks) keys.push_back(key_of(block));
    const int64_t hits = store->find(keys).num_blocks;
    result.hit_blocks += hits;
    result.blocks += static_cast<int64_t>(keys.size());
    result.hit_tokens += std::min(hits * kBlockTokens, request.input_tokens);
    result.tokens += request.input_tokens;
    for (const kv::BlockKey& key : keys) store->publish(tag, key, rows);
    store->flush();
  }
  const CacheStats stats = store->stats();
  result.copied_blocks = stats.copied_blocks;
  result.evicted_blocks = stats.evicted_blocks;
  if (stats.dropped_blocks > 0) return Error{Code::kInternal, "the store dropped blocks"};
  return result;
}

}  // namespace deepinfer::bench
