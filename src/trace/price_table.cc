#include "trace/price_table.h"

#include <algorithm>
#include <cctype>

namespace deepinfer::trace {

bool matches_pattern(std::string_view pattern, std::string_view text) {
  const auto same = [](char a, char b) { return std::tolower(static_cast<unsigned char>(a)) == std::tolower(static_cast<unsigned char>(b)); };
  size_t p = 0, t = 0, star = std::string_view::npos, retry = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      retry = t;
    } else if (p < pattern.size() && same(pattern[p], text[t])) {
      ++p;
      ++t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++retry;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

std::string_view without_date(std::string_view model) {
  constexpr std::string_view kDates[] = {"-dddd-dd-dd", "-dddddddd", "@dddddddd", "-dddddddd-vd:d"};
  for (const std::string_view date : kDates) {
    if (model.size() <= date.size()) continue;
    const std::string_view end = model.substr(model.size() - date.size());
    const bool fits = std::equal(end.begin(), end.end(), date.begin(), [](char c, char wanted) { return wanted == 'd' ? c >= '0' && c <= '9' : c == wanted; });
    if (fits) return model.substr(0, model.size() - date.size());
  }
  return model;
}

const PriceEntry* PriceTable::find(std::string_view model) const {
  for (const std::string_view name : {model, without_date(model)}) {
    for (const PriceEntry& entry : entries) {
      for (const std::string& pattern : entry.models) {
        if (matches_pattern(pattern, name)) return &entry;
      }
    }
  }
  return nullptr;
}

const PriceEntry* PriceTable::named(std::string_view name) const {
  const auto at = std::find_if(entries.begin(), entries.end(), [&](const PriceEntry& entry) { return entry.name == name; });
  return at != entries.end() ? &*at : nullptr;
}

const CacheRule* PriceTable::rule(std::string_view name) const {
  const auto at = std::find_if(rules.begin(), rules.end(), [&](const CacheRule& rule) { return rule.name == name; });
  return at != rules.end() ? &*at : nullptr;
}

}  // namespace deepinfer::trace
