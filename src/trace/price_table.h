// What tokens cost, as data: one entry a model or family, with the day it was looked up and where. Money is in US dollars a million
// tokens. The product's own table is data/prices.toml (apps/price_file.h reads it); users add entries of their own.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "trace/provider_cache.h"

namespace deepinfer::trace {

constexpr int64_t kHourUs = 3'600'000'000;

struct PriceEntry {
  std::string name;                  // "deepseek-v4-flash"
  std::vector<std::string> models;   // names in logs, * stands for anything
  double input = 0, cached = 0, output = 0;
  double written = 0;                // of tokens written to a cache; the price of input where writes are free
  double written_1h = 0;             // of those that are kept for an hour or longer
  std::string cache_rule;            // name of a CacheRule: what this provider's own cache finds
  std::string date, source, note;

  double write_price(int64_t retention_us) const { return retention_us >= kHourUs ? written_1h : written; }
};

struct PriceTable {
  std::vector<PriceEntry> entries;
  std::vector<CacheRule> rules;

  // The first entry, in order, that has a pattern for this name, or else for the name without the date of a snapshot; nullptr: none.
  const PriceEntry* find(std::string_view model) const;
  const PriceEntry* named(std::string_view name) const;
  const CacheRule* rule(std::string_view name) const;
};

// "gpt-5-2025-08-07", "claude-opus-4-5-20251101", "…@20251101" and Bedrock's "…-20251101-v1:0" to what stands before; other names as they are.
std::string_view without_date(std::string_view model);

bool matches_pattern(std::string_view pattern, std::string_view text);  // * for anything, letters of either case

}  // namespace deepinfer::trace
