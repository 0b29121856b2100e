#include "apps/measure_hit.h"

#include <algorithm>
#include <memory>
#include <optional>

#include "apps/generate.h"

namespace deepinfer::apps {
namespace {

struct FirstToken {
  double seconds;
  int32_t cached_tokens;
};

Result<FirstToken> first_token(Inference& inference, std::vector<TokenId> prompt, const Clock& clock) {
  Request request;
  request.prompt = std::move(prompt);
  request.sampling.temperature = 0;
  request.sampling.max_tokens = 1;
  const auto queue = std::make_shared<EventQueue>();
  const int64_t begin = clock.now_ns();
  DI_TRY(inference.submit(std::move(request), queue));
  std::optional<double> took;
  for (;;) {
    const std::optional<TokenEvent> event = queue->pop(1000);
    if (!event) continue;
    if (event->has_token && !took) took = static_cast<double>(clock.now_ns() - begin) / 1e9;
    if (!event->finished) continue;
    if (!took) return Error{Code::kInternal, event->message};
    return FirstToken{*took, event->usage.cached_tokens};
  }
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

}  // namespace

Result<HitResult> measure_full_hit(Inference& inference, int32_t prompt_tokens, int32_t rounds, const Clock& clock) {
  HitResult result{.prompt_tokens = prompt_tokens};
  const int32_t vocab_size = inference.model().vocab_size;
  for (int32_t round = 0; round < rounds; ++round) {
    std::vector<TokenId> prompt;
    for (int32_t i = 0; i < prompt_tokens; ++i) prompt.push_back((round * 7919 + i * 31 + 1) % vocab_size);
    DI_TRY(const FirstToken cold, first_token(inference, prompt, clock));
    DI_TRY(const FirstToken hit, first_token(inference, prompt, clock));
    result.cold_s.push_back(cold.seconds);
    result.hit_s.push_back(hit.seconds);
    result.cached_tokens = hit.cached_tokens;
  }
  result.median_cold_s = median(result.cold_s);
  result.median_hit_s = median(result.hit_s);
  return result;
}

}  // namespace deepinfer::apps
