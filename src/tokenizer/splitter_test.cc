#include "tokenizer/splitter.h"

#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

#include "base/rng.h"

namespace deepinfer::tokenizer {
namespace {

std::vector<std::string> pieces(Splitter splitter, std::string_view text, size_t batch = 128) {
  std::vector<std::string> out;
  std::vector<size_t> ends(batch);
  size_t begin = 0;
  while (const size_t n = split(splitter, text, begin, ends)) {
    for (size_t i = 0; i < n; ++i) {
      out.emplace_back(text.substr(begin, ends[i] - begin));
      begin = ends[i];
    }
  }
  return out;
}
using Pieces = std::vector<std::string>;

TEST(Splitter, Gpt2) {
  EXPECT_EQ(pieces(Splitter::kGpt2, "Hello world, it's 2024!\n\n  x"),
            (Pieces{"Hello", " world", ",", " it", "'s", " 2024", "!", "\n\n ", " x"}));
  EXPECT_EQ(pieces(Splitter::kGpt2, "I'LL 'tis  "), (Pieces{"I", "'", "LL", " '", "tis", "  "}));
  EXPECT_EQ(pieces(Splitter::kGpt2, "a\t\tb \n"), (Pieces{"a", "\t", "\t", "b", " \n"}));
}

TEST(Splitter, DigitsAloneThenGpt2) {
  // What stands before a digit is a text of its own: its spaces stay together.
  EXPECT_EQ(pieces(Splitter::kDigitsGpt2, "in  12 ½x 'd"), (Pieces{"in", "  ", "1", "2", " ", "½", "x", " '", "d"}));
}

TEST(Splitter, Llama3AndQwen2) {
  EXPECT_EQ(pieces(Splitter::kLlama3, "It's 12345 I'LL'ſ (x)\r\n\n y"),
            (Pieces{"It", "'s", " ", "123", "45", " I", "'LL", "'ſ", " (", "x", ")\r\n\n", " y"}));
  EXPECT_EQ(pieces(Splitter::kQwen2, "a12\u3000\u3000漢字 \n  b"), (Pieces{"a", "1", "2", "\u3000", "\u3000漢字", " \n", " ", " b"}));
  EXPECT_EQ(pieces(Splitter::kLlama3, "e\u0301te'"), (Pieces{"e", "\u0301te", "'"}));
}

TEST(Splitter, DeepSeek3) {
  EXPECT_EQ(pieces(Splitter::kDeepSeek3, "12345 a"), (Pieces{"123", "45", " a"}));
  EXPECT_EQ(pieces(Splitter::kDeepSeek3, "中文・です。abc"), (Pieces{"中文", "・", "です", "。", "abc"}));
  EXPECT_EQ(pieces(Splitter::kDeepSeek3, ".foo ..\n\n,"), (Pieces{".foo", " ..\n\n", ","}));
  EXPECT_EQ(pieces(Splitter::kDeepSeek3, "e\u0301te x  1"), (Pieces{"e\u0301te", " x", "  ", "1"}));
  // Code points that nothing matches stay together up to the next match.
  EXPECT_EQ(pieces(Splitter::kDeepSeek3, "\x01\x02\x03" "a\u200b\u200b!"), (Pieces{"\x01\x02", "\x03" "a", "\u200b\u200b", "!"}));
  EXPECT_EQ(pieces(Splitter::kDeepSeek3, "・\n中"), (Pieces{"・", "\n", "中"}));
}

TEST(Splitter, PiecesCoverAnyBytesWhateverTheBatch) {
  static constexpr std::string_view kAlphabet[] = {"a", "B", " ", "  ", "\n", "\r\n", "\t", "'", "'s", "1", "²", "é", "\u0301", "漢", "・", "。",
                                                   "\u200b", "\xff", "\xe4\xb8", "<", "$", "😀", "\u3000", "\u2028", "\x01"};
  Rng rng(7);
  for (int i = 0; i < 4000; ++i) {
    std::string text;
    for (uint64_t n = rng.below(40); n > 0; --n) text += kAlphabet[rng.below(std::size(kAlphabet))];
    for (const Splitter s : {Splitter::kNone, Splitter::kGpt2, Splitter::kDigitsGpt2, Splitter::kLlama3, Splitter::kQwen2, Splitter::kDeepSeek3}) {
      const Pieces whole = pieces(s, text);
      std::string joined;
      for (const std::string& p : whole) {
        ASSERT_FALSE(p.empty());
        joined += p;
      }
      ASSERT_EQ(joined, text);
      ASSERT_EQ(pieces(s, text, 1), whole);  // a scanner has no state but its place
    }
  }
}

}  // namespace
}  // namespace deepinfer::tokenizer
