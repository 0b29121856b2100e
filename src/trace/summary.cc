// One screen for a terminal, from the report alone: so that merged and stored reports read the same.
#include <fmt/format.h>

#include <boost/json/array.hpp>
#include <cmath>

#include "trace/report.h"

namespace deepinfer::trace {
namespace json = boost::json;
namespace {

const json::value* at(const json::value& value, std::string_view path) {
  const json::value* out = &value;
  while (!path.empty() && out != nullptr) {
    const size_t dot = path.find('.');
    const std::string_view key = path.substr(0, dot);
    const json::object* object = out->if_object();
    out = object != nullptr ? object->if_contains(key) : nullptr;
    path = dot == std::string_view::npos ? std::string_view() : path.substr(dot + 1);
  }
  return out != nullptr && !out->is_null() ? out : nullptr;
}

double number(const json::value& value, std::string_view path) {
  const json::value* found = at(value, path);
  boost::system::error_code error;
  return found != nullptr && found->is_number() ? found->to_number<double>(error) : 0;
}

std::string text(const json::value& value, std::string_view path) {
  const json::value* found = at(value, path);
  return found != nullptr && found->is_string() ? std::string(found->get_string()) : std::string();
}

// 1234567 as "1.23 M".
std::string short_number(double value) {
  static constexpr const char* kUnits[] = {"", " k", " M", " G", " T"};
  size_t unit = 0;
  while (std::abs(value) >= 999.5 && unit + 1 < std::size(kUnits)) {
    value /= 1000;
    ++unit;
  }
  return unit == 0 ? fmt::format("{:.0f}", value) : fmt::format("{:.{}f}{}", value, value < 10 ? 2 : value < 100 ? 1 : 0, kUnits[unit]);
}

std::string dollars(double value) {
  const std::string sign = value < 0 ? "-" : "";
  value = std::abs(value);
  if (value >= 10000) return fmt::format("{}${}", sign, short_number(value));
  return fmt::format("{}${:.{}f}", sign, value, value >= 100 ? 0 : value >= 1 ? 2 : 4);
}

std::string percent(double share) { return fmt::format("{:.2f} %", share * 100); }

std::string hit_text(const json::value& hits) {
  std::string out = percent(number(hits, "hit_rate"));
  if (at(hits, "hit_rate_error") != nullptr) out += fmt::format(" ±{:.2f}", number(hits, "hit_rate_error") * 100);
  return out;
}

// A client's text must not move the cursor.
std::string one_line(std::string_view text, size_t max_bytes) {
  std::string out;
  for (const char c : text.substr(0, max_bytes)) out += static_cast<unsigned char>(c) < ' ' || c == 0x7f ? ' ' : c;
  while (!out.empty() && (static_cast<unsigned char>(out.back()) & 0xC0) == 0x80) out.pop_back();
  if (!out.empty() && static_cast<unsigned char>(out.back()) >= 0xC0) out.pop_back();
  return out;
}

void add_input(const json::value& report, std::string& out) {
  out += fmt::format("{} requests from {} file{}, {} input tokens", number(report, "input.requests"), number(report, "input.files"),
                     number(report, "input.files") == 1 ? "" : "s", short_number(number(report, "tokens.input")));
  if (const double seconds = number(report, "input.span_seconds"); seconds > 0) {
    out += seconds >= 172800 ? fmt::format(" over {:.1f} days", seconds / 86400)
           : seconds >= 7200 ? fmt::format(" over {:.1f} h", seconds / 3600)
                             : fmt::format(" over {:.0f} min", seconds / 60);
  }
  out += fmt::format(" ({})\n", text(report, "tokens.tokenizer"));
  std::string skipped;
  if (const json::value* reasons = at(report, "input.skipped"); reasons != nullptr && reasons->is_object()) {
    for (const auto& [reason, count] : reasons->get_object()) {
      if (reason == skip_reason(Skip::kSessionLine)) continue;  // nothing that could have been read is missing
      skipped += fmt::format("{}{} {}", skipped.empty() ? "" : ", ", number(count, ""), std::string_view(reason));
    }
  }
  if (!skipped.empty()) out += fmt::format("skipped: {}\n", skipped);
  const auto note = [&](std::string_view path, std::string_view what) {
    if (const double count = number(report, path); count > 0) out += fmt::format("note: {:.0f} {}\n", count, what);
  };
  note("input.incomplete", "requests were logged without all of their prompt (system, tools or stored turns): real prompts repeat more");
  note("input.lengths_only.requests", "requests tell only lengths: nothing can be known about their reuse");
  note("input.without_time", "requests have no time and took that of the one before");
  note("input.wrong_clock", "requests have a time before 2000 or after 2100, which was not used");
  note("input.backward_clock", "times go back by more than a minute within a file; requests were sorted");
  note("input.unrendered", "conversations could not be rendered and were counted as plain text");
  if (const json::value* errors = at(report, "input.errors"); errors != nullptr && errors->is_array()) {
    for (size_t i = 0; i < errors->get_array().size() && i < 3; ++i) out += fmt::format("note: {}\n", one_line(text(errors->get_array()[i], ""), 120));
  }
}

void add_reuse(const json::value& report, std::string& out) {
  out += fmt::format("\nRepeated prefixes (blocks of {} tokens)   {}\n", number(report, "reuse.block_tokens"), hit_text(*at(report, "reuse.unlimited")));
  if (number(report, "tokens.logged.requests") > 0) out += fmt::format("  the log says that caches found         {}\n", percent(number(report, "tokens.logged.hit_rate")));
  std::string names, rates;
  if (const json::value* retentions = at(report, "reuse.by_retention"); retentions != nullptr && retentions->is_object()) {
    for (const auto& [name, hits] : retentions->get_object()) {
      names += fmt::format("{:>9}", std::string_view(name));
      rates += fmt::format("{:>9}", percent(number(hits, "hit_rate")));
    }
  }
  if (!names.empty()) out += fmt::format("  kept for {}\n           {}\n", names, rates);
  if (const json::value* policies = at(report, "routing.policies"); policies != nullptr && policies->is_array()) {
    out += fmt::format("  over {} workers:", number(report, "routing.workers"));
    for (const json::value& policy : policies->get_array()) {
      std::string name = text(policy, "policy");
      for (char& c : name) c = c == '_' ? ' ' : c;
      out += fmt::format(" {} {}{}", name, percent(number(policy, "hit_rate")), &policy == &policies->get_array().back() ? "\n" : ",");
    }
  }
  out += fmt::format("  repeated at other places, out of reach  {}\n", percent(number(report, "repetition.other_share")));
}

void add_money(const json::value& report, std::string& out) {
  const json::value* best = at(report, "money.best");
  if (best == nullptr) {
    const json::value* unpriced = at(report, "money.unpriced_models");
    if (unpriced != nullptr && unpriced->is_array() && !unpriced->get_array().empty()) {
      const std::string model = one_line(text(unpriced->get_array()[0], ""), 60);
      out += fmt::format("\n{}: name an entry with --price, or add one with --prices\n", model.empty() ? "No price, since the log names no model" : fmt::format("No price for model '{}'", model));
    }
    return;
  }
  const bool monthly = at(*best, "saved_per_month") != nullptr;
  const std::string suffix = monthly ? "_per_month" : "";
  if (number(*best, "saved") <= 0) {
    out += fmt::format("\nInput costs {} {}; no policy would have cost less than what was paid{}\n", dollars(number(report, monthly ? "money.input_cost_today_per_month" : "money.input_cost_today")),
                       monthly ? "a month" : "for this log", number(report, "input.incomplete") > 0 ? ", as far as logs of parts of prompts tell" : "");
    return;
  }
  out += fmt::format("\nInput costs {} {}; best: {}, saves {} ({} to {}), {}\n", dollars(number(report, monthly ? "money.input_cost_today_per_month" : "money.input_cost_today")),
                     monthly ? "a month" : "for this log", text(*best, "policy"), dollars(number(*best, "saved" + suffix)),
                     dollars(number(*best, monthly ? "saved_per_month_low" : "saved_low")), dollars(number(*best, monthly ? "saved_per_month_high" : "saved_high")),
                     percent(number(*best, "saved_share")));
}

void add_hardware(const json::value& report, std::string& out) {
  const json::value* own = at(report, "money.own_hardware");
  if (own == nullptr) return;
  out += fmt::format("On own hardware a million input tokens cost {} without a cache, {} with all prefixes kept",
                     dollars(number(*own, "without_cache.cost_per_million_input_tokens")), dollars(number(*own, "retention_unlimited.cost_per_million_input_tokens")));
  if (at(*own, "retention_unlimited.margin_per_accelerator_hour") != nullptr) {
    out += fmt::format("; margin {} an accelerator-hour", dollars(number(*own, "retention_unlimited.margin_per_accelerator_hour")));
  }
  out += "\n";
}

void add_breakers(const json::value& report, std::string& out) {
  const json::value* breakers = at(report, "breakers");
  if (breakers == nullptr || !breakers->is_array() || breakers->get_array().empty()) return;
  out += "\nWhat breaks prefixes:\n";
  for (size_t i = 0; i < breakers->get_array().size() && i < 3; ++i) {
    const json::value& one = breakers->get_array()[i];
    out += fmt::format("{}. {} in {}: {:.0f} times, {} tokens lost", i + 1, text(one, "kind"), one_line(text(one, "segment"), 60), number(one, "count"),
                       short_number(number(one, "lost_tokens")));
    if (at(one, "cost_per_month") != nullptr) out += fmt::format(", {} a month", dollars(number(one, "cost_per_month")));
    out += fmt::format("\n   - {}\n   + {}\n   {}\n", one_line(text(one, "example.old"), 100), one_line(text(one, "example.new"), 100), text(one, "suggestion"));
  }
}

}  // namespace

std::string summary_text(const json::object& report) {
  const json::value value(report);
  std::string out;
  add_input(value, out);
  if (at(value, "sampling") != nullptr) out += fmt::format("sampled: {} of the prefixes, errors are 95 % intervals\n", percent(number(value, "sampling.rate")));
  add_reuse(value, out);
  add_money(value, out);
  add_hardware(value, out);
  add_breakers(value, out);
  return out;
}

}  // namespace deepinfer::trace
