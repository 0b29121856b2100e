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

BlockLoader::BlockLoader(kv::BlockStore& store, kv::BlockPool& pool, std::byte* arena, const model::KvLayout& layout, const sched::Replay& replay,
                         const Clock& clock, std::function<void()> wake)
    : store_(store),
      pool_(pool),
      arena_(arena),
      block_bytes_(layout.block_bytes),
      block_tokens_(layout.block_tokens),
      replay_(replay),
      clock_(clock),
      wake_(std::move(wake)) {}

// Walks the prompt's full blocks, but the one of its last token, which is computed in any case. Where the chain ends and windows may begin anew,
// it is tried with a cut, as Scheduler::find_block() does. The store is asked for all of them, also for those in memory: what is used must not
// look forgotten on disk.
BlockLoader::Chain BlockLoader::find_chain(const SequenceState& first) {
  Chain out;
  const auto size = static_cast<size_t>(block_tokens_);
  const size_t num_findable = static_cast<size_t>(first.num_prompt_tokens - 1) / size;
  bool all_in_pool = true, all_stored = true;
  const auto take = [&](const kv::BlockKey& key) {
    const kv::BlockStore::Known known = store_.find({&key, 1});
    const std::optional<int64_t> age_in_pool = pool_.age_s(key);
    const bool stored = known.num_blocks == 1;
    if (!age_in_pool && !stored) return false;
    out.age_s = age_in_pool.value_or(known.age_s);
    all_in_pool = all_in_pool && age_in_pool;
    if (all_in_pool) {
      out.first_missing = out.keys.size() + 1;
      out.end_stored = out.first_missing;
    } else {
      out.num_unreadable += !age_in_pool && !known.readable;
      all_stored = all_stored && stored && known.readable;
      if (all_stored) out.end_stored = out.keys.size() + 1;
    }
    out.keys.push_back(key);
    return true;
  };
  for (size_t i = 0; i < num_findable; ++i) {
    const kv::BlockKey parent = i == 0 ? first.root : out.keys.back();
    if (take(out.has_cut ? first.key_after(parent, i, block_tokens_) : first.keys[i])) continue;
    if (!may_cut_before(i) || !take(first.key_after(kv::replay_key(parent), i, block_tokens_))) break;
    out.has_cut = true;
  }
  return out;
}

// Under which keys the rest of the prompt's full blocks may be known to others: without a cut from here on, and with one right here.
std::vector<kv::BlockKey> BlockLoader::unknown_keys(const SequenceState& first, const Chain& chain) const {
  const auto size = static_cast<size_t>(block_tokens_);
  const size_t begin = chain.keys.size(), num_findable = static_cast<size_t>(first.num_prompt_tokens - 1) / size;
  std::vector<kv::BlockKey> keys;
  kv::BlockKey whole = begin == 0 ? first.root : chain.keys.back(), cut = kv::replay_key(whole);
  for (size_t i = begin; i < num_findable; ++i) {
    whole = chain.has_cut ? first.key_after(whole, i, block_tokens_) : first.keys[i];
    keys.push_back(whole);
    if (!may_cut_before(begin)) continue;
    cut = first.key_after(cut, i, block_tokens_);
    keys.push_back(cut);
  }
  return keys;
}

bool BlockLoader::begin(RequestState& request, double seconds_per_token) {
  Load load{.request = &request, .seconds_per_token = seconds_per_token};
  Chain chain = find_chain(request.choices.front());
  if (!ask(load, chain) && !start_fetch(load, std::move(chain))) return false;
  loads_.push_back(std::move(load));
  return true;
}

// False: all is known, or there is nobody to ask.
bool BlockLoader::ask(Load& load, const Chain& chain) {
  if (!store_.can_look_up()) return false;
  std::vector<kv::BlockKey> keys = unknown_keys(load.request->choices.front(), chain);
  if (keys.empty()) return false;
  load.lookup = store_.look_up(std::move(keys), wake_);
  load.num_known = chain.keys.size();
  load.deadline_ns = clock_.now_ns() + kLookupPatienceNs;
  return load.lookup != nullptr;
}

bool BlockLoader::look_up_is_over(Load& load) {
  const bool done = load.lookup->done();
  if (!done && clock_.now_ns() < load.deadline_ns) return false;
  load.lookup.reset();
  Chain chain = find_chain(load.request->choices.front());
  // Where the chain now ends it may go on with a cut, under keys that could not be named before.
  const bool grew = chain.keys.size() > load.num_known;
  if (done && grew && may_cut_before(chain.keys.size()) && ask(load, chain)) return false;
  start_fetch(load, std::move(chain));
  return true;
}

// False: there is nothing to wait for.
bool BlockLoader::start_fetch(Load& load, Chain chain) {
  RequestState& request = *load.request;
  const SequenceState& first = request.choices.front();
  const auto num_findable = static_cast<size_t>((first.num_prompt_tokens - 1) / block_tokens_);
  request.match = {.tokens = static_cast<int32_t>(chain.keys.size()) * block_tokens_, .age_s = chain.age_s};
  if (chain.keys.size() < num_findable) store_.count_missed(CacheMiss::kAbsent, static_cast<int64_t>(num_findable - chain.keys.size()));
  // Never more than the pool can hold beside what is running: it would push out its own beginning.
  const size_t begin = chain.first_missing;
  const size_t end = std::min(chain.end_stored, begin + static_cast<size_t>(std::max(0, pool_.num_available() - 1)));
  const size_t num_busy = chain.end_stored - end + chain.num_unreadable;
  if (num_busy > 0) store_.count_missed(CacheMiss::kBusy, static_cast<int64_t>(num_busy));
  if (end <= begin) return false;
  const auto count = static_cast<int64_t>(end - begin);
  const FetchPrice price{.num_tokens = count * block_tokens_, .num_bytes = count * block_bytes_, .seconds_per_token = load.seconds_per_token,
                         .bytes_per_s = store_.read_bytes_per_s()};
  if (!worth_fetching(price)) {
    request.match.missed = CacheMiss::kPriced;
    store_.count_missed(CacheMiss::kPriced, count);
    return false;
  }
  chain.keys.resize(end);
  load.chain = std::move(chain.keys);
  load.next = begin;
  load.deadline_ns = clock_.now_ns() + fetch_patience_ns(price);
  load.fetch = store_.fetch(std::span(load.chain).subspan(begin), wake_);
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
  if (load.lookup != nullptr && !look_up_is_over(load)) return false;
  if (load.fetch == nullptr) return true;
  for (;;) {
    const kv::BlockFetch::State state = load.fetch->state();
    if (state == kv::BlockFetch::State::kPending) {
      if (clock_.now_ns() < load.deadline_ns) return false;
      load.fetch->give_up();
    }
    if (state != kv::BlockFetch::State::kReady) {
      if (load.next < load.chain.size()) load.request->match.missed = load.fetch->miss();
      return true;
    }
    if (budget <= 0) return false;
    const kv::BlockKey& key = load.chain[load.next];
    if (!pool_.contains(key)) {  // else somebody computed it meanwhile
      const kv::BlockFetch::Block from = load.fetch->front();
      const kv::BlockId block = pool_.allocate();
      if (block == kv::kNoBlock) {  // the pool is full of running sequences: what has come has to do
        store_.count_missed(CacheMiss::kBusy, static_cast<int64_t>(load.chain.size() - load.next));
        return true;
      }
      CHECK(from.rows.size() == static_cast<size_t>(block_bytes_));
      std::memcpy(arena_ + block * block_bytes_, from.rows.data(), from.rows.size());
      const kv::BlockId named = pool_.publish(block, key, {.age_s = from.age_s, .remaining_s = from.remaining_s});
      CHECK(named == block);
      pool_.release(block, load.request->store_tag.retention);
      (from.tier == kv::Tier::kShared ? load.request->num_shared_blocks : load.request->num_disk_blocks) += 1;
      budget -= block_bytes_;
    }
    load.fetch->pop();
    load.next += 1;
  }
}

// Puts the chain in the order in which it may be evicted: from its end.
void BlockLoader::finish(const Load& load) {
  std::vector<kv::BlockId> blocks;
  for (size_t i = 0; i < load.next; ++i) {
    const kv::BlockId block = pool_.acquire(load.chain[i]);
    if (block == kv::kNoBlock) break;
    blocks.push_back(block);
  }
  for (; !blocks.empty(); blocks.pop_back()) pool_.release(blocks.back(), load.request->store_tag.retention);
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
