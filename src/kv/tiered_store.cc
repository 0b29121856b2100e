#include "kv/tiered_store.h"

#include <array>
#include <utility>

namespace deepinfer::kv {
namespace {

BlockStore::Known find_one(BlockStore& store, const BlockKey& key) { return store.find({&key, 1}); }

bool can_give(const BlockStore::Known& known) { return known.num_blocks > 0 && known.readable; }

// A chain in parts, one after the other, each from one store.
class TieredFetch final : public BlockFetch {
 public:
  TieredFetch(BlockStore& local, BlockStore& shared, const StoreTag& tag, std::span<const BlockKey> chain, std::function<void()> wake)
      : sides_{{{.store = local, .tier = Tier::kDisk}, {.store = shared, .tier = Tier::kShared}}}, tag_(tag), chain_(chain.begin(), chain.end()), wake_(std::move(wake)) {
    begin_part();
  }

  State state() override {
    while (part_ != nullptr) {
      const State state = part_->state();
      if (state != State::kEnded) return state;
      const bool failed = next_ < part_end_;
      miss_ = failed ? part_->miss() : CacheMiss::kAbsent;
      Side* const before = from_;
      if (failed) before->failed_at = next_;
      begin_part();
      if (failed && part_ != nullptr) before->store.count_missed(miss_, before->tier, 1);
      if (failed && part_ == nullptr) from_ = before;
    }
    return State::kEnded;
  }

  Block front() override { return part_->front(); }

  void pop() override {
    if (from_->tier == Tier::kShared) {
      const Block block = part_->front();
      StoreTag tag = tag_;
      tag.age_s = block.age_s;
      sides_[0].store.publish(tag, chain_[next_], block.rows);
    }
    part_->pop();
    next_ += 1;
  }

  int32_t num_blocks() const override { return static_cast<int32_t>(chain_.size()); }
  CacheMiss miss() const override { return miss_; }

  void give_up() override {
    if (std::exchange(gave_up_, true) || next_ == chain_.size()) return;
    if (part_ != nullptr) miss_ = CacheMiss::kLate;
    part_.reset();
    Side& side = from_ != nullptr ? *from_ : sides_[1];
    side.store.count_missed(miss_, side.tier, static_cast<int64_t>(chain_.size() - next_));
  }

 private:
  struct Side {
    BlockStore& store;
    Tier tier;
    size_t failed_at = kNever;  // the last block that it was to give and did not
  };
  static constexpr size_t kNever = SIZE_MAX;

  // From where the next block is, and as many as follow there. The local store first, unless it has failed: then what both have comes from the
  // other, or each block of a dead disk would be tried in turn. Nobody has it: part_ is null.
  void begin_part() {
    part_.reset();
    from_ = nullptr;
    const bool local_first = sides_[0].failed_at == kNever || sides_[1].failed_at != kNever;
    Side &first = sides_[local_first ? 0 : 1], &second = sides_[local_first ? 1 : 0];
    size_t end = next_;
    while (end < chain_.size() && gives(first, end)) ++end;
    Side& from = end > next_ ? first : second;
    if (end == next_) {
      while (end < chain_.size() && !gives(first, end) && gives(second, end)) ++end;
    }
    if (end == next_) return;
    from_ = &from;
    part_end_ = end;
    part_ = from.store.fetch(tag_, std::span(chain_).subspan(next_, end - next_), wake_);
  }

  bool gives(const Side& side, size_t i) const { return side.failed_at != i && can_give(find_one(side.store, chain_[i])); }

  std::array<Side, 2> sides_;  // local, shared
  const StoreTag tag_;
  const std::vector<BlockKey> chain_;
  const std::function<void()> wake_;
  std::unique_ptr<BlockFetch> part_;  // null: there is none to wait for
  Side* from_ = nullptr;              // of part_; or who failed to give the next block, which nobody else has
  size_t next_ = 0, part_end_ = 0;    // indices in the chain
  CacheMiss miss_ = CacheMiss::kAbsent;
  bool gave_up_ = false;
};

}  // namespace

// Asks both for all: what one machine serves from its own disk is in use, and must not look forgotten where others share it.
BlockStore::Known TieredStore::find(std::span<const BlockKey> chain) {
  Known out;
  for (const BlockKey& key : chain) {
    const Known near = find_one(*local_, key), far = find_one(*shared_, key);
    const Known& best = can_give(near) || (near.num_blocks > 0 && !can_give(far)) ? near : far;
    if (best.num_blocks == 0) break;
    const int32_t num_blocks = out.num_blocks + 1;
    out = best;
    out.num_blocks = num_blocks;
  }
  return out;
}

std::unique_ptr<BlockLookup> TieredStore::look_up(std::vector<BlockKey> keys, std::function<void()> wake) {
  return shared_->look_up(std::move(keys), std::move(wake));
}

std::unique_ptr<BlockFetch> TieredStore::fetch(const StoreTag& tag, std::span<const BlockKey> chain, std::function<void()> wake) {
  return std::make_unique<TieredFetch>(*local_, *shared_, tag, chain, std::move(wake));
}

bool TieredStore::publish(const StoreTag& tag, const BlockKey& key, std::span<const std::byte> rows) {
  const bool near = local_->publish(tag, key, rows), far = shared_->publish(tag, key, rows);
  return near || far;
}

void TieredStore::retract(std::span<const BlockKey> keys) {
  local_->retract(keys);
  shared_->retract(keys);
}

void TieredStore::flush() {
  local_->flush();
  shared_->flush();
}

void TieredStore::count_missed(CacheMiss cause, Tier tier, int64_t num_blocks) {
  (tier == Tier::kShared ? shared_ : local_)->count_missed(cause, tier, num_blocks);
}

}  // namespace deepinfer::kv
