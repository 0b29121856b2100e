#include "trace/json_value.h"

#include <charconv>
#include <chrono>
#include <cmath>

namespace deepinfer::trace {
namespace {

// From the size of a number since 1970: seconds reach 1e11 in the year 5138, milliseconds passed it in 1973.
std::optional<int64_t> time_us_of_number(double value) {
  if (!std::isfinite(value) || value < 0) return std::nullopt;
  if (value < 1e11) return std::llround(value * 1e6);
  if (value < 1e14) return std::llround(value * 1e3);
  if (value < 1e17) return std::llround(value);
  if (value < 9e18) return std::llround(value / 1e3);
  return std::nullopt;
}

// Digits at the front of `text`, which loses them.
std::optional<int64_t> take_number(std::string_view& text, size_t num_digits) {
  if (text.size() < num_digits) return std::nullopt;
  int64_t out = 0;
  for (size_t i = 0; i < num_digits; ++i) {
    if (text[i] < '0' || text[i] > '9') return std::nullopt;
    out = out * 10 + (text[i] - '0');
  }
  text.remove_prefix(num_digits);
  return out;
}

bool take(std::string_view& text, std::string_view any_of) {
  if (text.empty() || any_of.find(text[0]) == std::string_view::npos) return false;
  text.remove_prefix(1);
  return true;
}

// "10:00:00.25" and what follows: "Z", "+01:00", " -0700" or nothing.
std::optional<int64_t> take_clock_us(std::string_view& text) {
  const auto hour = take_number(text, 2);
  if (!hour || !take(text, ":")) return std::nullopt;
  const auto minute = take_number(text, 2);
  if (!minute) return std::nullopt;
  int64_t us = (*hour * 3600 + *minute * 60) * 1'000'000;
  if (take(text, ":")) {
    const auto second = take_number(text, 2);
    if (!second) return std::nullopt;
    us += *second * 1'000'000;
    if (take(text, ".,")) {
      int64_t unit = 100'000;
      while (!text.empty() && text[0] >= '0' && text[0] <= '9') {
        us += (text[0] - '0') * unit;
        unit /= 10;
        text.remove_prefix(1);
      }
    }
  }
  take(text, " ");
  if (text.empty() || text == "Z" || text == "z" || text == "UTC") return us;
  const bool west = text[0] == '-';
  if (!take(text, "+-")) return std::nullopt;
  const auto offset_hour = take_number(text, 2);
  take(text, ":");
  const auto offset_minute = text.empty() ? std::optional<int64_t>(0) : take_number(text, 2);
  if (!offset_hour || !offset_minute) return std::nullopt;
  const int64_t offset = (*offset_hour * 3600 + *offset_minute * 60) * 1'000'000;
  return west ? us + offset : us - offset;
}

std::optional<int64_t> day_us(int64_t year, int64_t month, int64_t day) {
  const std::chrono::year_month_day date{std::chrono::year(static_cast<int>(year)), std::chrono::month(static_cast<unsigned>(month)),
                                         std::chrono::day(static_cast<unsigned>(day))};
  if (!date.ok()) return std::nullopt;
  return std::chrono::sys_days(date).time_since_epoch().count() * int64_t{86'400'000'000};
}

std::optional<int64_t> parse_iso(std::string_view text) {
  const auto year = take_number(text, 4);
  if (!year || !take(text, "-/")) return std::nullopt;
  const auto month = take_number(text, 2);
  if (!month || !take(text, "-/")) return std::nullopt;
  const auto day = take_number(text, 2);
  if (!day) return std::nullopt;
  const auto midnight = day_us(*year, *month, *day);
  if (!midnight || text.empty()) return midnight;
  if (!take(text, "Tt ")) return std::nullopt;
  const auto clock = take_clock_us(text);
  if (!clock) return std::nullopt;
  return *midnight + *clock;
}

std::optional<int64_t> parse_common_log(std::string_view text) {
  constexpr std::string_view kMonths = "JanFebMarAprMayJunJulAugSepOctNovDec";
  const auto day = take_number(text, 2);
  if (!day || !take(text, "/") || text.size() < 3) return std::nullopt;
  const size_t month = kMonths.find(text.substr(0, 3));
  text.remove_prefix(3);
  if (month == std::string_view::npos || month % 3 != 0 || !take(text, "/")) return std::nullopt;
  const auto year = take_number(text, 4);
  if (!year || !take(text, ":")) return std::nullopt;
  const auto midnight = day_us(*year, static_cast<int64_t>(month / 3 + 1), *day);
  const auto clock = take_clock_us(text);
  if (!midnight || !clock) return std::nullopt;
  return *midnight + *clock;
}

}  // namespace

MaybeJson member(const MaybeJson& object, std::string_view key) {
  simdjson::dom::object members;
  simdjson::dom::element value;
  if (!object || object->get(members) != simdjson::SUCCESS || members.at_key(key).get(value) != simdjson::SUCCESS || value.is_null()) {
    return std::nullopt;
  }
  return value;
}

MaybeJson member_at(const MaybeJson& object, std::string_view path) {
  // A key may itself hold dots (OpenTelemetry's do): the whole first, then step by step.
  if (MaybeJson whole = member(object, path)) return whole;
  const size_t dot = path.find('.');
  if (dot == std::string_view::npos) return std::nullopt;
  return member_at(member(object, path.substr(0, dot)), path.substr(dot + 1));
}

MaybeJson first_member(const MaybeJson& object, std::initializer_list<std::string_view> paths) {
  for (const std::string_view path : paths) {
    if (MaybeJson value = member_at(object, path)) return value;
  }
  return std::nullopt;
}

bool is_object(const MaybeJson& value) { return value && value->is_object(); }
bool is_array(const MaybeJson& value) { return value && value->is_array(); }

std::string_view text_of(const MaybeJson& value) {
  std::string_view text;
  if (!value || value->get(text) != simdjson::SUCCESS) return {};
  return text;
}

std::string name_of(const MaybeJson& value) {
  if (!value || value->is_object() || value->is_array()) return {};
  return value->is_string() ? std::string(text_of(value)) : json_text(*value);
}

std::optional<int64_t> integer_of(const MaybeJson& value) {
  if (!value) return std::nullopt;
  int64_t whole = 0;
  if (value->get(whole) == simdjson::SUCCESS) return whole;
  double real = 0;
  if (value->get(real) == simdjson::SUCCESS) {
    if (std::abs(real) < 9e15) return std::llround(real);
    return std::nullopt;
  }
  const std::string_view text = text_of(value);
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), whole);
  if (text.empty() || status != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return whole;
}

std::optional<int64_t> time_us_of(const MaybeJson& value) {
  if (!value) return std::nullopt;
  double number = 0;
  if (value->get(number) == simdjson::SUCCESS) return time_us_of_number(number);
  return parse_time_us(text_of(value));
}

std::optional<int64_t> parse_time_us(std::string_view text) {
  double number = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (!text.empty() && status == std::errc() && end == text.data() + text.size()) return time_us_of_number(number);
  if (const auto iso = parse_iso(text)) return iso;
  return parse_common_log(text);
}

std::string json_text(const Json& value) { return simdjson::minify(value); }

boost::json::value to_boost(const Json& value, boost::json::storage_ptr memory) {
  using Type = simdjson::dom::element_type;
  switch (value.type()) {
    case Type::ARRAY: {
      boost::json::array out(memory);
      for (const Json element : simdjson::dom::array(value)) out.push_back(to_boost(element, memory));
      return out;
    }
    case Type::OBJECT: {
      boost::json::object out(memory);
      for (const auto& [key, element] : simdjson::dom::object(value)) out.insert_or_assign(key, to_boost(element, memory));
      return out;
    }
    case Type::INT64: return int64_t(value);
    case Type::UINT64: return uint64_t(value);
    case Type::DOUBLE: return double(value);
    case Type::STRING: return boost::json::string(std::string_view(value), memory);
    case Type::BOOL: return bool(value);
    case Type::NULL_VALUE: return nullptr;
  }
  return nullptr;
}

}  // namespace deepinfer::trace
