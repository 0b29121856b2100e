#include "trace/reuse.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "base/check.h"

namespace deepinfer::trace {
namespace {

// Two would do for 95 % if misses were spread evenly. They are skewed (a block that many use, each time too late), and the sample that
// lacks it does not know: measured over seeds, three cover what two should.
constexpr double kStandardErrors = 3;

// Prefix sums over positions 1..n that change.
class Fenwick {
 public:
  explicit Fenwick(size_t n) : sums_(n + 1, 0) {}
  void add(size_t at, int64_t amount) {
    total_ += amount;
    for (; at < sums_.size(); at += at & -at) sums_[at] += amount;
  }
  int64_t above(size_t at) const {  // sum over positions > at
    int64_t below = 0;
    for (; at > 0; at -= at & -at) below += sums_[at];
    return total_ - below;
  }

 private:
  std::vector<int64_t> sums_;
  int64_t total_ = 0;
};

// Blocks of a path that the same request used last.
struct Run {
  uint32_t last_use;       // its position + 1; 0: never used
  uint32_t begin, length;  // in the path
};

// One replay: the loop over requests, with what its steps share.
class Replay {
 public:
  Replay(const RequestTrace& trace, std::span<const uint32_t> order, const ReplayOptions& options, ReplayScratch& scratch)
      : trace_(trace), order_(order), options_(options), last_use_(scratch.last_use), live_(order.size()), rate_(trace.tree.rate()),
        block_tokens_(static_cast<double>(trace.block_tokens) * options.multiple) {
    CHECK(!options.retentions_us.empty() && !options.capacities.empty());
    last_use_.resize(trace.tree.nodes().size(), 0);
    cells_ = options.retentions_us.size() * options.capacities.size();
    counts_.rate = rate_;
    counts_.block_size_tokens = block_tokens_;
    counts_.missed.assign(cells_, 0);
    if (trace.tree.sampled()) counts_.missed_by_group.assign(cells_ * PrefixTree::kNumGroups, 0);
    counts_.distance_tokens.assign(kNumBuckets, 0);
    counts_.age_tokens.assign(kNumBuckets, 0);
    counts_.hit_by_model.assign(trace.models.size(), std::vector<double>(options.retentions_us.size(), 0));
    counts_.input_by_model.assign(trace.models.size(), 0);
    for (const uint64_t capacity : options.capacities) {
      sampled_capacities_.push_back(capacity == kUnlimited ? INT64_MAX : std::llround(static_cast<double>(capacity) * rate_));
    }
  }

  ReuseCounts run(std::vector<double>* hit_of) {
    if (hit_of != nullptr) hit_of->assign(order_.size(), 0);
    for (uint32_t at = 0; at < order_.size(); ++at) {
      const double hit = serve(at);
      if (hit_of != nullptr) (*hit_of)[at] = hit;
    }
    clean_up();
    accumulate();
    return std::move(counts_);
  }

 private:
  const TracedRequest& request(uint32_t at) const { return trace_.requests[order_[at]]; }

  void collect_path(const TracedRequest& request) {
    path_.clear();
    for (uint32_t node = request.leaf; node != PrefixTree::kRoot; node = trace_.tree.nodes()[node].parent) {
      if (trace_.tree.nodes()[node].depth % options_.multiple == 0) path_.push_back(node);
    }
    std::reverse(path_.begin(), path_.end());
    tail_tokens_short_ = 0;
    if (trace_.partial_blocks && !path_.empty()) {
      const double covered = static_cast<double>(trace_.tree.nodes()[path_.back()].depth) * trace_.block_tokens;
      tail_tokens_short_ = std::max(0.0, covered - static_cast<double>(request.input_tokens));
    }
  }

  // Tokens that `length` blocks of the path from `begin` stand for.
  double tokens(uint32_t begin, int64_t length) const {
    double out = static_cast<double>(length) * block_tokens_;
    if (length > 0 && begin + static_cast<size_t>(length) == path_.size()) out -= tail_tokens_short_;
    return out / rate_;
  }

  double serve(uint32_t at) {
    const TracedRequest& r = request(at);
    collect_path(r);
    count_input(r);
    double hit = 0;
    for (uint32_t begin = 0; begin < path_.size();) {
      Run run{last_use_[path_[begin]], begin, 1};
      while (begin + run.length < path_.size() && last_use_[path_[begin + run.length]] == run.last_use) ++run.length;
      if (run.last_use != 0) {
        hit += count_run(run, r.time_us - request(run.last_use - 1).time_us, r.model);
        ends_.push_back(run);
      } else {
        counts_.distinct_tokens += tokens(run.begin, run.length);
      }
      begin += run.length;
    }
    for (const Run& run : ends_) live_.add(run.last_use, -static_cast<int64_t>(run.length));
    ends_.clear();
    live_.add(at + 1, static_cast<int64_t>(path_.size()));
    for (const uint32_t node : path_) last_use_[node] = at + 1;
    return hit;
  }

  void count_input(const TracedRequest& r) {
    ++counts_.num_requests;
    counts_.input_tokens += static_cast<double>(r.input_tokens);
    counts_.input_by_model[r.model] += static_cast<double>(r.input_tokens);
    const uint32_t num_blocks = r.num_blocks / options_.multiple;
    double covered = num_blocks * block_tokens_;
    if (trace_.partial_blocks) covered = std::min(covered, static_cast<double>(r.input_tokens));
    counts_.block_tokens += covered;
    path_tokens_ += tokens(0, static_cast<int64_t>(path_.size()));
    if (trace_.tree.sampled()) {
      for (const uint32_t node : path_) group_tokens_[trace_.tree.group(node)] += block_tokens_ / rate_;
    }
  }

  // Books the hits of a run in the cell of the shortest retention that has it; accumulate() spreads them to the longer ones.
  double count_run(const Run& run, int64_t age_us, uint32_t model) {
    const size_t num_capacities = options_.capacities.size();
    const auto& retentions = options_.retentions_us;
    const size_t row = static_cast<size_t>(std::lower_bound(retentions.begin(), retentions.end(), age_us) - retentions.begin());
    const int64_t rank = live_.above(run.last_use);  // distinct blocks used since the first of the run
    const double all = tokens(run.begin, run.length);
    counts_.age_tokens[bucket_of(static_cast<uint64_t>(std::max<int64_t>(age_us, 0) / 1000))] += all;
    count_distances(run, rank);
    if (row == retentions.size()) return 0;
    counts_.hit_by_model[model][row] += all;
    double hit = 0;
    for (size_t c = 0; c < num_capacities; ++c) {
      const int64_t there = std::clamp<int64_t>(sampled_capacities_[c] - rank, 0, run.length);
      hit = tokens(run.begin, there);
      counts_.missed[row * num_capacities + c] += hit;
    }
    if (trace_.tree.sampled()) count_groups(run, rank, row);
    return hit;
  }

  void count_groups(const Run& run, int64_t rank, size_t row) {
    const size_t num_capacities = options_.capacities.size();
    for (uint32_t i = 0; i < run.length; ++i) {
      const auto fits = std::upper_bound(sampled_capacities_.begin(), sampled_capacities_.end(), rank + i);
      const size_t column = static_cast<size_t>(fits - sampled_capacities_.begin());
      if (column == num_capacities) return;
      const size_t cell = row * num_capacities + column;
      counts_.missed_by_group[cell * PrefixTree::kNumGroups + trace_.tree.group(path_[run.begin + i])] += block_tokens_ / rate_;
    }
  }

  void count_distances(const Run& run, int64_t rank) {
    const double tokens_each = block_tokens_ / rate_;
    for (uint32_t i = 0; i < run.length;) {
      const uint32_t bucket = bucket_of(static_cast<uint64_t>(static_cast<double>(rank + i) * tokens_each));
      const double end = bucket + 1 < kNumBuckets ? static_cast<double>(bucket_floor(bucket + 1)) / tokens_each : 1e18;
      const int64_t in_bucket = std::clamp<int64_t>(static_cast<int64_t>(std::ceil(end)) - rank - i, 1, run.length - i);
      counts_.distance_tokens[bucket] += tokens(run.begin + i, in_bucket);
      i += static_cast<uint32_t>(in_bucket);
    }
  }

  void clean_up() {
    for (uint32_t at = 0; at < order_.size(); ++at) {
      for (uint32_t node = request(at).leaf; node != PrefixTree::kRoot; node = trace_.tree.nodes()[node].parent) {
        if (trace_.tree.nodes()[node].depth % options_.multiple != 0) continue;
        if (std::exchange(last_use_[node], 0) == 0) break;  // cleaned from here up
      }
    }
  }

  // From hits by the first cell that has them to misses of every cell.
  void accumulate() {
    const size_t rows = options_.retentions_us.size(), columns = options_.capacities.size();
    for (size_t row = 1; row < rows; ++row) {
      for (size_t c = 0; c < columns; ++c) counts_.missed[row * columns + c] += counts_.missed[(row - 1) * columns + c];
      for (std::vector<double>& by_retention : counts_.hit_by_model) by_retention[row] += by_retention[row - 1];
    }
    for (double& cell : counts_.missed) cell = path_tokens_ - cell;
    if (!trace_.tree.sampled()) return;
    constexpr size_t kGroups = PrefixTree::kNumGroups;
    std::vector<double>& groups = counts_.missed_by_group;
    for (size_t row = 0; row < rows; ++row) {
      for (size_t c = 1; c < columns; ++c) {
        for (size_t g = 0; g < kGroups; ++g) groups[(row * columns + c) * kGroups + g] += groups[(row * columns + c - 1) * kGroups + g];
      }
    }
    for (size_t i = columns * kGroups; i < groups.size(); ++i) groups[i] += groups[i - columns * kGroups];
    for (size_t i = 0; i < groups.size(); ++i) groups[i] = group_tokens_[i % kGroups] - groups[i];
  }

  const RequestTrace& trace_;
  std::span<const uint32_t> order_;
  const ReplayOptions& options_;
  std::vector<uint32_t>& last_use_;
  Fenwick live_;  // by position + 1: blocks that this request was the last to use
  double rate_, block_tokens_;
  size_t cells_ = 0;
  std::vector<int64_t> sampled_capacities_;
  ReuseCounts counts_;
  std::vector<uint32_t> path_;
  std::vector<Run> ends_;
  double tail_tokens_short_ = 0, path_tokens_ = 0;
  double group_tokens_[PrefixTree::kNumGroups] = {};
};

}  // namespace

uint32_t bucket_of(uint64_t value) {
  if (value < 4) return static_cast<uint32_t>(value);
  const int shift = std::bit_width(value) - 3;  // value >> shift is 4..7
  return static_cast<uint32_t>(4 * shift + static_cast<int>(value >> shift));
}

uint64_t bucket_floor(uint32_t bucket) {
  if (bucket < 4) return bucket;
  const uint32_t shift = bucket / 4 - 1;
  return uint64_t{4 + bucket % 4} << shift;
}

ReuseCounts replay(const RequestTrace& trace, std::span<const uint32_t> order, const ReplayOptions& options, ReplayScratch& scratch,
                   std::vector<double>* hit_of) {
  return Replay(trace, order, options, scratch).run(hit_of);
}

double ReuseCounts::hit(size_t retention, size_t capacity, const ReplayOptions& options) const {
  return std::max(0.0, block_tokens - missed[retention * options.capacities.size() + capacity]);
}

double ReuseCounts::error(size_t retention, size_t capacity, const ReplayOptions& options) const {
  if (missed_by_group.empty()) return 0;
  constexpr size_t kGroups = PrefixTree::kNumGroups;
  const double* groups = &missed_by_group[(retention * options.capacities.size() + capacity) * kGroups];
  double sum = 0, squares = 0;
  for (size_t g = 0; g < kGroups; ++g) sum += groups[g];
  for (size_t g = 0; g < kGroups; ++g) squares += (groups[g] - sum / kGroups) * (groups[g] - sum / kGroups);
  double out = kStandardErrors * std::sqrt(squares * kGroups / (kGroups - 1));
  if (options.capacities[capacity] == kUnlimited) return out;
  // A rank in the sample stands for a rank of the whole give or take two standard deviations: what is hit at ranks that near to the
  // capacity may be on its other side.
  const double blocks = static_cast<double>(options.capacities[capacity]);
  const double spread = std::min(0.9, 2 * std::sqrt((1 - rate) / (rate * std::max(blocks, 1.0))));
  const double tokens = blocks * block_size_tokens;
  double near = 0;
  for (uint32_t b = 0; b + 1 < kNumBuckets && b < distance_tokens.size(); ++b) {
    const double low = static_cast<double>(bucket_floor(b)), high = static_cast<double>(bucket_floor(b + 1));
    const double overlap = std::min(high, tokens * (1 + spread)) - std::max(low, tokens * (1 - spread));
    if (overlap > 0) near += distance_tokens[b] * overlap / (high - low);
  }
  return out + near / 2;
}

void ReuseCounts::add(const ReuseCounts& other) {
  if (num_requests == 0 && missed.empty()) {
    *this = other;
    return;
  }
  num_requests += other.num_requests;
  input_tokens += other.input_tokens;
  block_tokens += other.block_tokens;
  distinct_tokens += other.distinct_tokens;
  const auto sum = [](std::vector<double>& to, const std::vector<double>& from) {
    CHECK(to.size() == from.size());
    for (size_t i = 0; i < to.size(); ++i) to[i] += from[i];
  };
  sum(missed, other.missed);
  sum(missed_by_group, other.missed_by_group);
  sum(distance_tokens, other.distance_tokens);
  sum(age_tokens, other.age_tokens);
  sum(input_by_model, other.input_by_model);
  for (size_t m = 0; m < hit_by_model.size(); ++m) sum(hit_by_model[m], other.hit_by_model[m]);
}

}  // namespace deepinfer::trace
