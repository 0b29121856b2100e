#include "recipe/json_text.h"

#include <boost/json/serialize.hpp>
#include <charconv>
#include <cmath>
#include <unordered_map>
#include <utility>

namespace deepinfer::recipe {
namespace {

constexpr int kMaxDepth = 256;
constexpr std::string_view kReplacement = "\xef\xbf\xbd";

bool is_digit(char c) { return c >= '0' && c <= '9'; }

void append_code_point(uint32_t c, std::string& out) {
  if (c < 0x80) {
    out += static_cast<char>(c);
  } else if (c < 0x800) {
    out += static_cast<char>(0xc0 | (c >> 6));
    out += static_cast<char>(0x80 | (c & 0x3f));
  } else if (c < 0x10000) {
    out += static_cast<char>(0xe0 | (c >> 12));
    out += static_cast<char>(0x80 | ((c >> 6) & 0x3f));
    out += static_cast<char>(0x80 | (c & 0x3f));
  } else {
    out += static_cast<char>(0xf0 | (c >> 18));
    out += static_cast<char>(0x80 | ((c >> 12) & 0x3f));
    out += static_cast<char>(0x80 | ((c >> 6) & 0x3f));
    out += static_cast<char>(0x80 | (c & 0x3f));
  }
}

// value: finite. The shortest digits come from to_chars in scientific form: d[.ddd]e±xx.
void append_double(double value, NumberStyle style, std::string& out) {
  char buffer[40];
  const auto [end, error] = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific);
  std::string_view text(buffer, static_cast<size_t>(end - buffer));
  if (text.front() == '-') {
    out += '-';
    text.remove_prefix(1);
  }
  const size_t e = text.find('e');
  int exponent = 0;
  const std::string_view exponent_text = text.substr(text[e + 1] == '+' ? e + 2 : e + 1);
  std::from_chars(exponent_text.data(), exponent_text.data() + exponent_text.size(), exponent);
  std::string digits(1, text[0]);
  if (e > 2) digits += text.substr(2, e - 2);

  const int smallest = style == NumberStyle::kPython ? -4 : -5;
  if (exponent < smallest || exponent >= 16) {
    out += digits[0];
    if (digits.size() > 1) out.append(".").append(digits, 1);
    out += exponent < 0 ? "e-" : "e+";
    const std::string magnitude = std::to_string(std::abs(exponent));
    if (style == NumberStyle::kPython && magnitude.size() < 2) out += '0';
    out += magnitude;
  } else if (exponent < 0) {
    out.append("0.").append(static_cast<size_t>(-exponent - 1), '0').append(digits);
  } else {
    const size_t whole = static_cast<size_t>(exponent) + 1;
    if (digits.size() <= whole) {
      out.append(digits).append(whole - digits.size(), '0').append(".0");
    } else {
      out.append(digits, 0, whole).append(".").append(digits, whole);
    }
  }
}

void append_quoted(std::string_view text, std::string& out) {
  out += '"';
  append_json_escaped(text, out);
  out += '"';
}

// False: nested too deep.
bool append_value(const boost::json::value& value, NumberStyle style, int depth, std::string& out) {
  using Kind = boost::json::kind;
  switch (value.kind()) {
    case Kind::null: out += "null"; return true;
    case Kind::bool_: out += value.get_bool() ? "true" : "false"; return true;
    case Kind::int64: out += std::to_string(value.get_int64()); return true;
    case Kind::uint64: out += std::to_string(value.get_uint64()); return true;
    case Kind::double_:
      if (std::isfinite(value.get_double())) append_double(value.get_double(), style, out);
      else out += boost::json::serialize(value);
      return true;
    case Kind::string: append_quoted(value.get_string(), out); return true;
    case Kind::array: {
      const char* separator = "[";
      for (const boost::json::value& element : value.get_array()) {
        out += std::exchange(separator, ", ");
        if (depth == kMaxDepth || !append_value(element, style, depth + 1, out)) return false;
      }
      out += value.get_array().empty() ? "[]" : "]";
      return depth < kMaxDepth;
    }
    case Kind::object: {
      const char* separator = "{";
      for (const auto& [key, member] : value.get_object()) {
        out += std::exchange(separator, ", ");
        append_quoted(key, out);
        out += ": ";
        if (depth == kMaxDepth || !append_value(member, style, depth + 1, out)) return false;
      }
      out += value.get_object().empty() ? "{}" : "}";
      return depth < kMaxDepth;
    }
  }
  return false;
}

class Reader {
 public:
  Reader(std::string_view text, NumberStyle style) : text_(text), style_(style) {}

  bool whole_value(std::string& out) {
    if (!value(out, 0)) return false;
    skip_space();
    return at_ == text_.size();
  }

  bool whole_object(std::vector<JsonMember>& out) {
    skip_space();
    if (!take('{')) return false;
    const auto member_value = [&](JsonMember& member) {
      skip_space();
      member.is_string = peek() == '"';
      return member.is_string ? string(member.text) : value(member.text, 1);
    };
    if (!members(out, member_value)) return false;
    skip_space();
    return at_ == text_.size();
  }

 private:
  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  bool take(char c) {
    if (peek() != c || at_ == text_.size()) return false;
    ++at_;
    return true;
  }
  void skip_space() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t' || text_[at_] == '\n' || text_[at_] == '\r')) ++at_;
  }
  bool word(std::string_view word, std::string& out) {
    if (text_.substr(at_, word.size()) != word) return false;
    at_ += word.size();
    out += word;
    return true;
  }

  bool value(std::string& out, int depth) {
    skip_space();
    switch (peek()) {
      case '{': return object(out, depth);
      case '[': return array(out, depth);
      case '"': return quoted(out);
      case 't': return word("true", out);
      case 'f': return word("false", out);
      case 'n': return word("null", out);
      default: return number(out);
    }
  }

  bool quoted(std::string& out) {
    std::string decoded;
    if (!string(decoded)) return false;
    append_quoted(decoded, out);
    return true;
  }

  bool array(std::string& out, int depth) {
    if (depth == kMaxDepth || !take('[')) return false;
    out += '[';
    skip_space();
    if (!take(']')) {
      for (bool first = true;; first = false) {
        if (!first) out += ", ";
        if (!value(out, depth + 1)) return false;
        skip_space();
        if (take(']')) break;
        if (!take(',')) return false;
      }
    }
    out += ']';
    return true;
  }

  bool object(std::string& out, int depth) {
    if (depth == kMaxDepth || !take('{')) return false;
    std::vector<JsonMember> list;
    if (!members(list, [&](JsonMember& member) { return value(member.text, depth + 1); })) return false;
    out += '{';
    for (size_t i = 0; i < list.size(); ++i) {
      out += i == 0 ? "\"" : ", \"";
      append_json_escaped(list[i].key, out);
      out.append("\": ").append(list[i].text);
    }
    out += '}';
    return true;
  }

  // Behind the opening brace, through the closing one.
  template <class Value>
  bool members(std::vector<JsonMember>& out, const Value& read_value) {
    std::unordered_map<std::string, size_t> places;
    skip_space();
    if (take('}')) return true;
    while (true) {
      JsonMember member;
      skip_space();
      if (!string(member.key)) return false;
      skip_space();
      if (!take(':') || !read_value(member)) return false;
      const auto [place, is_new] = places.emplace(member.key, out.size());
      if (is_new) {
        out.push_back(std::move(member));
      } else {
        out[place->second] = std::move(member);
      }
      skip_space();
      if (take('}')) return true;
      if (!take(',')) return false;
    }
  }

  bool hex4(uint32_t& out) {
    if (text_.size() - at_ < 4) return false;
    const auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + at_ + 4, out, 16);
    if (error != std::errc() || end != text_.data() + at_ + 4) return false;
    at_ += 4;
    return true;
  }

  // Behind "\u".
  bool unicode_escape(std::string& out) {
    uint32_t c = 0;
    if (!hex4(c)) return false;
    if (c >= 0xd800 && c < 0xdc00 && text_.substr(at_, 2) == "\\u") {
      const size_t back = at_;
      at_ += 2;
      uint32_t low = 0;
      if (!hex4(low)) return false;
      if (low >= 0xdc00 && low < 0xe000) {
        append_code_point(0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00), out);
        return true;
      }
      at_ = back;  // the second escape stands for itself
    }
    if (c >= 0xd800 && c < 0xe000) {
      out += kReplacement;
    } else {
      append_code_point(c, out);
    }
    return true;
  }

  // A quoted string, decoded.
  bool string(std::string& out) {
    if (!take('"')) return false;
    while (at_ < text_.size()) {
      const size_t plain = at_;
      while (at_ < text_.size() && text_[at_] != '"' && text_[at_] != '\\' && static_cast<unsigned char>(text_[at_]) >= 0x20) ++at_;
      out.append(text_, plain, at_ - plain);
      if (take('"')) return true;
      if (!take('\\')) return false;
      const char c = peek();
      ++at_;
      switch (c) {
        case '"': case '\\': case '/': out += c; break;
        case 'b': out += '\b'; break;
        case 'f': out += '\f'; break;
        case 'n': out += '\n'; break;
        case 'r': out += '\r'; break;
        case 't': out += '\t'; break;
        case 'u':
          if (!unicode_escape(out)) return false;
          break;
        default: return false;
      }
    }
    return false;
  }

  bool digits() {
    const size_t begin = at_;
    while (at_ < text_.size() && is_digit(text_[at_])) ++at_;
    return at_ > begin;
  }

  bool number(std::string& out) {
    const size_t begin = at_;
    take('-');
    if (!take('0') && !digits()) return false;
    bool whole = true;
    if (take('.')) {
      whole = false;
      if (!digits()) return false;
    }
    if (take('e') || take('E')) {
      whole = false;
      if (!take('+')) take('-');
      if (!digits()) return false;
    }
    const std::string_view source = text_.substr(begin, at_ - begin);
    if (whole) {
      out += source == "-0" ? std::string_view("0") : source;
      return true;
    }
    double value = 0;
    const auto [end, error] = std::from_chars(source.data(), source.data() + source.size(), value);
    // Too small is 0 for every reader; too large has no double.
    const bool too_small = source.find("e-") != std::string_view::npos || source.find("E-") != std::string_view::npos || source.starts_with("0.") ||
                           source.starts_with("-0.");
    if (error == std::errc::result_out_of_range && !too_small) {
      out += source;
    } else {
      append_double(value, style_, out);
    }
    return true;
  }

  std::string_view text_;
  NumberStyle style_;
  size_t at_ = 0;
};

}  // namespace

std::optional<std::string> format_json(std::string_view json, NumberStyle style) {
  std::string out;
  if (!Reader(json, style).whole_value(out)) return std::nullopt;
  return out;
}

std::string format_json(const boost::json::value& value, NumberStyle style) {
  std::string out;
  if (!append_value(value, style, 0, out)) out.clear();
  return out;
}

std::string text_with_member(const boost::json::object& object, std::string_view key, std::string_view text) {
  std::string out = "{";
  for (const auto& [name, value] : object) {
    if (out.size() > 1) out += ',';
    out.append(boost::json::serialize(name)).append(":").append(name == key ? text : std::string_view(boost::json::serialize(value)));
  }
  return out + '}';
}

std::optional<std::vector<JsonMember>> json_members(std::string_view json, NumberStyle style) {
  std::vector<JsonMember> out;
  if (!Reader(json, style).whole_object(out)) return std::nullopt;
  return out;
}

void append_json_escaped(std::string_view text, std::string& out) {
  constexpr std::string_view kHex = "0123456789abcdef";
  size_t plain = 0;  // where what needs no escape began
  for (size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (c != '"' && c != '\\' && static_cast<unsigned char>(c) >= 0x20) continue;
    out.append(text, plain, at - plain);
    plain = at + 1;
    switch (c) {
      case '"': out += "\\\""; break;
      case '\\': out += "\\\\"; break;
      case '\b': out += "\\b"; break;
      case '\f': out += "\\f"; break;
      case '\n': out += "\\n"; break;
      case '\r': out += "\\r"; break;
      case '\t': out += "\\t"; break;
      default: out.append("\\u00").append(1, kHex[static_cast<unsigned char>(c) >> 4]).append(1, kHex[c & 15]);
    }
  }
  out.append(text, plain);
}

}  // namespace deepinfer::recipe
