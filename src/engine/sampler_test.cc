#include "engine/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "base/rng.h"

namespace deepinfer::engine {
namespace {

std::vector<float> random_logits(int32_t n, uint64_t seed, double spread) {
  Rng rng(seed);
  std::vector<float> x(static_cast<size_t>(n));
  for (float& v : x) {
    double sum = 0;
    for (int i = 0; i < 6; ++i) sum += rng.uniform();
    v = static_cast<float>((sum - 3) * spread);
  }
  return x;
}

Sample sample_once(std::vector<float> logits, const SamplingParams& params, int32_t position = 10, int32_t choice = 0,
                   const TokenCounts* counts = nullptr, std::span<const TokenId> banned = {}, Isa isa = Isa::kPortable) {
  const auto n = static_cast<int32_t>(logits.size());
  Sampler sampler(n, isa);
  Sampler::Scratch scratch(n);
  return sampler.sample(logits.data(), {&params, counts, banned, choice, position}, scratch);
}

// The definition, in doubles and with a full sort. Returns each token's probability.
std::vector<double> naive_distribution(const std::vector<float>& logits, const SamplingParams& p) {
  const size_t n = logits.size();
  std::vector<size_t> order(n);
  for (size_t i = 0; i < n; ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return logits[a] > logits[b]; });
  const double max = logits[order[0]];
  std::vector<double> w(n);
  for (size_t i = 0; i < n; ++i) w[i] = std::exp((logits[i] - max) / p.temperature);
  size_t kept = p.top_k > 0 ? std::min(n, static_cast<size_t>(p.top_k)) : n;
  double total = 0;
  for (size_t i = 0; i < kept; ++i) total += w[order[i]];
  if (p.top_p < 1) {
    double sum = 0;
    size_t count = 0;
    while (count < kept && sum < static_cast<double>(p.top_p) * total) sum += w[order[count++]];
    kept = std::max<size_t>(count, 1);
  }
  while (kept > 1 && w[order[kept - 1]] < static_cast<double>(p.min_p)) --kept;
  double sum = 0;
  for (size_t i = 0; i < kept; ++i) sum += w[order[i]];
  std::vector<double> out(n, 0.0);
  for (size_t i = 0; i < kept; ++i) out[order[i]] = w[order[i]] / sum;
  return out;
}

TEST(Sampler, GreedyTakesTheLargestAndTheLowestIdOfEquals) {
  for (const int32_t n : {1, 2, 15, 16, 17, 127, 128, 129, 1000, 1025}) {
    std::vector<float> x(static_cast<size_t>(n), -1.0f);
    for (const int32_t at : {n - 1, n / 2, 0}) {
      x[static_cast<size_t>(at)] = 5.0f;
      EXPECT_EQ(sample_once(x, {.temperature = 0}).token, at) << n;
    }
  }
}

TEST(Sampler, ARowThatIsNoDistributionIsRefused) {
  const float nan = std::numeric_limits<float>::quiet_NaN(), inf = std::numeric_limits<float>::infinity();
  for (const int32_t n : {1, 16, 100, 300}) {
    for (const int32_t at : {0, n / 2, n - 1}) {
      std::vector<float> x(static_cast<size_t>(n), 1.0f);
      x[static_cast<size_t>(at)] = nan;
      EXPECT_FALSE(sample_once(x, {.temperature = 0}).valid);
      EXPECT_FALSE(sample_once(x, {}).valid);
      x[static_cast<size_t>(at)] = inf;
      EXPECT_FALSE(sample_once(x, {}).valid);
      x.assign(x.size(), -inf);
      EXPECT_FALSE(sample_once(x, {}).valid);
      x[static_cast<size_t>(at)] = 0;
      EXPECT_EQ(sample_once(x, {}).token, at);
    }
  }
}

// Chi-square over the whole vocabulary against the naive distribution: no token outside it, every token inside as often as due.
TEST(Sampler, DrawsFollowTheDistribution) {
  constexpr int32_t kVocab = 1500;
  const std::vector<SamplingParams> cases{
      {},
      {.temperature = 0.6f},
      {.temperature = 2.0f},
      {.top_p = 0.9f},
      {.top_p = 0.3f},
      {.top_k = 40},
      {.temperature = 1.5f, .top_p = 0.8f, .top_k = 100},
      {.min_p = 0.1f},
      {.min_p = 1e-7f},
      {.temperature = 0.8f, .top_p = 0.95f, .min_p = 0.05f, .top_k = 50},
      {.top_p = 1e-6f},
      {.temperature = 30.0f, .top_p = 0.99f},
  };
  for (size_t i = 0; i < cases.size(); ++i) {
    SCOPED_TRACE("case " + std::to_string(i));
    SamplingParams params = cases[i];
    params.seed = 99 + i;
    const std::vector<float> logits = random_logits(kVocab, i, 2.5);
    const std::vector<double> expected = naive_distribution(logits, params);
    Sampler sampler(kVocab, Isa::kPortable);
    Sampler::Scratch scratch(kVocab);
    constexpr int kDraws = 20000;
    std::vector<int> seen(kVocab, 0);
    for (int32_t position = 0; position < kDraws; ++position) {
      std::vector<float> row = logits;
      seen[static_cast<size_t>(sampler.sample(row.data(), {&params, nullptr, {}, 0, position}, scratch).token)] += 1;
    }
    double chi_square = 0, rest_expected = 0;
    int rest_seen = 0, degrees = -1;
    for (size_t t = 0; t < kVocab; ++t) {
      ASSERT_FALSE(expected[t] == 0 && seen[t] > 0) << "token " << t << " was truncated away";
      if (expected[t] * kDraws < 5) {
        rest_expected += expected[t] * kDraws, rest_seen += seen[t];
        continue;
      }
      chi_square += std::pow(seen[t] - expected[t] * kDraws, 2) / (expected[t] * kDraws);
      degrees += 1;
    }
    if (rest_expected > 5) chi_square += std::pow(rest_seen - rest_expected, 2) / rest_expected, degrees += 1;
    EXPECT_LT(chi_square, degrees + 4 * std::sqrt(2.0 * std::max(degrees, 1)) + 1e-9);  // four standard deviations
  }
}

// Each draw against the twin's own inverse of the distribution in order of id.
TEST(Sampler, EveryDrawIsTheTwins) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    Rng rng(seed);
    const auto n = static_cast<int32_t>(1 + rng.below(3000));
    SamplingParams p;
    p.seed = rng.next_u64();
    p.temperature = static_cast<float>(0.2 + 2 * rng.uniform());
    if (rng.below(2)) p.top_k = static_cast<int32_t>(rng.below(200));
    if (rng.below(2)) p.top_p = static_cast<float>(0.02 + 0.98 * rng.uniform());
    if (rng.below(3) == 0) p.min_p = static_cast<float>(rng.uniform() * 0.2);
    const std::vector<float> logits = random_logits(n, seed + 1000, 0.1 + 6 * rng.uniform());
    const std::vector<double> expected = naive_distribution(logits, p);
    for (int32_t position = 0; position < 20; ++position) {
      const double u = philox_uniform(p.seed, static_cast<uint64_t>(position), 3);
      double sum = 0;
      size_t token = 0;
      while (token + 1 < expected.size() && (sum += expected[token]) <= u) ++token;
      const TokenId got = sample_once(logits, p, position, 3).token;
      // Within rounding of a boundary either neighbour is right.
      const double to_boundary = std::min(std::abs(sum - u), std::abs(sum - expected[token] - u));
      EXPECT_TRUE(got == static_cast<TokenId>(token) || to_boundary < 1e-9) << got << " instead of " << token;
    }
  }
}

TEST(Sampler, EqualLogitsAtTheThresholdAreKeptByLowerId) {
  const std::vector<float> x(1000, 2.0f);
  std::map<TokenId, int> seen;
  for (int32_t position = 0; position < 200; ++position) seen[sample_once(x, {.top_k = 3}, position).token] += 1;
  EXPECT_EQ(seen.size(), 3u);
  EXPECT_EQ(seen.rbegin()->first, 2);
}

TEST(Sampler, SeedChoiceAndPositionEachChangeTheDraw) {
  const std::vector<float> x(5000, 0.0f);
  SamplingParams a{.seed = 1}, b{.seed = 2};
  const TokenId token = sample_once(x, a, 7, 0).token;
  EXPECT_EQ(sample_once(x, a, 7, 0).token, token);
  EXPECT_NE(sample_once(x, b, 7, 0).token, token);
  EXPECT_NE(sample_once(x, a, 8, 0).token, token);
  EXPECT_NE(sample_once(x, a, 7, 1).token, token);
}

TEST(Sampler, LogprobsAreLogSoftmaxAfterBiasAndPenalties) {
  const int32_t n = 3001;
  const std::vector<float> x = random_logits(n, 5, 3);
  TokenCounts counts(10);
  counts.add_prompt(std::vector<TokenId>{3, 4});
  for (const TokenId token : {4, 9, 9}) counts.add_sampled(token);
  SamplingParams p{.temperature = 0.3f, .repetition_penalty = 1.3f, .presence_penalty = 0.5f, .frequency_penalty = 0.25f};
  p.logit_bias = {{7, 4.0f}, {9, 30.0f}};
  p.top_logprobs = 20;
  const std::vector<TokenId> banned{11};
  const Sample got = sample_once(x, p, 10, 0, &counts, banned);

  std::vector<double> y(x.begin(), x.end());
  y[7] += 4, y[9] += 30, y[11] = -std::numeric_limits<double>::infinity();
  for (const size_t t : {3, 4, 9}) y[t] = y[t] > 0 ? y[t] / 1.3 : y[t] * 1.3;
  y[4] -= 0.75, y[9] -= 1.0;
  double sum = 0;
  const double max = *std::max_element(y.begin(), y.end());
  for (const double v : y) sum += std::exp(v - max);
  std::vector<size_t> order(y.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return y[a] > y[b]; });
  ASSERT_EQ(got.num_top, 20);
  EXPECT_NEAR(got.logprob, y[static_cast<size_t>(got.token)] - max - std::log(sum), 1e-5);
  for (size_t i = 0; i < 20; ++i) {
    EXPECT_EQ(got.top[i].token, static_cast<TokenId>(order[i]));
    EXPECT_NEAR(got.top[i].logprob, y[order[i]] - max - std::log(sum), 1e-5);
  }
}

TEST(Sampler, BannedTokensAreNotSampled) {
  std::vector<float> x(100, 0.0f);
  x[5] = 50;
  const std::vector<TokenId> banned{5};
  for (int32_t position = 0; position < 100; ++position) EXPECT_NE(sample_once(x, {}, position, 0, nullptr, banned).token, 5);
}

TEST(VocabScan, ExpIsExact) {
  double worst = 0;
  for (double t = 0; t > -708; t -= 0.00731) worst = std::max(worst, std::abs(exp_of(t) - std::exp(t)) / std::exp(t));
  EXPECT_LT(worst, 5e-16);
  EXPECT_EQ(exp_of(0), 1.0);
  EXPECT_EQ(exp_of(-std::numeric_limits<double>::infinity()), 0);
}

TEST(VocabScan, EveryInstructionSetGivesTheSameBits) {
  const ScanKernels& portable = scan_kernels(Isa::kPortable);
  for (const Isa isa : available_isas()) {
    const ScanKernels& kernels = scan_kernels(isa);
    for (int32_t n = 1; n < 4000; n += n < 70 ? 1 : 131) {
      std::vector<float> x = random_logits(n, static_cast<uint64_t>(n), 20);
      Rng rng(static_cast<uint64_t>(n));
      std::vector<uint32_t> allowed(static_cast<size_t>(n + 31) / 32);
      for (uint32_t& word : allowed) word = rng.below(4) == 0 ? 0 - static_cast<uint32_t>(rng.below(2)) : rng.next_u32();
      std::vector<float> masked = x;
      kernels.forbid(masked.data(), n, allowed.data());
      for (size_t i = 0; i < masked.size(); ++i) {
        ASSERT_EQ(masked[i], (allowed[i / 32] >> (i % 32) & 1) != 0 ? x[i] : -std::numeric_limits<float>::infinity()) << isa_name(isa) << " " << n << " " << i;
      }
      if (n % 3 == 0) x[static_cast<size_t>(n / 2)] = -std::numeric_limits<float>::infinity();
      std::vector<float> max_a(static_cast<size_t>(num_scan_blocks(n))), max_b = max_a;
      EXPECT_TRUE(portable.find_block_max(x.data(), n, max_a.data()));
      EXPECT_TRUE(kernels.find_block_max(x.data(), n, max_b.data()));
      EXPECT_EQ(max_a, max_b);
      std::vector<double> sums_a(static_cast<size_t>(num_scan_chunks(n))), sums_b = sums_a;
      const float max = *std::max_element(max_a.begin(), max_a.end());
      const double a = portable.sum_weights({x.data(), n, max_a.data()}, max, 0.7, sums_a.data());
      const double b = kernels.sum_weights({x.data(), n, max_b.data()}, max, 0.7, sums_b.data());
      EXPECT_EQ(std::memcmp(&a, &b, sizeof a), 0) << isa_name(isa) << " " << n;
      EXPECT_EQ(sums_a, sums_b);
      double exact = 0;
      for (const float v : x) exact += std::exp((static_cast<double>(v) - static_cast<double>(max)) * 0.7);
      EXPECT_NEAR(a, exact, exact * 1e-14);
    }
  }
}

TEST(VocabScan, PassingOverBlocksWithoutWeightChangesNoBit) {
  for (const Isa isa : available_isas()) {
    const ScanKernels& kernels = scan_kernels(isa);
    Rng rng(1);
    for (const int32_t n : {1, 7, 128, 129, 1024, 1031, 5000}) {
      for (const double inv_temperature : {0.5, 1.0, 100.0}) {  // the last leaves few weights
        std::vector<float> x = random_logits(n, static_cast<uint64_t>(n), 20);
        for (int32_t block = 0; block < num_scan_blocks(n); ++block) {
          if (rng.below(3) == 0) continue;
          const int32_t begin = block * kScanBlock;
          for (int32_t i = begin; i < std::min(begin + kScanBlock, n); ++i) x[static_cast<size_t>(i)] = -std::numeric_limits<float>::infinity();
          if (rng.below(2) == 0) x[static_cast<size_t>(begin)] = rng.below(2) == 0 ? -700.0f : -720.0f;
        }
        x[static_cast<size_t>(n / 2)] = 0;
        std::vector<float> block_max(static_cast<size_t>(num_scan_blocks(n)));
        ASSERT_TRUE(kernels.find_block_max(x.data(), n, block_max.data()));
        const float max = *std::max_element(block_max.begin(), block_max.end());
        std::vector<double> sums(static_cast<size_t>(num_scan_chunks(n))), whole_sums = sums;
        const double sum = kernels.sum_weights({x.data(), n, block_max.data()}, max, inv_temperature, sums.data());
        const std::vector<float> nothing_passed(block_max.size(), max);
        const double whole = kernels.sum_weights({x.data(), n, nothing_passed.data()}, max, inv_temperature, whole_sums.data());
        EXPECT_EQ(std::memcmp(&sum, &whole, sizeof sum), 0) << isa_name(isa) << " " << n << " " << inv_temperature;
        EXPECT_EQ(sums, whole_sums);
      }
    }
  }
}

}  // namespace
}  // namespace deepinfer::engine
