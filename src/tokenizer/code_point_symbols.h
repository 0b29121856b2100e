// A head start for byte-level merging: what the bytes of one code point merge into among themselves, where that is sure to happen.
// A Chinese character is then one or two symbols from the beginning instead of three, and the merges inside it need not be found.
//
// When it is sure. Merging always takes the lowest rank. Let R be the highest rank among the merges inside a code point c. If every
// merge that joins a part of c (a symbol that c's own merges use up) with something outside c ranks above R, then c's own merges all
// happen first, in c's own order, whatever surrounds it; if in addition every merge of the symbols they end in ranks above R, nothing
// can have happened earlier with those either. Which outside symbols join such parts is known by the byte next to c: for each code
// point we keep the bytes before and after it that make it unsure (often a space before: vocabularies know " " + first byte).
// Where it is not sure, the bytes are used. merges equal those from bytes by construction, and a test compares both.
#pragma once

#include <array>
#include <bitset>
#include <cstdint>
#include <string_view>
#include <vector>

#include "core/request.h"
#include "tokenizer/merges.h"

namespace deepinfer::tokenizer {

class CodePointSymbols {
 public:
  using ByteSet = std::bitset<256>;
  struct Entry {
    TokenId symbols[3];       // fewer than three: the rest is -1
    uint16_t unsure_before;   // index of a byte set: with such a byte before it, do not use this entry
    uint16_t unsure_after;
  };

  // byte_ids: -1 for bytes without a token. bytes_of(id): the bytes of a token, a view that outlives the call.
  template <class BytesOf>
  static CodePointSymbols build(const MergeTable& merges, const std::array<TokenId, 256>& byte_ids, size_t num_ids, const BytesOf& bytes_of) {
    Builder builder(merges, byte_ids, num_ids);
    for (const MergeTable::Entry& e : merges.entries()) builder.add(e, bytes_of(e.left), bytes_of(e.right));
    return builder.finish();
  }

  // Appends the symbols of a piece of text to `symbols`.
  void to_symbols(std::string_view piece, const std::array<TokenId, 256>& byte_ids, std::vector<TokenId>& symbols) const;

 private:
  static constexpr uint32_t kFirst = 0x80, kEnd = 0x10000;  // code points with entries: two or three bytes
  static constexpr uint16_t kNever = 0;                     // the set of all bytes, and "nothing", too, is unsure

  // A merge that joins a symbol with a neighbour.
  struct Joint {
    uint32_t rank;
    std::string_view neighbour;  // its bytes
  };
  class Builder {
   public:
    Builder(const MergeTable& merges, const std::array<TokenId, 256>& byte_ids, size_t num_ids);
    void add(const MergeTable::Entry& merge, std::string_view left, std::string_view right);
    CodePointSymbols finish();

   private:
    Entry entry_of(uint32_t code_point);
    uint16_t set_of(const ByteSet& set);

    const MergeTable& merges_;
    const std::array<TokenId, 256>& byte_ids_;
    std::vector<std::vector<Joint>> joints_before_, joints_after_;  // by symbol that is part of a code point; others stay empty
    std::vector<uint32_t> least_rank_;                              // of any merge that the symbol takes part in
    std::vector<ByteSet> sets_;
  };

  std::vector<Entry> entries_;  // [kEnd - kFirst]
  std::vector<ByteSet> sets_;   // [0] all bytes
};

}  // namespace deepinfer::tokenizer
