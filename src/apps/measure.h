// What `deepinfer bench` measures on a model, without a server around it: one forward step after another, timed. Each case is run once
// a round, all cases in turn, so that a slow minute of a shared machine falls on all of them; the median over rounds counts.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "kernels/roof.h"
#include "kernels/team.h"
#include "model/model.h"

namespace deepinfer::apps {

struct BenchCase {
  enum class Kind : uint8_t { kPrefill, kDecode };
  Kind kind = Kind::kPrefill;
  int32_t num_sequences = 1;
  int32_t context = 0;     // tokens in the cache before the first timed one
  int32_t num_tokens = 0;  // timed tokens of each sequence: prefill in chunks of the step's size, decode one a step
  bool narrow = true;      // of models with windows: only a prompt's end enters the decoder layers; else all of it
  std::string name() const;  // "prefill 512", "prefill 256 at 2304", "prefill 2048 without narrowing", "decode at 4096", "decode of 8"
};

// The cases that everybody asks about, those left out that the model's context cannot hold. "prefill 256 at 2304" is a prompt of which nine
// tenths are cached: with windows their replay is timed, its tokens are not counted.
std::vector<BenchCase> standard_cases(int32_t max_context, const model::KvLayout& layout);

struct CaseResult {
  BenchCase what;
  std::vector<double> seconds;  // one a round
  double median_s = 0, spread = 0;   // spread: (slowest - fastest) / median
  double tokens_per_s = 0;           // of all sequences together, from the median
  double roof_share = 0;             // of what the measured roof allows (see roof_seconds)
  double disk_bytes_per_s = 0;       // read from disks meanwhile, over all rounds: of weights that are not kept in memory
};

struct BenchOptions {
  int32_t rounds = 5;
  int32_t max_rows = 512;  // tokens a step
};

// Shortest time that the roof allows for a case: what its steps have to read at the memory's rate over as many bytes as the weights, or
// their products at the peak, integer or bf16, whichever is longer (model::StepCost). A product costs 2 operations. A prefill's reads of
// the cache are left out, and attention's own products, so at long contexts the figure flatters the roof.
double roof_seconds(const BenchCase& what, const model::Model& model, const Roof& roof, int32_t max_rows);

// Runs all cases; calls model.reserve(). Errors: kResourceExhausted (no memory for the cache), those of model.forward().
Result<std::vector<CaseResult>> measure(model::Model& model, const std::vector<BenchCase>& cases, const BenchOptions& options, const Roof& roof,
                                        Workers& workers);

}  // namespace deepinfer::apps
