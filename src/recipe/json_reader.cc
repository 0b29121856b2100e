#include "recipe/json_reader.h"

#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>
#include <boost/json/parse.hpp>
#include <charconv>
#include <optional>

#include "recipe/fields.h"

namespace deepinfer::recipe {
namespace json = boost::json;
namespace {

std::optional<uint32_t> hex4(std::string_view text) {
  if (text.size() < 4) return std::nullopt;
  uint32_t value = 0;
  for (size_t i = 0; i < 4; ++i) {
    const char c = text[i];
    uint32_t digit;
    if (c >= '0' && c <= '9') {
      digit = static_cast<uint32_t>(c - '0');
    } else if ((c | 0x20) >= 'a' && (c | 0x20) <= 'f') {
      digit = static_cast<uint32_t>((c | 0x20) - 'a' + 10);
    } else {
      return std::nullopt;
    }
    value = value * 16 + digit;
  }
  return value;
}

bool is_high(uint32_t unit) { return unit >= 0xD800 && unit < 0xDC00; }
bool is_low(uint32_t unit) { return unit >= 0xDC00 && unit < 0xE000; }

// Depth is bounded by the parser. repeated: the first key that appears twice in an object.
json::value hold(const simdjson::dom::element& element, std::optional<std::string>& repeated) {
  using Type = simdjson::dom::element_type;
  switch (element.type()) {
    case Type::ARRAY: {
      const simdjson::dom::array list = element.get_array().value_unsafe();
      json::array out;
      out.reserve(list.size());
      for (const simdjson::dom::element item : list) out.push_back(hold(item, repeated));
      return out;
    }
    case Type::OBJECT: {
      const simdjson::dom::object fields = element.get_object().value_unsafe();
      json::object out;
      out.reserve(fields.size());
      for (const auto field : fields) {
        const bool added = out.emplace(field.key, hold(field.value, repeated)).second;
        if (!added && !repeated) repeated = std::string(field.key);
      }
      return out;
    }
    case Type::INT64: return element.get_int64().value_unsafe();
    case Type::UINT64: return element.get_uint64().value_unsafe();
    case Type::DOUBLE: return element.get_double().value_unsafe();
    case Type::STRING: return json::value(element.get_string().value_unsafe());
    case Type::BOOL: return element.get_bool().value_unsafe();
    case Type::NULL_VALUE: break;
  }
  return nullptr;
}

std::string_view reason(simdjson::error_code error) {
  switch (error) {
    case simdjson::UTF8_ERROR: return "it is not valid UTF-8";
    case simdjson::EMPTY: return "it is empty";
    case simdjson::UNCLOSED_STRING: return "a string is not closed";
    case simdjson::UNESCAPED_CHARS: return "a string holds a control character that must be escaped";
    case simdjson::STRING_ERROR: return "a string holds a bad escape";
    case simdjson::NUMBER_ERROR: return "a number is malformed, or beyond a double";
    default: return "the syntax is wrong";
  }
}

// Digits, perhaps behind a sign, of a number that no integer type holds.
bool is_long_integer(std::string_view text) {
  const size_t sign = text.starts_with('-') ? 1 : 0;
  if (text.size() == sign || text.find_first_not_of("0123456789", sign) != std::string_view::npos) return false;
  int64_t negative = 0;
  uint64_t positive = 0;
  const char* const begin = text.data();
  const char* const end = begin + text.size();
  return (sign == 1 ? std::from_chars(begin, end, negative) : std::from_chars(begin, end, positive)).ec == std::errc::result_out_of_range;
}

bool is_number_char(char c) { return (c >= '0' && c <= '9') || c == '-' || c == '+' || c == '.' || c == 'e' || c == 'E'; }

// Integers of more than 64 bits with an exponent of nothing behind them, which makes doubles of them: JSON bounds no number, and a schema or
// the input of a call may hold one.
std::string with_long_integers_as_doubles(std::string_view body) {
  std::string out;
  bool in_string = false;
  for (size_t i = 0; i < body.size();) {
    const char c = body[i];
    size_t end = i + 1;
    if (in_string && c == '\\') {
      end = std::min(i + 2, body.size());
    } else if (c == '"') {
      in_string = !in_string;
    } else if (!in_string && is_number_char(c)) {
      while (end < body.size() && is_number_char(body[end])) ++end;
    }
    const std::string_view piece = body.substr(i, end - i);
    out += piece;
    if (!in_string && is_long_integer(piece)) out += "e0";
    i = end;
  }
  return out;
}

// The parser owns what root refers to.
simdjson::error_code parse(simdjson::dom::parser& parser, std::string& body, simdjson::dom::element& root) {
  const size_t size = body.size();
  body.append(simdjson::SIMDJSON_PADDING, ' ');
  const simdjson::error_code error = parser.allocate(size, kMaxJsonDepth);
  return error != simdjson::SUCCESS ? error : parser.parse(body.data(), size, /*realloc_if_needed=*/false).get(root);
}

}  // namespace

void replace_lone_surrogates(std::string& text) {
  const std::string_view view = text;
  size_t at = text.find('\\');
  while (at != std::string::npos && at + 1 < text.size()) {
    size_t next = at + 2;  // a backslash always takes the next byte with it
    const std::optional<uint32_t> unit = text[at + 1] == 'u' ? hex4(view.substr(at + 2)) : std::nullopt;
    if (unit) next = at + 6;
    if (unit && is_high(*unit)) {
      const bool escape = view.substr(next, 2) == "\\u";
      const std::optional<uint32_t> low = escape ? hex4(view.substr(next + 2)) : std::nullopt;
      if (low && is_low(*low)) {
        next += 6;
      } else {
        text.replace(at, 6, "\\ufffd");
      }
    } else if (unit && is_low(*unit)) {
      text.replace(at, 6, "\\ufffd");
    }
    at = text.find('\\', next);
  }
}

std::optional<json::value> parse_json(std::string_view text) {
  json::parse_options options;
  options.max_depth = 2 * kMaxJsonDepth;
  json::error_code error;
  json::value value = json::parse(text, error, {}, options);
  if (error) return std::nullopt;
  return value;
}

Result<json::object> read_json_object(std::string body) {
  replace_lone_surrogates(body);
  simdjson::dom::parser parser;
  simdjson::dom::element root;
  simdjson::error_code error = parse(parser, body, root);
  if (error == simdjson::NUMBER_ERROR) {
    body = with_long_integers_as_doubles(body);
    error = parse(parser, body, root);
  }
  if (error == simdjson::DEPTH_ERROR) {
    return Error{Code::kInvalidArgument, fmt::format("the body is nested deeper than {} levels", kMaxJsonDepth)};
  }
  if (error != simdjson::SUCCESS) return Error{Code::kInvalidArgument, fmt::format("the body is not valid JSON: {}", reason(error))};
  if (!root.is_object()) return Error{Code::kInvalidArgument, "the body must be a JSON object"};
  std::optional<std::string> repeated;
  json::value held = hold(root, repeated);
  if (repeated) return Error{Code::kInvalidArgument, fmt::format("the key \"{}\" appears twice in one object", recipe::quotable(*repeated))};
  return std::move(held.get_object());
}

}  // namespace deepinfer::recipe
