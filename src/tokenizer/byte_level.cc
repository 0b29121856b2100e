// Byte-level BPE (GPT-2 and its descendants): a text is cut into pieces, a piece starts as its bytes, and neighbours merge.
#include <array>
#include <cstring>
#include <utility>

#include "tokenizer/basic_tokenizer.h"
#include "tokenizer/byte_map.h"
#include "tokenizer/code_point_symbols.h"
#include "tokenizer/merges.h"
#include "tokenizer/piece_map.h"
#include "tokenizer/source.h"
#include "tokenizer/unicode.h"

namespace deepinfer::tokenizer {
namespace {

struct Rules {
  Splitter splitter;
  bool nfc;
  MergeTable merges;
  std::array<TokenId, 256> byte_ids;  // -1: the vocabulary has none; the byte is left out, as the model's own tokenizer does
};

class ByteLevelTokenizer final : public BasicTokenizer {
  // The bytes of an entry of whole_.
  struct KeyOf {
    const Vocabulary& vocabulary;
    std::string_view operator()(TokenId id) const { return vocabulary.bytes(id); }
  };
  KeyOf key_of() const { return {vocabulary()}; }

 public:
  ByteLevelTokenizer(Vocabulary vocabulary, Added added, Rules rules)
      : BasicTokenizer(std::move(vocabulary), std::move(added)), rules_(std::move(rules)) {
    code_points_ = CodePointSymbols::build(rules_.merges, rules_.byte_ids, static_cast<size_t>(this->vocabulary().size()), key_of());
  }

  // Pieces that are entries of the vocabulary and need no merging: all normal ones if the file says to ignore merges; else those
  // that merging their bytes gives back. An entry that its own merges do not reach would be a wrong shortcut.
  void fill_whole_pieces(const std::vector<TokenKind>& kinds, bool ignore_merges) {
    constexpr size_t kMaxWhole = 256;  // longer ones are rare, and checking one is quadratic
    whole_.reserve(kinds.size());
    MergeScratch scratch;
    std::vector<TokenId> symbols;
    for (size_t i = 0; i < kinds.size(); ++i) {
      const auto id = static_cast<TokenId>(i);
      const std::string_view bytes = vocabulary().bytes(id);
      if (kinds[i] != TokenKind::kNormal || bytes.empty()) continue;
      if (!ignore_merges) {
        if (bytes.size() > kMaxWhole) continue;
        to_symbols(bytes, symbols);
        if (merge_symbols(rules_.merges, symbols.data(), symbols.size(), scratch) != 1 || symbols[0] != id) continue;
      }
      whole_.insert(bytes, id, key_of());
      max_whole_ = std::max(max_whole_, bytes.size());
    }
  }

 protected:
  std::string_view normalize(std::string_view text, std::string& storage) const override {
    return rules_.nfc ? to_nfc(text, storage) : text;
  }

  void encode_text(std::string_view text, Scratch& scratch, std::vector<TokenId>& out) const override {
    std::array<size_t, 128> ends;
    size_t begin = 0;
    while (const size_t n = split(rules_.splitter, text, begin, ends)) {
      for (size_t i = 0; i < n; ++i) {
        encode_piece(text.substr(begin, ends[i] - begin), text.size() - begin, scratch, out);
        begin = ends[i];
      }
    }
  }

 private:
  void to_symbols(std::string_view piece, std::vector<TokenId>& symbols) const {
    code_points_.to_symbols(piece, rules_.byte_ids, symbols);
  }

  // readable: bytes of the text from the piece's first on.
  void encode_piece(std::string_view piece, size_t readable, Scratch& scratch, std::vector<TokenId>& out) const {
    if (piece.size() > PieceCache::kMaxPiece) {
      merge_piece(piece, scratch, out);
      return;
    }
    const PieceCache::Key key = PieceCache::key_of(piece, readable);
    if (const PieceCache::Entry* hit = scratch.cache.find(key)) {
      out.insert(out.end(), hit->ids, hit->ids + hit->count);
      return;
    }
    const size_t before = out.size();
    merge_piece(piece, scratch, out);
    scratch.cache.insert(key, out.data() + before, out.size() - before);
  }

  void merge_piece(std::string_view piece, Scratch& scratch, std::vector<TokenId>& out) const {
    if (piece.size() <= max_whole_) {
      if (const TokenId id = whole_.find(piece, key_of()); id >= 0) {
        out.push_back(id);
        return;
      }
    }
    to_symbols(piece, scratch.symbols);
    const size_t n = merge_symbols(rules_.merges, scratch.symbols.data(), scratch.symbols.size(), scratch.merge);
    out.insert(out.end(), scratch.symbols.begin(), scratch.symbols.begin() + static_cast<std::ptrdiff_t>(n));
  }

  Rules rules_;
  CodePointSymbols code_points_;
  PieceMap whole_;
  size_t max_whole_ = 0;
};

// Fills rules.merges; every part must be a token, and so must what comes out.
Result<> add_merges(const Source& source, Rules& rules) {
  PieceMap ids;
  const auto spelling_of = [&](TokenId id) { return source.spellings[static_cast<size_t>(id)]; };
  const auto kind_of = [&](TokenId id) { return source.kinds[static_cast<size_t>(id)]; };
  ids.reserve(source.spellings.size());
  // Normal tokens first: where an added token is spelt like one, merges speak of the normal one.
  for (const TokenKind kind : {TokenKind::kNormal, TokenKind::kAdded}) {
    for (size_t i = 0; i < source.spellings.size(); ++i) {
      if (source.kinds[i] != kind || source.spellings[i].empty()) continue;
      if (!ids.insert(source.spellings[i], static_cast<TokenId>(i), spelling_of) && kind == TokenKind::kNormal) {
        return source.error(Code::kCorruption, "two tokens are spelt \"" + std::string(source.spellings[i]) + "\"");
      }
    }
  }
  if (source.merges.size() > MergeTable::kMaxRank) return source.error(Code::kUnsupported, "more merges than " + std::to_string(MergeTable::kMaxRank));
  rules.merges.reserve(source.merges.size());
  std::string both;
  for (size_t rank = 0; rank < source.merges.size(); ++rank) {
    const auto& [left, right] = source.merges[rank];
    both.assign(left).append(right);
    const TokenId left_id = ids.find(left, spelling_of), right_id = ids.find(right, spelling_of), id = ids.find(both, spelling_of);
    if (left_id < 0 || right_id < 0 || id < 0) {
      const std::string_view unknown = left_id < 0 ? left : right_id < 0 ? right : std::string_view(both);
      return source.error(Code::kCorruption, "merge " + std::to_string(rank) + " (\"" + std::string(left) + "\" and \"" +
                                                 std::string(right) + "\") names \"" + std::string(unknown) + "\", which is no token");
    }
    // An added token is never the result: what a user types cannot become one.
    const bool mergeable = kind_of(left_id) == TokenKind::kNormal && kind_of(right_id) == TokenKind::kNormal &&
                           kind_of(id) == TokenKind::kNormal;
    if (mergeable) rules.merges.insert(left_id, right_id, {static_cast<uint32_t>(rank), id});
  }
  for (uint32_t b = 0; b < 256; ++b) {
    std::string spelling;
    append_utf8(kByteSpelling[b], spelling);
    const TokenId id = ids.find(spelling, spelling_of);
    rules.byte_ids[b] = id >= 0 && kind_of(id) == TokenKind::kNormal ? id : -1;
    if (rules.byte_ids[b] < 0 && b >= ' ' && b <= '~') {
      return source.error(Code::kUnsupported, "the vocabulary has no token for \"" + std::string(1, static_cast<char>(b)) + "\"");
    }
    if (rules.byte_ids[b] < 0 && source.has_unknown) {
      return source.error(Code::kUnsupported, "a byte-level vocabulary with an unknown token, which byte " + std::to_string(b) + " would be");
    }
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<Tokenizer>> make_byte_level(Source source) {
  Rules rules{.splitter = source.splitter, .nfc = source.nfc, .merges = {}, .byte_ids = {}};
  DI_TRY(add_merges(source, rules));
  std::vector<std::string> bytes(source.spellings.size());
  std::vector<TokenKind> kinds = source.kinds;
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (kinds[i] != TokenKind::kNormal) continue;
    if (auto spelled = spelled_bytes(source.spellings[i])) {
      bytes[i] = std::move(*spelled);
    } else {
      bytes[i] = source.spellings[i];  // a name, not a spelling of bytes: no text becomes it, but it can be shown
      kinds[i] = TokenKind::kAbsent;
    }
  }
  DI_TRY(Vocabulary vocabulary, Vocabulary::build(source, bytes));
  DI_TRY(auto added, ByteLevelTokenizer::split_added(source));
  auto tokenizer = std::make_unique<ByteLevelTokenizer>(std::move(vocabulary), std::move(added), std::move(rules));
  tokenizer->fill_whole_pieces(kinds, source.ignore_merges);
  return std::unique_ptr<Tokenizer>(std::move(tokenizer));
}

}  // namespace deepinfer::tokenizer
