// Code points and their classes, for the hot path of the tokenizer: UTF-8 decoding that never fails, one two-level table, and NFC.
// The tables come from ICU at build time (tools/unicode_tables); ICU itself runs only on text that normalisation may change.
// Lost: ICU's own lookups (a call and three loads for each property) and a start-up table (5 ms at every start).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace deepinfer::tokenizer {

enum CharClass : uint8_t {
  kLetter = 1,        // general category L
  kMark = 2,          // M
  kNumber = 4,        // N
  kPunctuation = 8,   // P
  kSymbol = 16,       // S
  kSpace = 32,        // property White_Space
  kCjkRange = 64,     // U+4E00..U+9FA5, U+3040..U+30FF: a class of the DeepSeek pre-tokenizer
  kNfcCare = 128,     // fails the NFC quick check, or has a combining class
};

extern const char kUnicodeVersion[];
extern const uint8_t kClassIndex[0x1100];
extern const uint8_t kClassBlocks[];

inline uint8_t class_of(uint32_t code_point) {
  return kClassBlocks[size_t{kClassIndex[code_point >> 8]} * 256 + (code_point & 255)];
}

// One code point of a text. An invalid byte stands alone: size 1, value kInvalidByte, no class.
struct CodePoint {
  uint32_t value;
  uint32_t size;
};
inline constexpr uint32_t kInvalidByte = 0xffffffff;

// Bytes 2..n of a sequence that starts with byte b >= 0x80, at p (n bytes readable, n >= 1). Table 3-7 of the Unicode standard.
inline CodePoint decode_multibyte(const unsigned char* p, size_t n) {
  const uint32_t b = p[0];
  const auto tail = [&](size_t i) { return i < n && (p[i] & 0xc0) == 0x80; };
  if (b >= 0xc2 && b < 0xe0) {
    if (tail(1)) return {(b & 31) << 6 | (p[1] & 63u), 2};
  } else if (b >= 0xe0 && b < 0xf0) {
    if (tail(1) && tail(2)) {
      const uint32_t c = (b & 15) << 12 | (p[1] & 63u) << 6 | (p[2] & 63u);
      if (c >= 0x800 && (c < 0xd800 || c > 0xdfff)) return {c, 3};
    }
  } else if (b >= 0xf0 && b < 0xf5) {
    if (tail(1) && tail(2) && tail(3)) {
      const uint32_t c = (b & 7) << 18 | (p[1] & 63u) << 12 | (p[2] & 63u) << 6 | (p[3] & 63u);
      if (c >= 0x10000 && c < 0x110000) return {c, 4};
    }
  }
  return {kInvalidByte, 1};
}

// The code point at text[pos]; pos < text.size().
inline CodePoint decode_at(std::string_view text, size_t pos) {
  const auto* p = reinterpret_cast<const unsigned char*>(text.data()) + pos;
  if (*p < 0x80) return {*p, 1};
  return decode_multibyte(p, text.size() - pos);
}

void append_utf8(uint32_t code_point, std::string& out);

// How the bytes at text[pos] begin, for decoding that must not wait for more than it needs.
struct Subpart {
  uint32_t size;       // bytes of the code point, of the bad run, or of what is there of an unfinished one
  enum : uint8_t { kValid, kBad, kUnfinished } kind;
};
// kBad is a maximal subpart (Unicode 3.9, U+FFFD substitution); kUnfinished is a valid beginning cut by the end of the text.
Subpart subpart_at(std::string_view text, size_t pos);

// The text in NFC. Returns `text` itself when nothing can change (ASCII and most others), else a view of `storage`.
// Bytes that are not UTF-8 stay as they are.
std::string_view to_nfc(std::string_view text, std::string& storage);

}  // namespace deepinfer::tokenizer
