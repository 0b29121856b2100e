#include "apps/measure_hit.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>

#include "apps/generate.h"
#include "base/median.h"

namespace deepinfer::apps {
namespace {

struct FirstToken {
  double seconds;
  Usage usage;
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
    return FirstToken{*took, event->usage};
  }
}

std::vector<TokenId> prompt_number(int32_t number, int32_t length, int32_t vocab_size) {
  std::vector<TokenId> prompt;
  for (int32_t i = 0; i < length; ++i) prompt.push_back((number * 7919 + i * 31 + 1) % vocab_size);
  return prompt;
}

EngineFlags with_store(const std::string& folder) {
  EngineFlags flags;
  flags.max_num_seqs = 1;
  flags.cache.cache_dir = folder;
  flags.cache.cache_budget = uint64_t{64} << 30;  // whatever the disk has: nothing may be evicted here
  return flags;
}

// What a model needs once, such as pages of its weights that were never read, is not counted.
Result<std::unique_ptr<ServedModel>> start_warm(const ModelFlags& model, const std::string& folder) {
  constexpr int32_t kNumber = 1'000'000, kTokens = 600;  // a prompt that no round has
  DI_TRY(std::unique_ptr<ServedModel> served, start_model(model, with_store(folder)));
  const ModelCard& card = served->engine->model();
  DI_TRY(first_token(*served->engine, prompt_number(kNumber % card.vocab_size, std::min(kTokens, card.max_context - 1), card.vocab_size), served->clock));
  return served;
}

Result<> add_round(ServedModel& served, int32_t round, StoredHitResult& result, StoredHitResult::Case& to) {
  DI_TRY(const FirstToken first, first_token(*served.engine, prompt_number(round, result.prompt_tokens, served.engine->model().vocab_size), served.clock));
  to.seconds.push_back(first.seconds);
  to.median_s = median(to.seconds);
  to.disk_tokens = first.usage.disk_tokens;
  to.shared_tokens = first.usage.shared_tokens;
  to.ram_tokens = first.usage.cached_tokens - first.usage.disk_tokens - first.usage.shared_tokens;
  return {};
}

}  // namespace

Result<HitResult> measure_full_hit(Inference& inference, int32_t prompt_tokens, int32_t rounds, const Clock& clock) {
  HitResult result{.prompt_tokens = prompt_tokens};
  const int32_t vocab_size = inference.model().vocab_size;
  for (int32_t round = 0; round < rounds; ++round) {
    const std::vector<TokenId> prompt = prompt_number(round, prompt_tokens, vocab_size);
    DI_TRY(const FirstToken cold, first_token(inference, prompt, clock));
    DI_TRY(const FirstToken hit, first_token(inference, prompt, clock));
    result.cold_s.push_back(cold.seconds);
    result.hit_s.push_back(hit.seconds);
    result.cached_tokens = hit.usage.cached_tokens;
  }
  result.median_cold_s = median(result.cold_s);
  result.median_hit_s = median(result.hit_s);
  return result;
}

Result<StoredHitResult> measure_stored_hits(const ModelFlags& model, const std::string& folder, int32_t prompt_tokens, int32_t rounds) {
  StoredHitResult result;
  DI_TRY(const std::unique_ptr<ServedModel> first, start_warm(model, folder));
  result.prompt_tokens = std::min(prompt_tokens, first->engine->model().max_context - 1);
  const int32_t block_tokens = first->engine->stats().block_tokens;
  if (result.prompt_tokens <= block_tokens) return Error{Code::kInvalidArgument, "--tokens: must be more than a block of " + std::to_string(block_tokens)};
  for (int32_t round = 0; round < rounds; ++round) {
    DI_TRY(add_round(*first, round, result, result.cold));
    DI_TRY(add_round(*first, round, result, result.memory));
    first->store->flush();
  }
  first->engine.reset();  // its store lives on, with its locks: to others it is another process
  {
    DI_TRY(const std::unique_ptr<ServedModel> second, start_warm(model, folder));
    for (int32_t round = 0; round < rounds; ++round) DI_TRY(add_round(*second, round, result, result.other));
  }
  first->store.reset();
  DI_TRY(const std::unique_ptr<ServedModel> third, start_warm(model, folder));
  for (int32_t round = 0; round < rounds; ++round) DI_TRY(add_round(*third, round, result, result.restart));
  const bool as_it_should = result.cold.ram_tokens == 0 && result.memory.ram_tokens > 0 && result.other.shared_tokens > 0 && result.restart.disk_tokens > 0;
  if (!as_it_should) return Error{Code::kInternal, "a prompt that was stored was not found again"};
  return result;
}

}  // namespace deepinfer::apps
