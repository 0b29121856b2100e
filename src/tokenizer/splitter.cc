#include "tokenizer/splitter.h"

#include <algorithm>
#include <array>

#include "tokenizer/unicode.h"

namespace deepinfer::tokenizer {
namespace {

constexpr uint8_t kNewline = 128;  // CR or LF, in place of kNfcCare, which no scanner needs
constexpr uint8_t kAsciiAlpha = 64;  // in the ASCII table only, in place of kCjkRange, which no ASCII character has

constexpr std::array<uint8_t, 128> make_ascii_classes() {
  std::array<uint8_t, 128> t{};
  for (int c = 'a'; c <= 'z'; ++c) t[c] = kLetter | kAsciiAlpha;
  for (int c = 'A'; c <= 'Z'; ++c) t[c] = kLetter | kAsciiAlpha;
  for (int c = '0'; c <= '9'; ++c) t[c] = kNumber;
  for (const char c : std::string_view("!\"#%&'()*,-./:;?@[\\]_{}")) t[static_cast<unsigned char>(c)] = kPunctuation;
  for (const char c : std::string_view("$+<=>^`|~")) t[static_cast<unsigned char>(c)] = kSymbol;
  for (const char c : std::string_view("\t\v\f ")) t[static_cast<unsigned char>(c)] = kSpace;
  t['\r'] = t['\n'] = kSpace | kNewline;
  return t;
}
constexpr std::array<uint8_t, 128> kAscii = make_ascii_classes();

// A place in the text with the class of the code point there.
struct Cursor {
  const unsigned char* text;
  size_t size;

  struct Char {
    uint8_t bits;   // classes
    uint8_t bytes;  // 0 at the end of the text
  };
  Char at(size_t pos) const {
    if (pos >= size) return {0, 0};
    if (text[pos] < 0x80) return {kAscii[text[pos]], 1};
    const CodePoint c = decode_multibyte(text + pos, size - pos);
    if (c.value == kInvalidByte) return {0, 1};
    return {static_cast<uint8_t>(class_of(c.value) & ~kNfcCare), static_cast<uint8_t>(c.size)};
  }
  unsigned char byte(size_t pos) const { return pos < size ? text[pos] : 0; }

  // Past the run of code points that have one of the classes.
  size_t skip_any(size_t pos, uint8_t bits) const {
    while (pos < size) {
      if (text[pos] < 0x80) {
        if (!(kAscii[text[pos]] & bits)) return pos;
        ++pos;
        continue;
      }
      const Char c = at(pos);
      if (!(c.bits & bits)) return pos;
      pos += c.bytes;
    }
    return pos;
  }
  // Past the run of code points that have none of the classes.
  size_t skip_none(size_t pos, uint8_t bits) const {
    while (pos < size) {
      const Char c = at(pos);
      if (c.bits & bits) return pos;
      pos += c.bytes;
    }
    return pos;
  }
  size_t skip_newlines(size_t pos) const {
    while (pos < size && (text[pos] == '\n' || text[pos] == '\r')) ++pos;
    return pos;
  }
};

// 's 't 're 've 'm 'll 'd after the apostrophe at pos; 0 if none. In any case, Unicode folds U+017F (long s) to s as well.
size_t contraction(const Cursor& text, size_t pos, bool any_case) {
  const unsigned char fold = any_case ? 0x20 : 0;
  const unsigned char a = text.byte(pos + 1) | fold, b = text.byte(pos + 2) | fold;
  if (a == 's' || a == 't' || a == 'm' || a == 'd') return 2;
  if ((a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l')) return 3;
  if (any_case && text.byte(pos + 1) == 0xc5 && text.byte(pos + 2) == 0xbf) return 3;
  return 0;
}

// A run of white space from pos on, where only code points that `stays` accepts belong to the text.
// \s+(?!\S)|\s+ : all of it at the end of the text; else all but the last, which the next piece may want; one alone is taken.
struct SpaceRun {
  size_t end;           // of the run
  size_t last;          // where its last code point starts
  size_t after_newline;  // past its last CR or LF; 0: it has none
};
SpaceRun space_run(const Cursor& text, size_t pos) {
  SpaceRun run{pos, pos, 0};
  for (;;) {
    const Cursor::Char c = text.at(run.end);
    if (!(c.bits & kSpace)) return run;
    run.last = run.end;
    run.end += c.bytes;
    if (c.bits & kNewline) run.after_newline = run.end;
  }
}
size_t cut_space(const SpaceRun& run, size_t pos, bool at_end_of_text) {
  return at_end_of_text || run.last == pos ? run.end : run.last;
}

// '(?:s|t|re|ve|m|ll|d)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
// kDigits: every \p{N} was cut out beforehand, so it ends the text that the pattern sees.
template <bool kDigits>
size_t gpt2_end(const Cursor& text, size_t pos) {
  Cursor::Char c = text.at(pos);
  if (kDigits && (c.bits & kNumber)) return pos + c.bytes;
  if (text.byte(pos) == '\'') {
    if (const size_t n = contraction(text, pos, false)) return pos + n;
  }
  size_t next = pos;
  if (text.byte(pos) == ' ') {
    c = text.at(++next);
    if (c.bytes == 0 || (kDigits && (c.bits & kNumber))) return next;  // a space before the end of this text
  }
  if (!(c.bits & kSpace)) {
    if (c.bits & kLetter) return text.skip_any(next + c.bytes, kLetter);
    if (c.bits & kNumber) return text.skip_any(next + c.bytes, kNumber);
    return text.skip_none(next + c.bytes, kSpace | kLetter | kNumber);
  }
  const SpaceRun run = space_run(text, pos);
  return cut_space(run, pos, run.end == text.size || (kDigits && (text.at(run.end).bits & kNumber)));
}

// (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,max}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
template <int kMaxDigits>
size_t llama3_end(const Cursor& text, size_t pos) {
  const Cursor::Char c = text.at(pos);
  if (c.bits & kLetter) return text.skip_any(pos + c.bytes, kLetter);
  if (c.bits & kNumber) {
    size_t end = pos + c.bytes;
    for (int n = 1; n < kMaxDigits; ++n) {
      const Cursor::Char d = text.at(end);
      if (!(d.bits & kNumber)) break;
      end += d.bytes;
    }
    return end;
  }
  if (text.byte(pos) == '\'') {
    if (const size_t n = contraction(text, pos, true)) return pos + n;
  }
  const size_t next = pos + c.bytes;
  const Cursor::Char d = text.at(next);
  if (!(c.bits & kNewline) && (d.bits & kLetter)) return text.skip_any(next + d.bytes, kLetter);
  if (!(c.bits & kSpace)) return text.skip_newlines(text.skip_none(next, kSpace | kLetter | kNumber));
  if (text.byte(pos) == ' ' && d.bytes != 0 && !(d.bits & (kSpace | kLetter | kNumber))) {
    return text.skip_newlines(text.skip_none(next + d.bytes, kSpace | kLetter | kNumber));
  }
  const SpaceRun run = space_run(text, pos);
  if (run.after_newline != 0) return run.after_newline;
  return cut_space(run, pos, run.end == text.size);
}

// Three patterns, one after another, each inside the pieces of the one before:
//   \p{N}{1,3}
//   [一-龥぀-ゟ゠-ヿ]+
//   [!-/:-@\[-`{-~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
// The third sees texts of one kind: digits only (nothing matches them), the CJK range only, or the rest. `at` gives the end of
// the text where the kind changes.
struct DeepSeek3 {
  const Cursor& text;
  bool cjk;  // the kind of this text

  Cursor::Char at(size_t pos) const {
    const Cursor::Char c = text.at(pos);
    if (c.bits & kNumber) return {0, 0};
    const bool is_cjk = (c.bits & kCjkRange) && c.bytes > 1;
    return is_cjk == cjk ? c : Cursor::Char{0, 0};
  }
  size_t skip(size_t pos, uint8_t bits) const {
    for (;;) {
      const Cursor::Char c = at(pos);
      if (c.bytes == 0 || !(c.bits & bits)) return pos;
      pos += c.bytes;
    }
  }
  size_t skip_newlines(size_t pos) const { return cjk ? pos : text.skip_newlines(pos); }  // a newline is never in the CJK range
  // The end of a match that starts here, or 0.
  size_t match(size_t pos) const {
    constexpr uint8_t kWord = kLetter | kMark, kSign = kPunctuation | kSymbol;
    const Cursor::Char c = at(pos);
    const size_t next = pos + c.bytes;
    if (c.bits & kLetter) return skip(next, kWord);
    const Cursor::Char d = at(next);
    if (c.bits & kSign) {
      if (c.bytes == 1 && d.bytes == 1 && (d.bits & kAsciiAlpha)) {
        size_t end = next + 1;
        while (end < text.size && text.text[end] < 0x80 && (kAscii[text.text[end]] & kAsciiAlpha)) ++end;
        return end;
      }
      return skip_newlines(skip(next, kSign));
    }
    if (!(c.bits & kNewline) && (d.bits & kWord)) return skip(next + d.bytes, kWord);
    if (c.bits & kMark) return next;
    if (text.byte(pos) == ' ' && (d.bits & kSign)) return skip_newlines(skip(next + d.bytes, kSign));
    if (c.bits & kSpace) {
      const SpaceRun run = space_run(text, pos);  // white space is of the third kind only: the run does not leave it
      if (run.after_newline != 0) return run.after_newline;
      return cut_space(run, pos, at(run.end).bytes == 0);
    }
    return 0;
  }
};

size_t deepseek3_end(const Cursor& text, size_t pos) {
  const Cursor::Char first = text.at(pos);
  if (first.bits & kNumber) {
    size_t end = pos + first.bytes;
    for (int n = 1; n < 3; ++n) {
      const Cursor::Char d = text.at(end);
      if (!(d.bits & kNumber)) break;
      end += d.bytes;
    }
    return end;
  }
  const DeepSeek3 scan{text, (first.bits & kCjkRange) && first.bytes > 1};
  if (const size_t end = scan.match(pos)) return end;
  // What matches nowhere is a piece of its own, up to the next match.
  for (size_t end = pos + first.bytes;;) {
    const Cursor::Char c = scan.at(end);
    if (c.bytes == 0 || scan.match(end) != 0) return end;
    end += c.bytes;
  }
}

template <size_t (*kEnd)(const Cursor&, size_t)>
size_t fill(const Cursor& text, size_t begin, std::span<size_t> ends) {
  size_t n = 0;
  for (size_t pos = begin; pos < text.size && n < ends.size(); ++n) ends[n] = pos = kEnd(text, pos);
  return n;
}

}  // namespace

size_t split(Splitter splitter, std::string_view text, size_t begin, std::span<size_t> ends) {
  const Cursor cursor{reinterpret_cast<const unsigned char*>(text.data()), text.size()};
  switch (splitter) {
    case Splitter::kNone:
      if (begin >= text.size() || ends.empty()) return 0;
      ends[0] = text.size();
      return 1;
    case Splitter::kGpt2: return fill<gpt2_end<false>>(cursor, begin, ends);
    case Splitter::kDigitsGpt2: return fill<gpt2_end<true>>(cursor, begin, ends);
    case Splitter::kLlama3: return fill<llama3_end<3>>(cursor, begin, ends);
    case Splitter::kQwen2: return fill<llama3_end<1>>(cursor, begin, ends);
    case Splitter::kDeepSeek3: return fill<deepseek3_end>(cursor, begin, ends);
  }
  return 0;
}

}  // namespace deepinfer::tokenizer
