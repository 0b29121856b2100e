#include "kv/block_place.h"

#include <charconv>
#include <fmt/format.h>

#include "kv/segment_format.h"

namespace deepinfer::kv {
namespace {

constexpr std::string_view kPrefix = "deepinfer:2:";

// The text up to the next space, which is taken away too.
std::string_view take_word(std::string_view& rest) {
  const size_t space = rest.find(' ');
  const std::string_view word = rest.substr(0, space);
  rest = space == std::string_view::npos ? std::string_view() : rest.substr(space + 1);
  return word;
}

bool parse_u32(std::string_view text, uint32_t& out) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  return error == std::errc() && end == text.data() + text.size();
}

}  // namespace

std::string index_key(const BlockKey& key) {
  std::string out(kPrefix);
  out.append(reinterpret_cast<const char*>(key.bytes.data()), key.bytes.size());
  return out;
}

std::string encode_place(const BlockPlace& place) {
  return fmt::format("{} {} {} {} {}", place.tenant, place.name, place.page, place.length, place.written_after_s);
}

Result<BlockPlace> decode_place(std::string_view value) {
  BlockPlace place;
  place.tenant = take_word(value);
  place.name = take_word(value);
  const bool numbers = parse_u32(take_word(value), place.page) && parse_u32(take_word(value), place.length) && parse_u32(value, place.written_after_s);
  if (!numbers || place.page == 0 || place.length == 0 || place.length > kMaxRowBytes || place.written_after_s > INT32_MAX || !is_folder_name(place.tenant) || !is_segment_name(place.name)) {
    return Error{Code::kCorruption, "shared index: no place of a block"};
  }
  return place;
}

}  // namespace deepinfer::kv
