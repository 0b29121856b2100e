// kv/segment_store.h: the block store in a directory: append-only segment files, one a (model, tenant, retention class, time bucket, writer),
// an index in memory that is rebuilt from them, two threads that write behind (one finishes records, one writes them), a few that fetch. Several processes may share the directory,
// also over a network file system: each appends to files of its own and finds the others' by looking, sooner with a shared index that says where.
// docs/formats/segment.md has the bytes.
//
// Invariants: a block can be found only after its bytes were made durable; a file is changed only at its end, by its one writer; what is
// read is compared with its key and checksum before anybody sees it; a segment past its time is never served and goes as a whole; the
// files of the directory take no more than the budget, measured as the file system counts.
// Faults: a write that fails costs the blocks of its batch; after a few in a row the store is read-only for a while and tries again. A read
// that fails, is late or differs is a miss. Reads that hang hold their thread; when they hold all, the store knows nothing until one returns.
// The alternative that lost: a file a block (LMCache and others): a million inodes, no cheap expiry, and du that nobody can predict.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "io/key_values.h"
#include "kv/block_store.h"
#include "kv/eviction.h"
#include "kv/row_cipher.h"
#include "kv/store_clock.h"
#include "kv/store_folder.h"

namespace deepinfer::kv {

struct StoreOptions {
  std::string dir;
  StoreFolder folder;                       // of that dir
  uint64_t budget_bytes = 0;                // of all files of the directory, whoever wrote them; required
  std::vector<RetentionClass> classes;      // StoreTag::retention is an index
  Digest256 model;                          // namespace_of()
  int32_t block_tokens = 0;
  int64_t block_bytes = 0;                  // of every block that is published
  uint64_t segment_bytes = 0;               // 0: a 32nd of the budget, 1 MiB to 64 MiB
  uint64_t backlog_bytes = uint64_t{64} << 20;  // of blocks that wait to be written; beyond: dropped
  uint64_t staging_bytes = uint64_t{64} << 20;  // of blocks read and not yet taken
  int32_t num_fetch_threads = 4;
  int64_t hang_ms = 5000;                   // a read that takes longer holds its thread for good, as far as we know
  std::optional<RowCipher> cipher;
  std::shared_ptr<io::KeyValues> index;     // shared by all processes that use the directory; may be null
  // For a medium that cannot append and is far away, such as object storage: each segment is collected in memory, for a few seconds at most, and
  // written at once with its footer; the directory is listed every half a minute.
  bool whole_segments = false;
  std::optional<Tier> tier;                 // all that it serves counts as this; none: what another live process wrote as shared, else as disk
  bool may_be_away = false;                 // a directory that cannot be listed is no error: it is looked for again and again
  EvictionPolicy policy = EvictionPolicy::kValue;
  bool background = true;                   // false: no threads; fetch() reads at once, flush() and maintain() are the caller's
  uint64_t writer = 0;                      // 0: drawn
  std::function<void(const std::string&)> log;  // one line, from any thread; may be null
};

class SegmentStore final : public BlockStore {
 public:
  // Reads the index of what is there. Damaged, foreign and newer files are left alone (CacheStats::rejected_segments). Errors:
  // kInvalidArgument (options), those of making the folder; a store that cannot write but read opens read-only.
  static Result<std::unique_ptr<SegmentStore>> open(std::shared_ptr<io::Disk> disk, std::shared_ptr<const TimeSource> time, StoreOptions options);
  // Writes what is queued and seals its segments, as far as the disk lets it within kStopSeconds.
  ~SegmentStore() override;
  static constexpr int kStopSeconds = 10;

  Known find(std::span<const BlockKey> chain) override;
  bool can_look_up() const override;
  std::unique_ptr<BlockLookup> look_up(std::vector<BlockKey> keys, std::function<void()> wake) override;
  std::unique_ptr<BlockFetch> fetch(const StoreTag& tag, std::span<const BlockKey> chain, std::function<void()> wake) override;
  bool publish(const StoreTag& tag, const BlockKey& key, std::span<const std::byte> rows) override;
  void retract(std::span<const BlockKey> keys) override;
  void flush() override;
  void count_missed(CacheMiss cause, Tier tier, int64_t num_blocks) override;
  CacheStats stats() const override;
  CacheStats shared_stats() const override { return {}; }

  void maintain();  // clock, expiry, others' segments, sizes, budget; the background does it every few seconds

  class Core;

 private:
  explicit SegmentStore(std::shared_ptr<Core> core) : core_(std::move(core)) {}
  std::shared_ptr<Core> core_;
};

}  // namespace deepinfer::kv
