// What the caches of hosted providers would have found: their units, minimum lengths, retention, and whether a client must mark where
// a prefix ends. Rules are data (prices.toml); what a provider does not promise is named there as an assumption.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "trace/request_trace.h"

namespace deepinfer::trace {

struct CacheRule {
  std::string name;             // "openai", "anthropic-5m"
  int64_t min_tokens = 0;       // a shorter prefix is not cached
  int64_t step_tokens = 64;     // hits come in whole steps
  int64_t retention_us = 0;     // after the last use
  bool breakpoints = false;     // only marked prefixes are stored: here the end of tools and system, and the end of each prompt
};

struct ProviderCounts {
  std::vector<double> read_by_model, written_by_model, input_by_model;  // tokens
};

// order: by time. Each tenant has its own cache, as with every provider. Blocks of the trace round breakpoints down. On a sampled trace a
// hit ends in the middle between the last kept block that is there and the first that is not: an estimate.
ProviderCounts replay_provider(const RequestTrace& trace, std::span<const uint32_t> order, const CacheRule& rule);

}  // namespace deepinfer::trace
