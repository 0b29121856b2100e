#include "engine/sampler.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "base/rng.h"

namespace deepinfer::engine {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

void adjust(float* logits, const SampleInput& input, int32_t vocab_size, const ScanKernels& kernels) {
  const SamplingParams& p = *input.params;
  for (const auto& [token, bias] : p.logit_bias) logits[token] += bias;
  if (uses_counts(p)) {
    for (const TokenCounts::Entry& entry : input.counts->entries()) {
      float& logit = logits[entry.token];
      if (p.repetition_penalty != 1) logit = logit > 0 ? logit / p.repetition_penalty : logit * p.repetition_penalty;
      if (entry.num_sampled == 0) continue;
      logit -= p.presence_penalty + p.frequency_penalty * static_cast<float>(entry.num_sampled);
    }
  }
  if (!input.allowed.empty()) kernels.forbid(logits, vocab_size, input.allowed.data());
  for (const TokenId token : input.banned) logits[token] = -kInfinity;
}

// Moves the best of `set` whose weights together reach `target` to its front and returns how many they are (at least one). Quickselect
// over weights: linear for the vocabulary's size, as each round keeps one side of a pivot. The pivot is the median of three
// fixed places, so the work, too, is a function of the input.
size_t select_by_weight(std::span<Candidate> set, double target, float max, double inv_temperature) {
  size_t begin = 0, end = set.size();  // the last to keep is in [begin, end); everything before begin is kept
  double before = 0;                   // the weight of set[0, begin)
  while (end - begin > 1) {
    const Candidate a = set[begin], b = set[begin + (end - begin) / 2], c = set[end - 1];
    const Candidate pivot = better(a, b) ? (better(b, c) ? b : better(a, c) ? c : a) : (better(a, c) ? a : better(b, c) ? c : b);
    const auto middle = std::partition(set.begin() + static_cast<ptrdiff_t>(begin), set.begin() + static_cast<ptrdiff_t>(end),
                                       [&](const Candidate& x) { return !better(pivot, x); });  // the pivot and all better ones
    const auto split = static_cast<size_t>(middle - set.begin());
    double upper = 0;
    for (size_t i = begin; i < split; ++i) upper += weight_of(set[i].logit, max, inv_temperature);
    if (before + upper < target && split < end) {
      before += upper;
      begin = split;
    } else if (split < end) {
      end = split;
    } else {  // the pivot is the worst of all: take it off, or it would be chosen for ever
      const auto last = std::find_if(set.begin() + static_cast<ptrdiff_t>(begin), middle, [&](const Candidate& x) { return x.id == pivot.id; });
      std::iter_swap(last, middle - 1);
      const double rest = upper - weight_of(pivot.logit, max, inv_temperature);
      if (before + rest < target) return end;
      end -= 1;
    }
  }
  return end;
}

}  // namespace

bool uses_counts(const SamplingParams& p) { return p.repetition_penalty != 1 || p.presence_penalty != 0 || p.frequency_penalty != 0; }

Sampler::Scratch::Scratch(int32_t vocab_size)
    : block_max(static_cast<size_t>(num_scan_blocks(vocab_size))),
      chunk_sums(static_cast<size_t>(num_scan_chunks(vocab_size))),
      candidates(std::make_unique_for_overwrite<Candidate[]>(static_cast<size_t>(vocab_size))),
      selected(std::make_unique_for_overwrite<Candidate[]>(static_cast<size_t>(vocab_size))) {}

Sampler::Sampler(int32_t vocab_size, Isa isa) : vocab_size_(vocab_size), kernels_(scan_kernels(isa)) { CHECK(vocab_size >= 1); }

Sample Sampler::sample(float* logits, const SampleInput& input, Scratch& scratch) const {
  adjust(logits, input, vocab_size_, kernels_);
  Sample sample;
  const bool numbers = kernels_.find_block_max(logits, vocab_size_, scratch.block_max.data());
  const ScannedRow row{logits, vocab_size_, scratch.block_max.data()};
  if (!numbers) return sample;
  const Candidate best = find_best(row);
  if (!std::isfinite(best.logit)) return sample;
  sample.valid = true;
  if (input.forced >= 0) {
    sample.token = input.forced;
  } else {
    sample.token = input.params->temperature == 0 ? best.id : draw(row, best.logit, input, scratch);
  }
  if (input.params->top_logprobs >= 0) report(row, best.logit, *input.params, sample, scratch);
  return sample;
}

TokenId Sampler::draw(const ScannedRow& row, float max, const SampleInput& input, Scratch& scratch) const {
  const SamplingParams& p = *input.params;
  const double inv_temperature = 1.0 / static_cast<double>(p.temperature);
  const double uniform = philox_uniform(p.seed, static_cast<uint64_t>(input.position), static_cast<uint64_t>(input.choice));
  const bool truncates = (p.top_k > 0 && p.top_k < vocab_size_) || p.top_p < 1 || p.min_p > 0;
  if (!truncates) return draw_from_all(row, max, inv_temperature, uniform, scratch);

  // What is kept, in order of id: the same order as without truncation.
  const Candidate threshold = find_threshold(row, max, inv_temperature, p, scratch);
  const auto kept = std::span(scratch.candidates.get(), static_cast<size_t>(gather_above(row, threshold.logit, scratch.candidates.get())));
  const auto weight = [&](const Candidate& c) { return better(threshold, c) ? 0 : weight_of(c.logit, max, inv_temperature); };
  double total = 0;
  for (const Candidate& c : kept) total += weight(c);
  double left = uniform * total;
  TokenId chosen = -1;
  for (const Candidate& c : kept) {
    const double w = weight(c);
    if (w == 0) continue;
    chosen = c.id;  // rounding may leave a crumb at the end: it belongs to the last
    left -= w;
    if (left < 0) break;
  }
  return chosen;
}

TokenId Sampler::draw_from_all(const ScannedRow& row, float max, double inv_temperature, double uniform, Scratch& scratch) const {
  double* sums = scratch.chunk_sums.data();
  const double total = kernels_.sum_weights(row, max, inv_temperature, sums);
  double left = uniform * total;
  int32_t chosen_chunk = 0;
  for (int32_t chunk = 0; chunk < num_scan_chunks(row.n); ++chunk) {
    if (sums[chunk] == 0) continue;
    chosen_chunk = chunk;
    if (left < sums[chunk]) break;
    left -= sums[chunk];
  }
  TokenId chosen = -1;
  for (int32_t id = chosen_chunk * kScanChunk; id < std::min(row.n, (chosen_chunk + 1) * kScanChunk); ++id) {
    const double w = weight_of(row.x[id], max, inv_temperature);
    if (w == 0) continue;
    chosen = id;
    left -= w;
    if (left < 0) break;
  }
  return chosen;
}

// The last in order of choice that truncation keeps.
Candidate Sampler::find_threshold(const ScannedRow& row, float max, double inv_temperature, const SamplingParams& p, Scratch& scratch) const {
  const bool by_count = p.top_k > 0 && p.top_k < row.n;
  const double total = by_count || p.top_p >= 1 ? 0 : kernels_.sum_weights(row, max, inv_temperature, scratch.chunk_sums.data());
  // Look at the few near the maximum first: nearly always they decide. Else at all.
  Candidate* const set = scratch.selected.get();
  constexpr double kReach = 12;
  const bool only_min_p = !by_count && p.top_p >= 1;
  for (const double reach : {kReach, std::numeric_limits<double>::infinity()}) {
    if (only_min_p && std::isfinite(reach) && static_cast<double>(p.min_p) < exp_of(-reach)) continue;
    const auto lowest = static_cast<float>(static_cast<double>(max) - reach / inv_temperature);
    auto count = static_cast<size_t>(gather_above(row, lowest, set));
    const bool all = count == static_cast<size_t>(row.n);
    if (by_count) {
      const auto k = static_cast<size_t>(p.top_k);
      if (count < k && !all && std::isfinite(reach)) continue;
      if (count > k) std::nth_element(set, set + k - 1, set + count, better);
      count = std::min(count, k);
    }
    if (p.top_p < 1) {
      double sum = 0;
      for (size_t i = 0; i < count; ++i) sum += weight_of(set[i].logit, max, inv_temperature);
      const double target = static_cast<double>(p.top_p) * (by_count ? sum : total);
      if (sum < target && !all && std::isfinite(reach)) continue;
      count = select_by_weight({set, count}, target, max, inv_temperature);
    }
    if (p.min_p > 0) {
      // The best has weight 1. It stays whatever min_p is.
      const auto end = std::partition(set, set + count, [&](const Candidate& c) {
        return c.logit == max || weight_of(c.logit, max, inv_temperature) >= static_cast<double>(p.min_p);
      });
      count = static_cast<size_t>(end - set);
    }
    return *std::max_element(set, set + count, better);  // the worst: `better` sorts the best first
  }
  return {-kInfinity, row.n};  // not reached: the last round always decides
}

void Sampler::report(const ScannedRow& row, float max, const SamplingParams& p, Sample& sample, Scratch& scratch) const {
  const double log_sum = std::log(kernels_.sum_weights(row, max, 1.0, scratch.chunk_sums.data()));
  const auto logprob = [&](float logit) { return static_cast<float>((static_cast<double>(logit) - static_cast<double>(max)) - log_sum); };
  sample.logprob = logprob(row.x[sample.token]);
  std::array<Candidate, kMaxTopLogprobs> top;
  sample.num_top = find_top(row, std::span(top).first(static_cast<size_t>(p.top_logprobs)));
  for (size_t i = 0; i < static_cast<size_t>(sample.num_top); ++i) sample.top[i] = {top[i].id, logprob(top[i].logit)};
}

}  // namespace deepinfer::engine
