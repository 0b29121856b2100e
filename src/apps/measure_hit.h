// Time to the first token of a prompt that is wholly in the prefix cache, in memory or on disk, through the engine: what a repeated request waits for.
#pragma once

#include <cstdint>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "apps/served_model.h"
#include "core/inference.h"

namespace deepinfer::apps {

struct HitResult {
  int32_t prompt_tokens = 0, cached_tokens = 0;  // cached: of the second request; all whole blocks but the last token's
  std::vector<double> cold_s, hit_s;             // one a round, each round with a prompt of its own
  double median_cold_s = 0, median_hit_s = 0;
};

// Errors: those of submit(); kInternal (the engine failed a request).
Result<HitResult> measure_full_hit(Inference& inference, int32_t prompt_tokens, int32_t rounds, const Clock& clock);

// The same with a block store, by where the blocks come from. A round has a prompt of its own.
struct StoredHitResult {
  struct Case {
    std::vector<double> seconds;  // one a round
    double median_s = 0;
    int32_t ram_tokens = 0, disk_tokens = 0, shared_tokens = 0;  // of the last round's prompt
  };
  int32_t prompt_tokens = 0;
  Case cold, memory;  // computed; asked again
  Case other;         // by a server whose store has just found the segments of another that lives
  Case restart;       // by one that started after all others had ended
};

// `folder`: a cache directory, new; what is written there stays. Errors: those of start_model(); kInvalidArgument (no whole block to find); kInternal (the engine failed a request, or found
// nothing where it should have).
Result<StoredHitResult> measure_stored_hits(const ModelFlags& model, const std::string& folder, int32_t prompt_tokens, int32_t rounds);

}  // namespace deepinfer::apps
