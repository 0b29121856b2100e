#include "recipe/fields.h"

#include <fmt/format.h>

#include <boost/json/value.hpp>
#include <algorithm>
#include <cmath>

namespace deepinfer::recipe {
namespace json = boost::json;

namespace {

// The length of the well-formed code point at the start of text; 0: there is none.
size_t code_point_size(std::string_view text) {
  const auto byte = [&](size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0; };
  const auto follows = [&](size_t i) { return (byte(i) & 0xC0) == 0x80; };
  const unsigned char first = static_cast<unsigned char>(byte(0));
  if (first < 0x80) return 1;
  if (first >= 0xC2 && first < 0xE0) return follows(1) ? 2 : 0;
  if (first >= 0xE0 && first < 0xF0) {
    const bool overlong = first == 0xE0 && byte(1) < 0xA0, surrogate = first == 0xED && byte(1) >= 0xA0;
    return follows(1) && follows(2) && !overlong && !surrogate ? 3 : 0;
  }
  if (first >= 0xF0 && first < 0xF5) {
    const bool overlong = first == 0xF0 && byte(1) < 0x90, above = first == 0xF4 && byte(1) >= 0x90;
    return follows(1) && follows(2) && follows(3) && !overlong && !above ? 4 : 0;
  }
  return 0;
}

}  // namespace

std::string quotable(std::string_view text, size_t max_bytes) {
  std::string out;
  while (!text.empty()) {
    const size_t size = code_point_size(text);
    const std::string_view shown = size == 0 ? "\xef\xbf\xbd" : text.substr(0, size);
    if (out.size() + shown.size() > max_bytes) break;
    out += shown;
    text.remove_prefix(std::max<size_t>(size, 1));
  }
  return out;
}

std::optional<int64_t> exact_integer(const json::value& value) {
  if (value.is_int64()) return value.get_int64();
  if (value.is_uint64()) {
    if (value.get_uint64() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return std::nullopt;
    return static_cast<int64_t>(value.get_uint64());
  }
  if (!value.is_double()) return std::nullopt;
  const double number = value.get_double();
  // 2^53: above it a double no longer names one integer.
  if (!(std::abs(number) <= 0x1p53) || number != std::floor(number)) return std::nullopt;
  return static_cast<int64_t>(number);
}

std::optional<double> as_double(const json::value& value) {
  if (value.is_int64()) return static_cast<double>(value.get_int64());
  if (value.is_uint64()) return static_cast<double>(value.get_uint64());
  if (value.is_double()) return value.get_double();
  return std::nullopt;
}

std::string FieldReader::path_of(std::string_view key) const {
  if (path_.empty()) return std::string(key);
  if (key.empty()) return path_;
  return fmt::format("{}.{}", path_, key);
}

void FieldReader::wrong_type(std::string_view key, std::string_view expected) {
  fail(key, fmt::format("{} must be {}", path_of(key), expected));
}

const json::value* FieldReader::value(std::string_view key) {
  if (problems_.any()) return nullptr;
  const json::value* found = object_.if_contains(key);
  return found != nullptr && !found->is_null() ? found : nullptr;
}

std::optional<bool> FieldReader::boolean(std::string_view key) {
  const json::value* found = value(key);
  if (found == nullptr) return std::nullopt;
  if (!found->is_bool()) {
    wrong_type(key, "true or false");
    return std::nullopt;
  }
  return found->get_bool();
}

std::optional<int64_t> FieldReader::integer(std::string_view key, int64_t min, int64_t max) {
  const json::value* found = value(key);
  if (found == nullptr) return std::nullopt;
  const std::optional<int64_t> number = exact_integer(*found);
  if (!number || *number < min || *number > max) {
    if (max == std::numeric_limits<int64_t>::max()) {
      wrong_type(key, fmt::format("an integer of at least {}", min));
    } else {
      wrong_type(key, fmt::format("an integer from {} to {}", min, max));
    }
    return std::nullopt;
  }
  return number;
}

std::optional<double> FieldReader::number(std::string_view key, NumberRange range) {
  const json::value* found = value(key);
  if (found == nullptr) return std::nullopt;
  const std::optional<double> number = as_double(*found);
  const bool fits = number && *number <= range.max && (range.min_excluded ? *number > range.min : *number >= range.min);
  if (!fits) {
    const std::string_view relation = range.min_excluded ? "greater than" : "of at least";
    if (std::isinf(range.max)) {
      wrong_type(key, fmt::format("a number {} {}", relation, range.min));
    } else {
      wrong_type(key, fmt::format("a number {} {} and at most {}", relation, range.min, range.max));
    }
    return std::nullopt;
  }
  return number;
}

const json::string* FieldReader::string(std::string_view key) {
  const json::value* found = value(key);
  if (found == nullptr) return nullptr;
  if (!found->is_string()) wrong_type(key, "a string");
  return found->if_string();
}

const json::array* FieldReader::array(std::string_view key) {
  const json::value* found = value(key);
  if (found == nullptr) return nullptr;
  if (!found->is_array()) wrong_type(key, "an array");
  return found->if_array();
}

const json::object* FieldReader::object(std::string_view key) {
  const json::value* found = value(key);
  if (found == nullptr) return nullptr;
  if (!found->is_object()) wrong_type(key, "an object");
  return found->if_object();
}

std::string_view FieldReader::choice(std::string_view key, std::span<const std::string_view> choices) {
  const json::string* found = string(key);
  if (found == nullptr) return {};
  for (const std::string_view choice : choices) {
    if (std::string_view(*found) == choice) return choice;
  }
  wrong_type(key, fmt::format("one of {}", fmt::join(choices, ", ")));
  return {};
}

}  // namespace deepinfer::recipe
