#include "trace/base64.h"

#include <array>
#include <cstdint>

namespace deepinfer::trace {
namespace {

constexpr std::string_view kAlphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

}  // namespace

std::string encode_base64(std::string_view bytes) {
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t at = 0; at < bytes.size(); at += 3) {
    uint32_t bits = 0;
    const size_t count = std::min<size_t>(3, bytes.size() - at);
    for (size_t i = 0; i < 3; ++i) bits = bits << 8 | (i < count ? static_cast<uint8_t>(bytes[at + i]) : 0);
    for (size_t i = 0; i < 4; ++i) out += i <= count ? kAlphabet[bits >> (18 - 6 * i) & 63] : '=';
  }
  return out;
}

std::string decode_base64(std::string_view text) {
  std::array<int8_t, 256> value;
  value.fill(-1);
  for (size_t i = 0; i < kAlphabet.size(); ++i) value[static_cast<uint8_t>(kAlphabet[i])] = static_cast<int8_t>(i);
  value['-'] = value['+'];  // the URL-safe alphabet too
  value['_'] = value['/'];
  std::string out;
  out.reserve(text.size() / 4 * 3);
  uint32_t bits = 0;
  int num_bits = 0;
  for (const char c : text) {
    const int8_t six = value[static_cast<uint8_t>(c)];
    if (six < 0) break;
    bits = bits << 6 | static_cast<uint32_t>(six);
    num_bits += 6;
    if (num_bits >= 8) out += static_cast<char>(bits >> (num_bits -= 8));
  }
  return out;
}

}  // namespace deepinfer::trace
