// engine/block_loader.h: between the block store and the pool. A request whose prompt continues in the store is held back while its blocks are
// fetched, for as long as that is cheaper than computing them; what has arrived goes into the pool under its key, where the scheduler finds it
// like any other block. Late, short or damaged blocks are simply not there. What the store does not know is first asked for in the index that
// processes share, if there is one. Also hands newly filled blocks to the store.
// Engine thread only. A copy of at most kCopyBytes is made between two steps, so that running sequences do not stutter.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/clock.h"
#include "engine/request_state.h"
#include "kv/block_pool.h"
#include "kv/block_store.h"
#include "model/model.h"

namespace deepinfer::engine {

// How many blocks to fetch, and how long to wait for them. Pure.
struct FetchPrice {
  int64_t block_tokens;      // that a fetched block saves
  int64_t block_bytes;       // that it reads
  double seconds_per_token;  // of prefill, as measured; 0: unknown
};
// bytes_per_s: of fetches from where each block of a chain lies, as measured; 0: unknown. The beginning that saves the most time: blocks that
// come slowly may be worth it for those behind them. Unknown prices: try, and learn.
size_t num_worth_fetching(const FetchPrice& price, std::span<const double> bytes_per_s);
int64_t fetch_patience_ns(const FetchPrice& price, size_t num_blocks);  // until when they must have come

class BlockLoader {
 public:
  // replay: the scheduler's, since with bounded replay a prefix may be known under keys with cuts. wake: called from any thread when poll()
  // may find something new; outlives this.
  BlockLoader(kv::BlockStore& store, kv::BlockPool& pool, std::byte* arena, const model::KvLayout& layout, const sched::Replay& replay,
              const Clock& clock, std::function<void()> wake);

  // True: the request waits for its blocks and comes out of poll(). False: there is nothing to wait for.
  bool begin(RequestState& request, double seconds_per_token);
  // Takes in what has arrived; requests that wait no longer are appended to `ready`.
  void poll(std::vector<RequestState*>& ready);
  // The request no longer waits. No-op if it does not.
  void forget(const RequestState& request);
  bool waiting() const { return !loads_.empty(); }
  int64_t next_deadline_ns() const;  // of those that wait

  // A block that was filled and named in a step.
  void publish(const RequestState& request, const kv::BlockKey& key, kv::BlockId block);

  // A sequence ended in a fault: what it stored is not to be trusted.
  void retract(std::span<const kv::BlockKey> keys) { store_.retract(keys); }

  static constexpr int64_t kCopyBytes = int64_t{32} << 20;
  static constexpr int64_t kLookupPatienceNs = 50'000'000;  // for the shared index; one nearby answers within a millisecond

 private:
  struct Source {
    bool in_pool;
    kv::BlockStore::Known stored;
    bool can_be_fetched() const { return stored.num_blocks == 1 && stored.readable; }
  };
  struct Load {
    RequestState* request;
    double seconds_per_token;                 // of prefill
    std::unique_ptr<kv::BlockLookup> lookup;  // first; null: over, or never begun
    size_t num_known = 0;                     // blocks of the chain when it began
    std::unique_ptr<kv::BlockFetch> fetch;    // then; null: there is nothing to fetch
    std::vector<kv::BlockKey> chain;          // from the prompt's beginning
    std::vector<Source> sources;              // of each
    size_t next = 0;                          // index in the chain of the block that comes next
    int64_t deadline_ns = 0;
  };
  bool take(Load& load, int64_t& budget);  // true: it is over
  int32_t use(std::span<const kv::BlockKey> chain, uint8_t retention);
  struct Chain {
    std::vector<kv::BlockKey> keys;  // of what is in memory or in the store, as the scheduler will look for it
    std::vector<Source> sources;     // of each
    int64_t age_s = -1;              // of the last block
    bool has_cut = false;
  };
  Chain find_chain(const SequenceState& first);
  std::vector<kv::BlockKey> unknown_keys(const SequenceState& first, const Chain& chain) const;
  bool may_cut_before(size_t block_idx) const { return !replay_.exact && static_cast<int64_t>(block_idx) * block_tokens_ > replay_.tokens; }
  bool ask(Load& load, const Chain& chain);
  bool start_fetch(Load& load, Chain chain);
  void count_missed(CacheMiss cause, std::span<const Source> sources);
  bool look_up_is_over(Load& load);

  kv::BlockStore& store_;
  kv::BlockPool& pool_;
  std::byte* const arena_;
  const int64_t block_bytes_;
  const int32_t block_tokens_;
  const sched::Replay replay_;
  const Clock& clock_;
  const std::function<void()> wake_;
  std::vector<Load> loads_;
};

}  // namespace deepinfer::engine
