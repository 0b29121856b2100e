#include "tokenizer/engram_map.h"

#include <unicode/normalizer2.h>
#include <unicode/uchar.h>
#include <unicode/unistr.h>

#include <unordered_map>

#include "base/check.h"
#include "tokenizer/byte_map.h"
#include "tokenizer/unicode.h"

namespace deepinfer::tokenizer {
namespace {

bool is_blank(UChar32 c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }
bool is_mark(UChar32 c) { return (U_GET_GC_MASK(c) & U_GC_M_MASK) != 0; }

icu::UnicodeString decomposed(std::string_view text) {
  UErrorCode status = U_ZERO_ERROR;
  const icu::Normalizer2* compatible = icu::Normalizer2::getNFKCInstance(status);
  const icu::Normalizer2* canonical = icu::Normalizer2::getNFDInstance(status);
  CHECK(U_SUCCESS(status));
  const auto source = icu::UnicodeString::fromUTF8(icu::StringPiece(text.data(), static_cast<int32_t>(text.size())));
  const icu::UnicodeString out = canonical->normalize(compatible->normalize(source, status), status);
  CHECK(U_SUCCESS(status));
  return out;
}

// Without marks, lower case, each run of blanks as one space.
std::u32string folded(const icu::UnicodeString& text) {
  std::u32string out;
  bool in_blanks = false;
  for (int32_t i = 0; i < text.length(); i = text.moveIndex32(i, 1)) {
    const UChar32 c = text.char32At(i);
    if (is_mark(c)) continue;
    if (!is_blank(c)) out += static_cast<char32_t>(u_tolower(c));
    else if (!in_blanks) out += U' ';
    in_blanks = is_blank(c);
  }
  return out;
}

// The text that the tokenizer shows for one id, or, where its bytes are no text, the vocabulary's own spelling of them.
std::string token_key(std::string_view bytes, bool added) {
  bool is_text = true;
  for (size_t pos = 0; pos < bytes.size() && is_text;) {
    const CodePoint c = decode_at(bytes, pos);
    is_text = c.value != kInvalidByte && c.value != 0xfffd;
    pos += c.size;
  }
  if (is_text) return engram_key(bytes);
  if (added) return std::string(bytes);
  std::string spelling;
  for (const char byte : bytes) append_utf8(kByteSpelling[static_cast<uint8_t>(byte)], spelling);
  return spelling;
}

}  // namespace

std::string engram_key(std::string_view text) {
  const std::u32string all = folded(decomposed(text));
  size_t begin = 0, end = all.size();
  if (all != U" ") {
    while (begin < end && u_isUWhiteSpace(static_cast<UChar32>(all[begin]))) ++begin;
    while (end > begin && u_isUWhiteSpace(static_cast<UChar32>(all[end - 1]))) --end;
  }
  if (begin == end) return std::string(text);
  std::string out;
  for (size_t i = begin; i < end; ++i) append_utf8(static_cast<uint32_t>(all[i]), out);
  return out;
}

std::vector<int32_t> engram_token_map(const Tokenizer& tokenizer, int32_t vocab_size) {
  std::vector<bool> added(static_cast<size_t>(vocab_size), false);
  for (const auto& token : tokenizer.added_tokens())
    if (token.id < vocab_size) added[static_cast<size_t>(token.id)] = true;
  std::unordered_map<std::string, int32_t> seen;
  std::vector<int32_t> map;
  map.reserve(static_cast<size_t>(vocab_size));
  for (TokenId id = 0; id < vocab_size; ++id) {
    const std::string key = token_key(tokenizer.token_bytes(id), added[static_cast<size_t>(id)]);
    map.push_back(seen.try_emplace(key, static_cast<int32_t>(seen.size())).first->second);
  }
  return map;
}

}  // namespace deepinfer::tokenizer
