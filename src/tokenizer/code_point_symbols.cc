#include "tokenizer/code_point_symbols.h"

#include <algorithm>
#include <string>
#include <utility>

#include "tokenizer/unicode.h"

namespace deepinfer::tokenizer {
namespace {

// Bytes that may be a proper part of one code point of two or three bytes.
bool is_fragment(std::string_view bytes) {
  if (bytes.empty() || bytes.size() > 2) return false;
  const auto high = [&](size_t i) { return static_cast<unsigned char>(bytes[i]) >= 0x80; };
  if (!high(0) || (bytes.size() == 2 && !high(1))) return false;
  return bytes.size() == 1 || decode_at(bytes, 0).size != 2;
}

}  // namespace

CodePointSymbols::Builder::Builder(const MergeTable& merges, const std::array<TokenId, 256>& byte_ids, size_t num_ids)
    : merges_(merges),
      byte_ids_(byte_ids),
      joints_before_(num_ids),
      joints_after_(num_ids),
      least_rank_(num_ids, MergeTable::kNoRank) {
  sets_.push_back(ByteSet().set());
}

void CodePointSymbols::Builder::add(const MergeTable::Entry& merge, std::string_view left, std::string_view right) {
  const uint32_t rank = merge.merge.rank;
  const auto l = static_cast<size_t>(merge.left), r = static_cast<size_t>(merge.right);
  least_rank_[l] = std::min(least_rank_[l], rank);
  least_rank_[r] = std::min(least_rank_[r], rank);
  if (left.empty() || right.empty()) return;
  if (is_fragment(right)) joints_before_[r].push_back({rank, left});
  if (is_fragment(left)) joints_after_[l].push_back({rank, right});
}

uint16_t CodePointSymbols::Builder::set_of(const ByteSet& set) {
  const auto at = std::find(sets_.begin() + 1, sets_.end(), set);
  if (at != sets_.end()) return static_cast<uint16_t>(at - sets_.begin());
  constexpr size_t kMaxSets = 1024;  // a vocabulary has a few dozen; past this an entry is not used, which is slower and as right
  if (sets_.size() == kMaxSets) return kNever;
  sets_.push_back(set);
  return static_cast<uint16_t>(sets_.size() - 1);
}

CodePointSymbols::Entry CodePointSymbols::Builder::entry_of(uint32_t code_point) {
  constexpr Entry kUnusable{{-1, -1, -1}, kNever, kNever};
  std::string bytes;
  append_utf8(code_point, bytes);
  std::vector<TokenId> symbols;
  for (const char b : bytes) symbols.push_back(byte_ids_[static_cast<unsigned char>(b)]);
  if (std::find(symbols.begin(), symbols.end(), -1) != symbols.end()) return kUnusable;

  // Merge one by one, as merge_symbols() does, and note what is used up and where in c it stood.
  struct Used {
    TokenId symbol;
    size_t begin, end;
  };
  std::vector<Used> used;
  uint32_t highest = 0;
  std::vector<size_t> begins(symbols.size() + 1);  // of the symbols, and the end
  for (size_t i = 0; i < begins.size(); ++i) begins[i] = i;
  for (;;) {
    size_t at = symbols.size();
    MergeTable::Merge best{MergeTable::kNoRank, -1};
    for (size_t i = 0; i + 1 < symbols.size(); ++i) {
      const MergeTable::Merge m = merges_.find(symbols[i], symbols[i + 1]);
      if (m.rank < best.rank) best = m, at = i;
    }
    if (best.rank == MergeTable::kNoRank) break;
    highest = std::max(highest, best.rank);
    used.push_back({symbols[at], begins[at], begins[at + 1]});
    used.push_back({symbols[at + 1], begins[at + 1], begins[at + 2]});
    symbols[at] = best.merged;
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(at) + 1);
    begins.erase(begins.begin() + static_cast<std::ptrdiff_t>(at) + 1);
  }
  for (size_t i = 0; i < symbols.size(); ++i) {
    const bool is_merged = begins[i + 1] - begins[i] > 1;
    if (is_merged && least_rank_[static_cast<size_t>(symbols[i])] <= highest) return kUnusable;
  }
  // A neighbour that spells the rest of c on its side and goes on outside: the byte with which it does makes c unsure.
  ByteSet before, after;
  for (const Used& u : used) {
    const std::string_view head = std::string_view(bytes).substr(0, u.begin), tail = std::string_view(bytes).substr(u.end);
    for (const Joint& j : joints_before_[static_cast<size_t>(u.symbol)]) {
      if (j.rank > highest || j.neighbour.size() <= head.size() || !j.neighbour.ends_with(head)) continue;
      before.set(static_cast<uint8_t>(j.neighbour[j.neighbour.size() - head.size() - 1]));
    }
    for (const Joint& j : joints_after_[static_cast<size_t>(u.symbol)]) {
      if (j.rank > highest || j.neighbour.size() <= tail.size() || !j.neighbour.starts_with(tail)) continue;
      after.set(static_cast<uint8_t>(j.neighbour[tail.size()]));
    }
  }
  Entry entry{{-1, -1, -1}, set_of(before), set_of(after)};
  std::copy(symbols.begin(), symbols.end(), entry.symbols);
  return entry;
}

CodePointSymbols CodePointSymbols::Builder::finish() {
  CodePointSymbols out;
  out.entries_.reserve(kEnd - kFirst);
  for (uint32_t c = kFirst; c < kEnd; ++c) {
    const bool surrogate = c >= 0xd800 && c < 0xe000;
    out.entries_.push_back(surrogate ? Entry{{-1, -1, -1}, kNever, kNever} : entry_of(c));
  }
  out.sets_ = std::move(sets_);
  return out;
}

void CodePointSymbols::to_symbols(std::string_view piece, const std::array<TokenId, 256>& byte_ids, std::vector<TokenId>& symbols) const {
  symbols.resize(piece.size());
  TokenId* out = symbols.data();
  const auto* p = reinterpret_cast<const unsigned char*>(piece.data());
  const size_t n = piece.size();
  bool bytes_lost = false;  // a byte without a token: neighbours of what follows are not the bytes next to it
  for (size_t pos = 0; pos < n;) {
    const unsigned char b = p[pos];
    if (b >= 0x80 && !bytes_lost) {
      const CodePoint c = decode_multibyte(p + pos, n - pos);
      if (c.value < kEnd) {
        const Entry& entry = entries_[c.value - kFirst];
        const size_t end = pos + c.size;
        const bool sure = entry.unsure_before != kNever && entry.unsure_after != kNever &&
                          (pos == 0 || !sets_[entry.unsure_before][p[pos - 1]]) &&
                          (end == n || (!sets_[entry.unsure_after][p[end]] && byte_ids[p[end]] >= 0));
        if (sure) {
          *out++ = entry.symbols[0];
          if (entry.symbols[1] >= 0) {
            *out++ = entry.symbols[1];
            if (entry.symbols[2] >= 0) *out++ = entry.symbols[2];
          }
          pos = end;
          continue;
        }
      }
    }
    const TokenId id = byte_ids[b];
    if (id >= 0) {
      *out++ = id;
    } else {
      bytes_lost = true;
    }
    ++pos;
  }
  symbols.resize(static_cast<size_t>(out - symbols.data()));
}

}  // namespace deepinfer::tokenizer
