#include "engine/block_loader.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace deepinfer::engine {
namespace {

constexpr int64_t kMs = 1'000'000;
constexpr int64_t kShortestPatienceNs = 50 * kMs, kLongestPatienceNs = 10'000 * kMs;

}  // namespace

size_t num_worth_fetching(const FetchPrice& price, std::span<const double> bytes_per_s) {
  if (price.seconds_per_token <= 0) return bytes_per_s.size();
  const double compute_s = static_cast<double>(price.block_tokens) * price.seconds_per_token;
  size_t best = 0;
  double saved_s = 0, most_saved_s = 0;
  for (size_t i = 0; i < bytes_per_s.size(); ++i) {
    saved_s += compute_s - (bytes_per_s[i] > 0 ? static_cast<double>(price.block_bytes) / bytes_per_s[i] : 0);
    if (saved_s <= most_saved_s) continue;
    most_saved_s = saved_s;
    best = i + 1;
  }
  return best;
}

// As long as computing would have taken: then at the worst everything takes twice as long.
int64_t fetch_patience_ns(const FetchPrice& price, size_t num_blocks) {
  if (price.seconds_per_token <= 0) return kLongestPatienceNs;
  const double seconds = std::min(static_cast<double>(num_blocks) * static_cast<double>(price.block_tokens) * price.seconds_per_token, 10.0);
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
  const auto take = [&](const kv::BlockKey& key) {
    const kv::BlockStore::Known known = store_.find({&key, 1});
    const std::optional<int64_t> age_in_pool = pool_.age_s(key);
    if (!age_in_pool && known.num_blocks == 0) return false;
    out.age_s = age_in_pool.value_or(known.age_s);
    out.keys.push_back(key);
    out.sources.push_back({.in_pool = age_in_pool.has_value(), .stored = known});
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
  if (chain.keys.size() < num_findable) store_.count_missed(CacheMiss::kAbsent, kv::Tier::kShared, static_cast<int64_t>(num_findable - chain.keys.size()));
  const std::span<const Source> sources(chain.sources);
  size_t begin = 0;
  while (begin < sources.size() && sources[begin].in_pool) ++begin;
  std::vector<double> bytes_per_s;
  size_t end = begin;
  for (; end < sources.size() && sources[end].can_be_fetched(); ++end) bytes_per_s.push_back(sources[end].stored.bytes_per_s);
  count_missed(CacheMiss::kBusy, sources.subspan(end));
  // Never more than the pool can hold beside what is running and what it has of the chain: it would push out its own beginning.
  const size_t num_fit = std::min(end - begin, static_cast<size_t>(std::max(0, pool_.num_available() - 1 - use(chain.keys, request.store_tag.retention))));
  count_missed(CacheMiss::kBusy, sources.subspan(begin + num_fit, end - begin - num_fit));
  const FetchPrice price{.block_tokens = block_tokens_, .block_bytes = block_bytes_, .seconds_per_token = load.seconds_per_token};
  const size_t count = num_worth_fetching(price, std::span(bytes_per_s).first(num_fit));
  if (count < num_fit) request.match.missed = CacheMiss::kPriced;
  count_missed(CacheMiss::kPriced, sources.subspan(begin + count, num_fit - count));
  if (count == 0) return false;
  chain.keys.resize(begin + count);
  chain.sources.resize(begin + count);
  load.chain = std::move(chain.keys);
  load.sources = std::move(chain.sources);
  load.next = begin;
  load.deadline_ns = clock_.now_ns() + fetch_patience_ns(price, count);
  load.fetch = store_.fetch(request.store_tag, std::span(load.chain).subspan(begin), wake_);
  return true;
}

// Makes the chain's blocks, as far as they are in memory, the last ones to be evicted, from its end on. Returns how many of them nobody else uses.
int32_t BlockLoader::use(std::span<const kv::BlockKey> chain, uint8_t retention) {
  int32_t num_cached = 0;
  std::vector<kv::BlockId> blocks;
  for (const kv::BlockKey& key : chain) {
    const kv::BlockId block = pool_.acquire(key);
    if (block == kv::kNoBlock) continue;
    num_cached += pool_.num_references(block) == 1;
    blocks.push_back(block);
  }
  for (; !blocks.empty(); blocks.pop_back()) pool_.release(blocks.back(), retention);
  return num_cached;
}

void BlockLoader::count_missed(CacheMiss cause, std::span<const Source> sources) {
  for (const Source& source : sources) {
    if (!source.in_pool) store_.count_missed(cause, source.stored.tier, 1);
  }
}

void BlockLoader::poll(std::vector<RequestState*>& ready) {
  int64_t budget = kCopyBytes;
  for (size_t i = 0; i < loads_.size();) {
    Load& load = loads_[i];
    if (!take(load, budget)) {
      ++i;
      continue;
    }
    use(std::span(load.chain).first(load.next), load.request->store_tag.retention);
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
    if (state == kv::BlockFetch::State::kPending && clock_.now_ns() < load.deadline_ns) return false;
    if (state != kv::BlockFetch::State::kReady) {
      if (load.next == load.chain.size()) return true;
      load.fetch->give_up();
      load.request->match.missed = load.fetch->miss();
      return true;
    }
    if (budget <= 0) return false;
    const kv::BlockKey& key = load.chain[load.next];
    if (!pool_.contains(key)) {  // else somebody computed it meanwhile
      const kv::BlockFetch::Block from = load.fetch->front();
      const kv::BlockId block = pool_.allocate();
      if (block == kv::kNoBlock) {  // the pool is full of running sequences: what has come has to do
        count_missed(CacheMiss::kBusy, std::span<const Source>(load.sources).subspan(load.next));
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
