// engine/sampler.h: from a row of logits to the next token. A pure function of the row, the parameters, the counts, the choice and
// the position: the draw is Philox at (seed, choice, position), all sums have one order, so batches, threads, restarts and
// preemption change nothing. Any thread, one Scratch each; allocates nothing.
//
// The order of operations is core/request.h's: logit_bias, penalties, constraint, min_tokens, then temperature, top_k, top_p, min_p. Reported
// logprobs are log-softmax in double of the logits after the first four. What truncation keeps is a threshold in the order of
// choice (larger logit, then lower id), found by selection, never by sorting the vocabulary:
//   top_k  the k best
//   top_p  of these, the best whose probability together reaches top_p (at least one)
//   min_p  of these, all with at least min_p of the best one's probability
// The alternative that lost: Gumbel noise on every logit, which needs two logarithms a token.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/inference.h"
#include "engine/token_counts.h"
#include "engine/vocab_scan.h"

namespace deepinfer::engine {

struct SampleInput {
  const SamplingParams* params;
  const TokenCounts* counts;                // filled if uses_counts(*params)
  std::span<const TokenId> banned;          // may not be sampled here: stop tokens of a sequence that must go on
  int32_t choice;
  int32_t position;                         // of the token to sample: prompt and output so far
  TokenId forced = -1;                      // what comes here whatever the logits say; -1: nothing is forced
  std::span<const uint32_t> allowed = {};   // bit t % 32 of word t / 32: token t may be sampled; empty: all may
};

struct Sample {
  bool valid = false;                       // false: a logit is NaN or infinite, or nothing is left to sample
  TokenId token = -1;
  float logprob = 0;                        // if asked
  int32_t num_top = 0;
  std::array<TokenLogprob, kMaxTopLogprobs> top;
};

bool uses_counts(const SamplingParams& params);

class Sampler {
 public:
  Sampler(int32_t vocab_size, Isa isa);

  // Working memory of one call at a time. Pages are touched only as far as calls need them.
  class Scratch {
   public:
    explicit Scratch(int32_t vocab_size);

   private:
    friend class Sampler;
    std::vector<float> block_max;
    std::vector<double> chunk_sums;
    std::unique_ptr<Candidate[]> candidates, selected;  // [vocab_size] each
  };

  // logits [vocab_size]; changed in place (bias, penalties, bans).
  Sample sample(float* logits, const SampleInput& input, Scratch& scratch) const;

 private:
  TokenId draw(const ScannedRow& row, float max, const SampleInput& input, Scratch& scratch) const;
  TokenId draw_from_all(const ScannedRow& row, float max, double inv_temperature, double uniform, Scratch& scratch) const;
  Candidate find_threshold(const ScannedRow& row, float max, double inv_temperature, const SamplingParams& params, Scratch& scratch) const;
  void report(const ScannedRow& row, float max, const SamplingParams& params, Sample& sample, Scratch& scratch) const;

  const int32_t vocab_size_;
  const ScanKernels& kernels_;
};

}  // namespace deepinfer::engine
