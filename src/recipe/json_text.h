// JSON as DeepSeek's models were trained to read it: the text that Python's json.dumps(ensure_ascii=False) writes. Input is JSON text,
// not an object model: digits of any length, and the order and first place of repeated keys, survive. Text in, text out; linear.
#pragma once

#include <boost/json/object.hpp>
#include <boost/json/value.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace deepinfer::recipe {

// Numbers with a fraction or an exponent are written with the fewest digits that read back as the same double. kPython: exponent form
// below 1e-4 and from 1e16 on, two exponent digits at least (1e-07). kCompact: below 1e-5, and no padding (1e-7).
enum class NumberStyle : uint8_t { kPython, kCompact };

// nullopt: not one JSON value, or nested deeper than 256. Lone surrogate escapes become U+FFFD; numbers beyond a double stay as written.
std::optional<std::string> format_json(std::string_view json, NumberStyle style);
std::string format_json(const boost::json::value& value, NumberStyle style);

// The text of an object, with `text`, which is JSON, as the value of its member `key`.
std::string text_with_member(const boost::json::object& object, std::string_view key, std::string_view text);

// A member of a JSON object: strings decoded, everything else as format_json() writes it.
struct JsonMember {
  std::string key;
  bool is_string = false;
  std::string text;
};
// nullopt: not a JSON object. A key that appears twice keeps its first place and its last value.
std::optional<std::vector<JsonMember>> json_members(std::string_view json, NumberStyle style);

// Appends `text` (UTF-8) with what a JSON string must escape escaped: " \ and controls below 0x20; without the quotes.
void append_json_escaped(std::string_view text, std::string& out);

}  // namespace deepinfer::recipe
