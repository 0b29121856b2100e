// How byte-level vocabularies spell bytes: GPT-2 gave each of the 256 a printable code point, those that print well their own.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "tokenizer/unicode.h"

namespace deepinfer::tokenizer {

// The code point that spells a byte: itself for !..~, ¡..¬, ®..ÿ, else the next free one from U+0100 on.
inline constexpr std::array<uint16_t, 256> kByteSpelling = [] {
  std::array<uint16_t, 256> spelling{};
  uint16_t next = 256;
  for (uint16_t b = 0; b < 256; ++b) {
    const bool prints = (b >= '!' && b <= '~') || (b >= 0xa1 && b <= 0xac) || b >= 0xae;
    spelling[b] = prints ? b : next++;
  }
  return spelling;
}();

inline constexpr std::array<int16_t, 324> kSpelledByte = [] {
  std::array<int16_t, 324> byte{};
  for (int16_t& b : byte) b = -1;
  for (int b = 0; b < 256; ++b) byte[kByteSpelling[static_cast<size_t>(b)]] = static_cast<int16_t>(b);
  return byte;
}();

// The bytes that a spelling stands for, or nothing if a code point in it spells none.
inline std::optional<std::string> spelled_bytes(std::string_view spelling) {
  std::string bytes;
  for (size_t pos = 0; pos < spelling.size();) {
    const CodePoint c = decode_at(spelling, pos);
    if (c.value >= kSpelledByte.size() || kSpelledByte[c.value] < 0) return std::nullopt;
    bytes += static_cast<char>(kSpelledByte[c.value]);
    pos += c.size;
  }
  return bytes;
}

}  // namespace deepinfer::tokenizer
