// One screen for a terminal, from the report alone: so that merged and stored reports read the same.
#include <fmt/format.h>

#include <algorithm>
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

// Of a hit rate that cannot be known, a dash.
std::string rate_text(const json::value& hits) { return at(hits, "hit_rate") != nullptr ? percent(number(hits, "hit_rate")) : "-"; }

std::string hit_text(const json::value& hits) {
  std::string out = rate_text(hits);
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
  if (at(report, "reuse.block_tokens") != nullptr) {
    note("input.lengths_only.requests", "more requests tell only lengths: nothing can be known about their reuse, and they are in no other figure");
  } else {
    note("input.lengths_only.without_time", "requests have no time and are not on the timeline");
    note("input.lengths_only.wrong_clock", "requests have a time that cannot be, and are not on the timeline");
  }
  note("input.without_time", "requests have no time and took that of the one before");
  note("input.wrong_clock", "requests have a time before 2000 or after 2100, which was not used");
  note("input.backward_clock", "times go back by more than a minute within a file; requests were sorted");
  note("input.unrendered", "conversations could not be rendered and were counted as plain text");
  if (const json::value* errors = at(report, "input.errors"); errors != nullptr && errors->is_array()) {
    for (size_t i = 0; i < errors->get_array().size() && i < 3; ++i) out += fmt::format("note: {}\n", one_line(text(errors->get_array()[i], ""), 120));
  }
}

// Why there is no rate, if there is none.
void add_unknown_reuse(const json::value& report, std::string& out) {
  if (at(report, "sampling") == nullptr) {
    out += "\nRepeated prefixes: not known. The log tells lengths only; reuse, what retention or routing would save, and what breaks prefixes\n"
           "need prompts or hashes of their blocks.\n";
    return;
  }
  const double error = number(report, "reuse.unlimited.hit_rate_error"), suggested = number(report, "sampling.suggested_rate");
  const std::string why = at(report, "reuse.unlimited.hit_rate_error") == nullptr
                              ? "too few prefixes fall into this sample to tell how wrong it is"
                              : fmt::format("this sample may be wrong by ±{:.0f} points, more than the {:.0f} up to which a rate is given", error * 100, number(report, "sampling.max_error") * 100);
  out += fmt::format("\nRepeated prefixes: not known, {}.\n{}\n", why,
                     suggested < 1 ? fmt::format("Take a larger one: --sample {:.0f}%.", suggested * 100) : std::string("Leave --sample out: the log is small."));
}

void add_reuse(const json::value& report, std::string& out) {
  if (at(report, "reuse.unlimited.hit_rate") == nullptr) add_unknown_reuse(report, out);
  else out += fmt::format("\nRepeated prefixes (blocks of {} tokens)   {}\n", number(report, "reuse.block_tokens"), hit_text(*at(report, "reuse.unlimited")));
  if (at(report, "tokens.logged.hit_rate") != nullptr) out += fmt::format("  the log says that caches found         {}\n", percent(number(report, "tokens.logged.hit_rate")));
  if (at(report, "reuse.unlimited.hit_rate") == nullptr) return;
  std::string names, rates;
  if (const json::value* retentions = at(report, "reuse.by_retention"); retentions != nullptr && retentions->is_object()) {
    for (const auto& [name, hits] : retentions->get_object()) {
      names += fmt::format("{:>9}", std::string_view(name));
      rates += fmt::format("{:>9}", rate_text(hits));
    }
  }
  if (!names.empty()) out += fmt::format("  kept for {}\n           {}\n", names, rates);
  if (const json::value* policies = at(report, "routing.policies"); policies != nullptr && policies->is_array()) {
    out += fmt::format("  over {} workers:", number(report, "routing.workers"));
    for (const json::value& policy : policies->get_array()) {
      std::string name = text(policy, "policy");
      for (char& c : name) c = c == '_' ? ' ' : c;
      out += fmt::format(" {} {}{}", name, rate_text(policy), &policy == &policies->get_array().back() ? "\n" : ",");
    }
  }
  const json::value* elsewhere = at(report, "repetition.other_share");
  out += fmt::format("  repeated at other places, out of reach  {}\n", elsewhere != nullptr ? percent(number(*elsewhere, "")) : "not known from block hashes");
}

// Models that are in no sum of money.
void add_unpriced(const json::value& report, std::string& out) {
  const json::value *unpriced = at(report, "money.unpriced_models"), *models = at(report, "tokens.by_model");
  if (unpriced == nullptr || !unpriced->is_array() || unpriced->get_array().empty() || models == nullptr || !models->is_array()) return;
  std::string names;
  size_t num_shown = 0;
  double input = 0;
  for (const json::value& name : unpriced->get_array()) {
    for (const json::value& model : models->get_array()) {
      if (at(model, "model") != nullptr && *at(model, "model") == name) input += number(model, "input");
    }
    if (++num_shown > 4) continue;
    const std::string shown = one_line(text(name, ""), 60);
    names += (names.empty() ? "" : ", ") + (shown.empty() ? std::string("requests that name no model") : shown);
  }
  if (num_shown > 4) names += fmt::format(" and {} more", num_shown - 4);
  out += fmt::format("No price for {} ({} of the input), which no sum counts: name an entry with --price, or add one with --prices\n", names,
                     percent(input / std::max(1.0, number(report, "tokens.input"))));
}

void add_money(const json::value& report, std::string& out) {
  out += "\n";
  add_unpriced(report, out);
  if (at(report, "money.policies") == nullptr) return;
  const bool monthly = at(report, "money.input_cost_today_per_month") != nullptr;
  const std::string suffix = monthly ? "_per_month" : "";
  const std::string cost = fmt::format("Input costs {} {}", dollars(number(report, "money.input_cost_today" + suffix)), monthly ? "a month" : "for this log");
  const json::value* best = at(report, "money.best");
  if (best == nullptr) {
    out += fmt::format("{}{}\n", cost, at(report, "tokens.logged.cached") == nullptr ? ", all of it as new" : " with what caches found");
  } else if (number(*best, "saved") <= 0) {
    out += fmt::format("{}; no policy would have cost less than what was paid{}\n", cost, number(report, "input.incomplete") > 0 ? ", as far as logs of parts of prompts tell" : "");
  } else {
    out += fmt::format("{}; best: {}, saves {} ({} to {}), {}\n", cost, text(*best, "policy"), dollars(number(*best, "saved" + suffix)), dollars(number(*best, "saved" + suffix + "_low")),
                       dollars(number(*best, "saved" + suffix + "_high")), percent(number(*best, "saved_share")));
  }
}

void add_hardware(const json::value& report, std::string& out) {
  const json::value* own = at(report, "money.own_hardware");
  if (own == nullptr) return;
  out += fmt::format("On own hardware a million input tokens cost {} without a cache", dollars(number(*own, "without_cache.cost_per_million_input_tokens")));
  if (at(*own, "retention_unlimited") != nullptr) out += fmt::format(", {} with all prefixes kept", dollars(number(*own, "retention_unlimited.cost_per_million_input_tokens")));
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
