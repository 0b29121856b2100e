// SentencePiece BPE (Llama 1 and 2, Mistral): spaces are U+2581, symbols are code points, a pair merges if the two together are a
// token, the best score first. A code point that is no token falls back to its bytes.
#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <unordered_map>
#include <utility>

#include "tokenizer/basic_tokenizer.h"
#include "tokenizer/merges.h"
#include "tokenizer/piece_map.h"
#include "tokenizer/source.h"
#include "tokenizer/unicode.h"

namespace deepinfer::tokenizer {
namespace {

constexpr uint32_t kSpaceMark = 0x2581;
// Symbols that are no tokens: a code point, or a byte that is not UTF-8, above all ids.
constexpr TokenId kCodePointBase = 0x40000000;
constexpr TokenId kByteBase = 0x60000000;
constexpr size_t kMaxTokenBytes = 1024;  // bounds the work of cutting each token in two everywhere

TokenId symbol_of(const std::unordered_map<uint32_t, TokenId>& single, uint32_t code_point) {
  const auto at = single.find(code_point);
  return at != single.end() ? at->second : kCodePointBase + static_cast<TokenId>(code_point);
}

struct Rules {
  MergeTable merges;
  std::unordered_map<uint32_t, TokenId> single;  // tokens of one code point
  std::array<TokenId, 256> byte_ids;
  bool add_space_prefix = false;
  bool cut_before_space = true;     // no token has U+2581 behind another code point: nothing merges across
};

class SentencePieceTokenizer final : public BasicTokenizer {
 public:
  SentencePieceTokenizer(Vocabulary vocabulary, Added added, Rules rules)
      : BasicTokenizer(std::move(vocabulary), std::move(added)), rules_(std::move(rules)) {
    for (unsigned char c = 0; c < 128; ++c) ascii_[c] = symbol_of(rules_.single, c == ' ' ? kSpaceMark : c);
  }

  bool add_space_prefix() const override { return rules_.add_space_prefix; }

 protected:
  std::string_view normalize(std::string_view text, std::string& storage) const override {
    if (!rules_.add_space_prefix) return text;
    storage.assign(1, ' ').append(text);
    return storage;
  }

  void encode_text(std::string_view text, Scratch& scratch, std::vector<TokenId>& out) const override {
    for (size_t begin = 0; begin < text.size();) {
      const size_t end = rules_.cut_before_space ? piece_end(text, begin) : text.size();
      encode_piece(text.substr(begin, end - begin), text.size() - begin, scratch, out);
      begin = end;
    }
  }

 private:
  static bool is_space(std::string_view text, size_t pos) { return text[pos] == ' ' || text.substr(pos, 3) == "\xe2\x96\x81"; }

  // Spaces, then everything up to the next space.
  static size_t piece_end(std::string_view text, size_t begin) {
    size_t pos = begin;
    while (pos < text.size() && is_space(text, pos)) pos += text[pos] == ' ' ? 1 : 3;
    while (pos < text.size() && !is_space(text, pos)) ++pos;
    return pos;
  }

  void encode_piece(std::string_view piece, size_t readable, Scratch& scratch, std::vector<TokenId>& out) const {
    const bool cached = piece.size() <= PieceCache::kMaxPiece;
    PieceCache::Key key;
    if (cached) {
      key = PieceCache::key_of(piece, readable);
      if (const PieceCache::Entry* hit = scratch.cache.find(key)) {
        out.insert(out.end(), hit->ids, hit->ids + hit->count);
        return;
      }
    }
    const size_t before = out.size();
    merge_piece(piece, scratch, out);
    if (cached) scratch.cache.insert(key, out.data() + before, out.size() - before);
  }

  void merge_piece(std::string_view piece, Scratch& scratch, std::vector<TokenId>& out) const {
    std::vector<TokenId>& symbols = scratch.symbols;
    symbols.clear();
    for (size_t pos = 0; pos < piece.size();) {
      const CodePoint c = decode_at(piece, pos);
      if (c.value < 128) {
        symbols.push_back(ascii_[c.value]);
      } else if (c.value == kInvalidByte) {
        symbols.push_back(kByteBase + static_cast<unsigned char>(piece[pos]));
      } else {
        symbols.push_back(symbol_of(rules_.single, c.value));
      }
      pos += c.size;
    }
    const size_t n = merge_symbols(rules_.merges, symbols.data(), symbols.size(), scratch.merge);
    for (size_t i = 0; i < n; ++i) emit(symbols[i], out);
  }

  void emit(TokenId symbol, std::vector<TokenId>& out) const {
    if (symbol < kCodePointBase) {
      out.push_back(symbol);
    } else if (symbol >= kByteBase) {
      out.push_back(rules_.byte_ids[static_cast<size_t>(symbol - kByteBase)]);
    } else {
      std::string bytes;
      append_utf8(static_cast<uint32_t>(symbol - kCodePointBase), bytes);
      for (const char b : bytes) out.push_back(rules_.byte_ids[static_cast<unsigned char>(b)]);
    }
  }

  Rules rules_;
  std::array<TokenId, 128> ascii_;
};

// <0xNN>: the value, or -1.
int byte_of_spelling(std::string_view s) {
  if (s.size() != 6 || s.substr(0, 3) != "<0x" || s[5] != '>') return -1;
  int value = 0;
  for (const char c : s.substr(3, 2)) {
    const int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
    if (digit < 0) return -1;
    value = value * 16 + digit;
  }
  return value;
}

struct Vocab {
  const Source& source;
  PieceMap ids;  // normal tokens, by spelling

  std::string_view spelling(TokenId id) const { return source.spellings[static_cast<size_t>(id)]; }
  TokenId find(std::string_view s) const {
    return ids.find(s, [this](TokenId id) { return spelling(id); });
  }
};

// Where U+2581 stands behind another code point, cutting a text before its spaces would cut a token.
bool has_inner_space(std::string_view spelling) {
  bool other = false;
  for (size_t pos = 0; pos < spelling.size();) {
    const CodePoint c = decode_at(spelling, pos);
    if (c.value == kSpaceMark && other) return true;
    other |= c.value != kSpaceMark;
    pos += c.size;
  }
  return false;
}

Result<Vocab> index_tokens(const Source& source, Rules& rules) {
  Vocab vocab{source, {}};
  vocab.ids.reserve(source.spellings.size());
  rules.byte_ids.fill(-1);
  for (size_t i = 0; i < source.spellings.size(); ++i) {
    const auto id = static_cast<TokenId>(i);
    const std::string_view spelling = source.spellings[i];
    if (source.kinds[i] == TokenKind::kByte) {
      const int byte = byte_of_spelling(spelling);
      if (byte < 0) return source.error(Code::kCorruption, "byte token \"" + std::string(spelling) + "\" is not of the form <0xNN>");
      rules.byte_ids[static_cast<size_t>(byte)] = id;
    }
    if (source.kinds[i] != TokenKind::kNormal || spelling.empty()) continue;
    if (spelling.size() > kMaxTokenBytes) {
      return source.error(Code::kUnsupported, "token " + std::to_string(i) + " is longer than " + std::to_string(kMaxTokenBytes) + " bytes");
    }
    if (!vocab.ids.insert(spelling, id, [&](TokenId other) { return vocab.spelling(other); })) {
      return source.error(Code::kCorruption, "two tokens are spelt \"" + std::string(spelling) + "\"");
    }
    const CodePoint c = decode_at(spelling, 0);
    if (c.size == spelling.size() && c.value != kInvalidByte) rules.single.emplace(c.value, id);
    if (has_inner_space(spelling)) rules.cut_before_space = false;
  }
  const auto missing = std::find(rules.byte_ids.begin(), rules.byte_ids.end(), -1);
  if (missing != rules.byte_ids.end()) {
    return source.error(Code::kUnsupported, "a SentencePiece vocabulary without byte fallback (no token for byte " +
                                                std::to_string(missing - rules.byte_ids.begin()) + ")");
  }
  return vocab;
}

// Merges as a list of pairs, best first.
Result<> add_listed_merges(const Vocab& vocab, Rules& rules) {
  const Source& source = vocab.source;
  rules.merges.reserve(source.merges.size());
  std::string both;
  for (size_t rank = 0; rank < source.merges.size(); ++rank) {
    const auto& [left, right] = source.merges[rank];
    both.assign(left).append(right);
    const TokenId left_id = vocab.find(left), right_id = vocab.find(right), id = vocab.find(both);
    if (left_id < 0 || right_id < 0 || id < 0) {
      const std::string_view unknown = left_id < 0 ? left : right_id < 0 ? right : std::string_view(both);
      return source.error(Code::kCorruption, "merge " + std::to_string(rank) + " (\"" + std::string(left) + "\" and \"" +
                                                 std::string(right) + "\") names \"" + std::string(unknown) + "\", which is no token");
    }
    rules.merges.insert(left_id, right_id, {static_cast<uint32_t>(rank), id});
  }
  return {};
}

// Merges as scores of tokens: a token may come from any two neighbours that spell it. Equal scores have equal rank.
Result<> add_scored_merges(const Vocab& vocab, Rules& rules) {
  const Source& source = vocab.source;
  if (source.scores.size() != source.spellings.size()) {
    return source.error(Code::kCorruption, std::to_string(source.scores.size()) + " scores for " +
                                               std::to_string(source.spellings.size()) + " tokens");
  }
  std::vector<float> order;  // distinct scores, best first
  for (const float score : source.scores) {
    if (std::isnan(score)) return source.error(Code::kCorruption, "a token's score is not a number");
    order.push_back(score);
  }
  std::sort(order.begin(), order.end(), std::greater<float>());
  order.erase(std::unique(order.begin(), order.end()), order.end());

  struct Pair {
    TokenId left, right;
    MergeTable::Merge merge;
  };
  std::vector<Pair> pairs;
  // A part is a token, or a code point that is none (the pair may be a token all the same).
  const auto part = [&](std::string_view s) -> TokenId {
    const CodePoint c = decode_at(s, 0);
    return c.size == s.size() && c.value != kInvalidByte ? symbol_of(rules.single, c.value) : vocab.find(s);
  };
  for (size_t i = 0; i < source.spellings.size(); ++i) {
    if (source.kinds[i] != TokenKind::kNormal) continue;
    const std::string_view spelling = source.spellings[i];
    const auto at = std::lower_bound(order.begin(), order.end(), source.scores[i], std::greater<float>());
    const auto rank = static_cast<uint32_t>(at - order.begin());
    for (size_t cut = 0; cut < spelling.size();) {
      cut += decode_at(spelling, cut).size;
      if (cut == spelling.size()) break;
      const TokenId left = part(spelling.substr(0, cut)), right = part(spelling.substr(cut));
      if (left >= 0 && right >= 0) pairs.push_back({left, right, {rank, static_cast<TokenId>(i)}});
    }
  }
  rules.merges.reserve(pairs.size());
  for (const Pair& p : pairs) rules.merges.insert(p.left, p.right, p.merge);
  return {};
}

std::string spelled_text(std::string_view spelling) {
  std::string text;
  for (size_t pos = 0; pos < spelling.size();) {
    const CodePoint c = decode_at(spelling, pos);
    if (c.value == kSpaceMark) {
      text += ' ';
    } else {
      text.append(spelling, pos, c.size);
    }
    pos += c.size;
  }
  return text;
}

}  // namespace

Result<std::unique_ptr<Tokenizer>> make_sentence_piece(Source source) {
  Rules rules;
  rules.add_space_prefix = source.add_space_prefix;
  if (source.merges.size() > MergeTable::kMaxRank || source.spellings.size() > MergeTable::kMaxRank) {
    return source.error(Code::kUnsupported, "more tokens or merges than " + std::to_string(MergeTable::kMaxRank));
  }
  DI_TRY(const Vocab vocab, index_tokens(source, rules));
  if (source.scores.empty()) {
    DI_TRY(add_listed_merges(vocab, rules));
  } else {
    DI_TRY(add_scored_merges(vocab, rules));
  }
  std::vector<std::string> bytes(source.spellings.size());
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (source.kinds[i] == TokenKind::kNormal) bytes[i] = spelled_text(source.spellings[i]);
    if (source.kinds[i] == TokenKind::kByte) bytes[i] = static_cast<char>(byte_of_spelling(source.spellings[i]));
  }
  DI_TRY(Vocabulary vocabulary, Vocabulary::build(source, bytes));
  DI_TRY(auto added, SentencePieceTokenizer::split_added(source));
  return std::unique_ptr<Tokenizer>(
      std::make_unique<SentencePieceTokenizer>(std::move(vocabulary), std::move(added), std::move(rules)));
}

}  // namespace deepinfer::tokenizer
