#include "tokenizer/unicode.h"

#include <unicode/bytestream.h>
#include <unicode/normalizer2.h>

#include <cstring>

#include "base/check.h"

namespace deepinfer::tokenizer {

void append_utf8(uint32_t c, std::string& out) {
  if (c < 0x80) {
    out += static_cast<char>(c);
  } else if (c < 0x800) {
    out += static_cast<char>(0xc0 | c >> 6);
    out += static_cast<char>(0x80 | (c & 63));
  } else if (c < 0x10000) {
    out += static_cast<char>(0xe0 | c >> 12);
    out += static_cast<char>(0x80 | (c >> 6 & 63));
    out += static_cast<char>(0x80 | (c & 63));
  } else {
    out += static_cast<char>(0xf0 | c >> 18);
    out += static_cast<char>(0x80 | (c >> 12 & 63));
    out += static_cast<char>(0x80 | (c >> 6 & 63));
    out += static_cast<char>(0x80 | (c & 63));
  }
}

Subpart subpart_at(std::string_view text, size_t pos) {
  const auto* p = reinterpret_cast<const unsigned char*>(text.data()) + pos;
  const size_t n = text.size() - pos;
  const unsigned char b = p[0];
  if (b < 0x80) return {1, Subpart::kValid};
  uint32_t length = 0;
  unsigned char low = 0x80, high = 0xbf;  // bounds of the second byte; later ones are always 80..BF
  if (b >= 0xc2 && b <= 0xdf) length = 2;
  if (b >= 0xe0 && b <= 0xef) length = 3;
  if (b >= 0xf0 && b <= 0xf4) length = 4;
  if (b == 0xe0) low = 0xa0;
  if (b == 0xed) high = 0x9f;
  if (b == 0xf0) low = 0x90;
  if (b == 0xf4) high = 0x8f;
  if (length == 0) return {1, Subpart::kBad};
  for (uint32_t i = 1; i < length; ++i) {
    if (i == n) return {i, Subpart::kUnfinished};
    if (p[i] < low || p[i] > high) return {i, Subpart::kBad};
    low = 0x80, high = 0xbf;
  }
  return {length, Subpart::kValid};
}

namespace {

// The first byte that normalisation has to look at, or the size of the text.
size_t find_nfc_care(std::string_view text) {
  size_t pos = 0;
  while (pos < text.size()) {
    if (pos + 8 <= text.size()) {
      uint64_t word;
      std::memcpy(&word, text.data() + pos, 8);
      if ((word & 0x8080808080808080u) == 0) {
        pos += 8;
        continue;
      }
    }
    const CodePoint c = decode_at(text, pos);
    if (c.value >= 0x300 && c.value != kInvalidByte && (class_of(c.value) & kNfcCare)) return pos;
    pos += c.size;
  }
  return pos;
}

bool is_plain_ascii(char c) { return static_cast<unsigned char>(c) < 0x80; }

}  // namespace

std::string_view to_nfc(std::string_view text, std::string& storage) {
  size_t care = find_nfc_care(text);
  if (care == text.size()) return text;
  UErrorCode status = U_ZERO_ERROR;
  const icu::Normalizer2* nfc = icu::Normalizer2::getNFCInstance(status);
  CHECK(U_SUCCESS(status));
  storage.clear();
  storage.reserve(text.size() + text.size() / 8);
  // Only the neighbourhood of a doubtful code point goes through ICU: from the ASCII character before it to the next run of ASCII.
  // An ASCII character starts a normalisation segment: nothing before it combines across it.
  size_t done = 0;
  while (care < text.size()) {
    size_t begin = care;
    while (begin > done && !is_plain_ascii(text[begin])) --begin;
    size_t end = care;
    while (end < text.size() && !is_plain_ascii(text[end])) ++end;
    storage.append(text, done, begin - done);
    // Bytes that are not UTF-8 part the run: ICU is shown well-formed text only.
    size_t run = begin;
    const auto flush = [&](size_t to) {
      constexpr size_t kMaxCall = size_t{1} << 30;  // ICU counts in int32
      CHECK(to - run < kMaxCall);
      if (to == run) return;
      icu::StringByteSink<std::string> sink(&storage);  // appends
      nfc->normalizeUTF8(0, icu::StringPiece(text.data() + run, static_cast<int32_t>(to - run)), sink, nullptr, status);
      CHECK(U_SUCCESS(status));
    };
    for (size_t pos = begin; pos < end;) {
      const CodePoint c = decode_at(text, pos);
      if (c.value == kInvalidByte) {
        flush(pos);
        storage += text[pos];
        run = pos + 1;
      }
      pos += c.size;
    }
    flush(end);
    done = end;
    care = end + find_nfc_care(text.substr(end));
  }
  storage.append(text, done);
  return storage;
}

}  // namespace deepinfer::tokenizer
