#include "engine/block_loader.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace deepinfer::engine {
namespace {

constexpr int64_t kMs = 1'000'000;
constexpr int64_t kShortestPatienceNs = 50 * kMs, kLongestPatienceNs = 10'000 * kMs;

}  // namespace

bool worth_fetching(const FetchPrice& price) {
  if (price.num_tokens <= 0) return false;
  if (price.seconds_per_token <= 0 || price.bytes_per_s <= 0) return true;
  return static_cast<double>(price.num_bytes) / price.bytes_per_s < static_cast<double>(price.num_tokens) * price.seconds_per_token;
}

// As long as computing would have taken: then at the worst everything takes twice as long.
int64_t fetch_patience_ns(const FetchPrice& price) {
  if (price.seconds_per_token <= 0) return kLongestPatienceNs;
  const double seconds = std::min(static_cast<double>(price.num_tokens) * price.seconds_per_token, 10.0);
  return std::clamp(static_cast<int64_t>(seconds * 1e9), kShortestPatienceNs, kLongestPatienceNs);
}

BlockLoader::BlockLoader(kv::BlockStore& store, kv::BlockPool& pool, std::byte* arena, const model::KvLayout& layout, const Clock& clock,
                         std::function<void()> wake)
    : store_(store), pool_(pool), arena_(arena), block_bytes_(layout.block_bytes), block_tokens_(layout.block_tokens), clock_(clock), wake_(std::move(wake)) {}

// The prompt's full blocks but the one of its last token, which is computed in any case.
std::span<const kv::BlockKey> BlockLoader::findable(const RequestState& request) const {
  const SequenceState& first = request.choices.front();
  const auto count = std::min(first.keys.size(), static_cast<size_t>((first.num_prompt_tokens - 1) / block_tokens_));
  return std::span(first.keys).first(count);
}

bool BlockLoader::begin(RequestState& request, double seconds_per_token) {
  const std::span<const kv::BlockKey> keys = findable(request);
  if (keys.empty()) return false;
  // Asked for the whole chain, also where it is in memory: what is used must not look forgotten on disk.
  const kv::BlockStore::Known known = store_.find(keys);
  const auto in_pool = static_cast<size_t>(std::find_if(keys.begin(), keys.end(), [&](const kv::BlockKey& key) { return !pool_.contains(key); }) - keys.begin());
  auto end = static_cast<size_t>(known.num_blocks);
  if (end >= in_pool && known.num_blocks > 0) request.match_age_s = static_cast<int32_t>(std::min<int64_t>(known.age_s, INT32_MAX));
  if (end < keys.size() && in_pool < keys.size()) store_.count_missed(CacheMiss::kAbsent, static_cast<int64_t>(keys.size() - std::max(end, in_pool)));
  // Never more than the pool can hold beside what is running: it would push out its own beginning.
  end = std::min(end, in_pool + static_cast<size_t>(std::max(0, pool_.num_available() - 1)));
  if (end <= in_pool) return false;
  const auto count = static_cast<int64_t>(end - in_pool);
  const FetchPrice price{.num_tokens = count * block_tokens_, .num_bytes = count * block_bytes_, .seconds_per_token = seconds_per_token,
                         .bytes_per_s = store_.read_bytes_per_s()};
  if (!worth_fetching(price)) {
    store_.count_missed(CacheMiss::kPriced, count);
    return false;
  }
  loads_.push_back({.request = &request, .fetch = store_.fetch(keys.subspan(in_pool, end - in_pool), wake_), .next = in_pool, .first = in_pool,
                    .deadline_ns = clock_.now_ns() + fetch_patience_ns(price)});
  return true;
}

void BlockLoader::poll(std::vector<RequestState*>& ready) {
  int64_t budget = kCopyBytes;
  for (size_t i = 0; i < loads_.size();) {
    Load& load = loads_[i];
    if (!take(load, budget)) {
      ++i;
      continue;
    }
    finish(load);
    ready.push_back(load.request);
    loads_.erase(loads_.begin() + static_cast<ptrdiff_t>(i));
  }
  if (budget <= 0 && waiting()) wake_();  // there is more, after the next step
}

bool BlockLoader::take(Load& load, int64_t& budget) {
  for (;;) {
    const kv::BlockFetch::State state = load.fetch->state();
    if (state == kv::BlockFetch::State::kEnded) return true;
    if (state == kv::BlockFetch::State::kPending) {
      if (clock_.now_ns() < load.deadline_ns) return false;
      load.fetch->give_up();
      return true;
    }
    if (budget <= 0) return false;
    const kv::BlockKey& key = load.request->choices.front().keys[load.next];
    if (!pool_.contains(key)) {  // else somebody computed it meanwhile
      const kv::BlockFetch::Block from = load.fetch->front();
      const kv::BlockId block = pool_.allocate();
      if (block == kv::kNoBlock) return true;  // the pool is full of running sequences: what has come has to do
      CHECK(from.rows.size() == static_cast<size_t>(block_bytes_));
      std::memcpy(arena_ + block * block_bytes_, from.rows.data(), from.rows.size());
      const kv::BlockId named = pool_.publish(block, key);
      CHECK(named == block);
      pool_.release(block);
      (from.tier == kv::Tier::kShared ? load.request->num_shared_blocks : load.request->num_disk_blocks) += 1;
      budget -= block_bytes_;
    }
    load.fetch->pop();
    load.next += 1;
  }
}

// Puts the chain in the order in which it may be evicted: from its end.
void BlockLoader::finish(const Load& load) {
  const std::span<const kv::BlockKey> keys = load.request->choices.front().keys;
  std::vector<kv::BlockId> blocks;
  for (size_t i = 0; i < load.next; ++i) {
    const kv::BlockId block = pool_.acquire(keys[i]);
    if (block == kv::kNoBlock) break;
    blocks.push_back(block);
  }
  for (; !blocks.empty(); blocks.pop_back()) pool_.release(blocks.back());
}

void BlockLoader::forget(const RequestState& request) {
  std::erase_if(loads_, [&](const Load& load) { return load.request == &request; });
}

int64_t BlockLoader::next_deadline_ns() const {
  int64_t next = INT64_MAX;
  for (const Load& load : loads_) next = std::min(next, load.deadline_ns);
  return next;
}

void BlockLoader::publish(const RequestState& request, const kv::BlockKey& key, kv::BlockId block) {
  store_.publish(request.store_tag, key, {arena_ + block * block_bytes_, static_cast<size_t>(block_bytes_)});
}

}  // namespace deepinfer::engine
