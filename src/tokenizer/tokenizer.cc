#include "tokenizer/tokenizer.h"

#include <cstring>

#include "base/check.h"
#include "tokenizer/unicode.h"

namespace deepinfer::tokenizer {
namespace {

constexpr std::string_view kReplacement = "\xef\xbf\xbd";  // U+FFFD

// Appends the text with bad runs replaced; returns where an unfinished code point at its end begins (its size if there is none).
size_t append_repaired(std::string_view bytes, std::string& out) {
  size_t done = 0;  // up to here it is in `out`
  size_t pos = 0;
  while (pos < bytes.size()) {
    if (static_cast<unsigned char>(bytes[pos]) < 0x80) {
      ++pos;
      continue;
    }
    const Subpart part = subpart_at(bytes, pos);
    if (part.kind == Subpart::kUnfinished) break;
    if (part.kind == Subpart::kBad) {
      out.append(bytes, done, pos - done);
      out += kReplacement;
      done = pos + part.size;
    }
    pos += part.size;
  }
  out.append(bytes, done, pos - done);
  return pos;
}

}  // namespace

std::string Tokenizer::decode(std::span<const TokenId> ids, bool show_special) const {
  std::string out;
  Detokenizer detokenizer(*this, show_special);
  for (const TokenId id : ids) detokenizer.push(id, out);
  detokenizer.finish(out);
  if (add_space_prefix() && !out.empty() && out[0] == ' ') out.erase(0, 1);
  return out;
}

Detokenizer::Detokenizer(const Tokenizer& tokenizer, bool show_special) : tokenizer_(&tokenizer), show_special_(show_special) {}

void Detokenizer::push(TokenId id, std::string& out) {
  if (!show_special_ && tokenizer_->is_special(id)) return;
  std::string_view bytes = tokenizer_->token_bytes(id);
  // A pending beginning takes bytes one by one until it is decided; that needs no more than the 3 that may follow it.
  while (num_pending_ > 0 && !bytes.empty()) {
    pending_[num_pending_++] = bytes[0];
    bytes.remove_prefix(1);
    const std::string_view pending(pending_, num_pending_);
    const Subpart part = subpart_at(pending, 0);
    if (part.kind == Subpart::kUnfinished) continue;
    if (part.kind == Subpart::kValid) {
      out += pending;
      num_pending_ = 0;
      continue;
    }
    // The last byte broke it: the run before is bad, and the byte may begin something itself.
    out += kReplacement;
    const char last = pending_[num_pending_ - 1];
    num_pending_ = 0;
    const std::string_view rest(&last, 1);
    if (append_repaired(rest, out) == 0) pending_[num_pending_++] = last;
  }
  if (bytes.empty()) return;
  const size_t end = append_repaired(bytes, out);
  for (const char c : bytes.substr(end)) {
    DCHECK(num_pending_ < 3);
    pending_[num_pending_++] = c;
  }
}

void Detokenizer::finish(std::string& out) {
  if (num_pending_ > 0) out += kReplacement;
  num_pending_ = 0;
}

}  // namespace deepinfer::tokenizer
