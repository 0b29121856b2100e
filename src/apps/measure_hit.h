// Time to the first token of a prompt that is wholly in the prefix cache, through the engine: what a repeated request waits for.
#pragma once

#include <cstdint>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "core/inference.h"

namespace deepinfer::apps {

struct HitResult {
  int32_t prompt_tokens = 0, cached_tokens = 0;  // cached: of the second request; all whole blocks but the last token's
  std::vector<double> cold_s, hit_s;             // one a round, each round with a prompt of its own
  double median_cold_s = 0, median_hit_s = 0;
};

// Errors: those of submit(); kInternal (the engine failed a request).
Result<HitResult> measure_full_hit(Inference& inference, int32_t prompt_tokens, int32_t rounds, const Clock& clock);

}  // namespace deepinfer::apps
