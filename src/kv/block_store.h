// kv/block_store.h: blocks beyond this process's memory, behind one interface, however many stores there are: find what is known of a chain,
// fetch it without waiting, publish what was computed. Together with BlockPool, whose acquire() is find and pin for the blocks in memory, these are the tiers of
// the cache. Whatever goes wrong behind it costs time: a block that comes out of fetch() has the key that was asked for and the bytes
// that were published under it, or it does not come out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "core/cache_stats.h"
#include "kv/block_key.h"
#include "kv/retention.h"

namespace deepinfer::kv {

enum class Tier : uint8_t { kRam, kDisk, kShared };  // shared: written by another live process, or in a store behind the first

// Under what a block is filed, beside its key.
struct StoreTag {
  Digest256 tenant;       // tenant_folder()
  uint8_t retention = 0;  // index of a retention class
  int64_t age_s = 0;      // the rows were computed so long ago: they are kept no longer than if they had been written then
};

// Blocks of one chain on their way, in order. The consumer's side belongs to one thread; destroying it abandons the rest, whatever the
// medium does meanwhile.
class BlockFetch {
 public:
  enum class State : uint8_t {
    kPending,  // the next block is not here yet
    kReady,    // front() is a block
    kEnded,    // there are no more: all were delivered, or the next one is a miss
  };
  virtual ~BlockFetch() = default;
  virtual State state() = 0;
  struct Block {
    std::span<const std::byte> rows;  // verified, plain; until pop()
    Tier tier;
    int64_t age_s;        // since it was written, when it was asked for
    int64_t remaining_s;  // for so long it could still be found then
  };
  virtual Block front() = 0;  // only when kReady
  virtual void pop() = 0;
  virtual int32_t num_blocks() const = 0;  // asked for
  virtual CacheMiss miss() const = 0;      // when kEnded before all were delivered: why
  // The consumer goes on without the rest, which counts as missed: for the reason for which it ended, or as late if it has not.
  virtual void give_up() = 0;
};

// A question to others, on its way. Destroying it abandons it.
class BlockLookup {
 public:
  virtual ~BlockLookup() = default;
  virtual bool done() = 0;  // what they know, find() knows too from now on
};

class BlockStore {
 public:
  virtual ~BlockStore() = default;

  struct Known {
    int32_t num_blocks = 0;  // the chain's first so many are here
    // Of the last of them:
    int64_t age_s = 0;       // since it was written
    bool readable = true;    // false: reads hang, and it is no use to fetch it now
    Tier tier = Tier::kDisk;
    double bytes_per_s = 0;  // that fetches have been getting there lately; 0: nothing measured
  };
  // Thread-safe and quick (no I/O). Counts as a use of what it finds: also of blocks that are served from memory, so that a prefix
  // that never leaves memory does not look forgotten here.
  virtual Known find(std::span<const BlockKey> chain) = 0;

  // Asks other processes where they put these blocks. Null: there is nobody to ask, or not now. `wake`: as for fetch().
  virtual bool can_look_up() const = 0;  // there is somebody
  virtual std::unique_ptr<BlockLookup> look_up(std::vector<BlockKey> keys, std::function<void()> wake) = 0;

  // Starts to fetch these blocks; `tag`: under which those that come from afar are kept nearer by. `wake` is called, from any thread, whenever state() may have changed; it must not block and outlives
  // the fetch. Never null: what cannot be had ends at once.
  virtual std::unique_ptr<BlockFetch> fetch(const StoreTag& tag, std::span<const BlockKey> chain, std::function<void()> wake) = 0;

  // Takes a copy of a full block's rows, to be written later. Allocates nothing, does no I/O. False: not taken (it is here already, or
  // there is no room for it now).
  virtual bool publish(const StoreTag& tag, const BlockKey& key, std::span<const std::byte> rows) = 0;

  // These blocks came under suspicion: nobody finds them again, here or after a restart. The files that hold them go.
  virtual void retract(std::span<const BlockKey> keys) = 0;

  virtual void flush() = 0;  // returns when all that was published before is durable or dropped

  // tier: where they lie, or were looked for last.
  virtual void count_missed(CacheMiss cause, Tier tier, int64_t num_blocks) = 0;
  virtual CacheStats stats() const = 0;
  virtual CacheStats shared_stats() const = 0;  // of a second store behind the first; not present: there is none
};

}  // namespace deepinfer::kv
