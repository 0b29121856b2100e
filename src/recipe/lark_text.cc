#include "recipe/lark_text.h"

#include <fmt/format.h>

#include <boost/json/serialize.hpp>
#include <boost/json/string.hpp>
#include <boost/json/value.hpp>

namespace deepinfer::recipe {

std::string lark_string(std::string_view text) {
  const std::string quoted = boost::json::serialize(boost::json::value(boost::json::string(text)));
  std::string out;
  for (const char c : quoted) {
    if (c == '\x7F') {
      out += "\\u007f";
    } else {
      out += c;
    }
  }
  return out;
}

std::string regex_text(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7F) {
      out += fmt::format("\\x{:02x}", byte);
    } else {
      if (std::string_view("\\^$.|?*+()[]{}/-&~#").find(c) != std::string_view::npos) out += '\\';
      out += c;
    }
  }
  return out;
}

}  // namespace deepinfer::recipe
