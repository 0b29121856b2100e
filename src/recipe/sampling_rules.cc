#include "recipe/sampling_rules.h"

#include <algorithm>

namespace deepinfer::recipe {
namespace {

constexpr int32_t kThinkingTokens = 65536, kMaxEffortTokens = 131072, kAnswerTokens = 8192;
constexpr float kThinkingTopP = 0.95f;

void while_thinking(Dialect dialect, const Conversation& conversation, SamplingParams& sampling) {
  sampling.temperature = 1;
  if (dialect == Dialect::kV41) {
    sampling.top_p = std::max(sampling.top_p, kThinkingTopP);
  } else {
    sampling.top_p = conversation.tools_active() ? kThinkingTopP : 1;
  }
  sampling.presence_penalty = sampling.frequency_penalty = 0;
  sampling.repetition_penalty = 1;
}

}  // namespace

void apply_sampling_rules(const OptionsContext& context, const Conversation& conversation, GenerationOptions& options) {
  if (context.dialect == Dialect::kTemplate) return;
  const bool thinking = conversation.thinking.value_or(true);
  const int32_t thinking_tokens = conversation.effort == Effort::kMax ? kMaxEffortTokens : kThinkingTokens;
  options.default_max_tokens = thinking ? thinking_tokens : kAnswerTokens;
  if (!context.force_thinking_sampling) return;
  if (thinking) {
    while_thinking(context.dialect, conversation, options.sampling);
  } else if (context.dialect == Dialect::kV41) {
    options.sampling.top_p = 1;
  }
}

}  // namespace deepinfer::recipe
