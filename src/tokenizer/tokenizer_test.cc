#include "tokenizer/tokenizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <iterator>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/rng.h"
#include "tokenizer/byte_map.h"
#include "tokenizer/splitter.h"
#include "tokenizer/unicode.h"

namespace deepinfer::tokenizer {
namespace {

using Ids = std::vector<TokenId>;

// A vocabulary to build by hand and hand over as a GGUF file would.
struct Handmade {
  std::string model = "gpt2", pre = "gpt-2";
  std::vector<std::string> tokens, merges;
  std::vector<int32_t> types;
  std::vector<float> scores;
  std::optional<int64_t> bos_id, eos_id, eot_id;
  std::optional<bool> add_bos, add_space_prefix;

  TokenId add(std::string spelling, int32_t type = 1, float score = 0) {
    tokens.push_back(std::move(spelling));
    types.push_back(type);
    scores.push_back(score);
    return static_cast<TokenId>(tokens.size() - 1);
  }
  void merge(const std::string& left, const std::string& right) {
    if (std::find(tokens.begin(), tokens.end(), left + right) == tokens.end()) add(left + right);
    merges.push_back(left + " " + right);
  }
  Result<std::unique_ptr<Tokenizer>> load() const {
    const std::vector<std::string_view> t(tokens.begin(), tokens.end()), m(merges.begin(), merges.end());
    GgufVocabulary v;
    v.model = model;
    v.pre = pre;
    v.tokens = t;
    v.merges = m;
    v.token_types = types;
    if (model == "llama") v.scores = scores;
    v.bos_id = bos_id;
    v.eos_id = eos_id;
    v.eot_id = eot_id;
    v.add_bos = add_bos;
    v.add_space_prefix = add_space_prefix;
    return Tokenizer::from_gguf(v, "handmade.gguf");
  }
};

std::string spell(std::string_view bytes) {
  std::string spelling;
  for (const char b : bytes) append_utf8(kByteSpelling[static_cast<unsigned char>(b)], spelling);
  return spelling;
}

Handmade all_bytes() {
  Handmade v;
  for (int b = 0; b < 256; ++b) v.add(spell(std::string(1, static_cast<char>(b))));
  return v;
}

// Merges of random neighbours in random text, as training would find them; also across the borders of code points.
Handmade random_byte_vocabulary(Rng& rng, size_t num_merges) {
  static constexpr std::string_view kText[] = {"the ", "a", "b", " c", "中", "文", "字", "é", "è", "ж", "д", " ж", "，", "。", "1", "\n", "😀", " 中", "\u0301", "한", "हि"};
  Handmade v = all_bytes();
  std::vector<std::vector<std::string>> lines;
  for (int i = 0; i < 60; ++i) {
    lines.emplace_back();
    for (int k = 0; k < 30; ++k) {
      for (const char b : kText[rng.below(std::size(kText))]) lines.back().push_back(std::string(1, b));
    }
  }
  while (v.merges.size() < num_merges) {
    const auto& line = lines[rng.below(lines.size())];
    if (line.size() < 2) continue;
    const size_t at = rng.below(line.size() - 1);
    const std::string left = line[at], right = line[at + 1], both = left + right;
    v.merge(spell(left), spell(right));
    for (auto& l : lines) {
      for (size_t i = 0; i + 1 < l.size(); ++i) {
        if (l[i] == left && l[i + 1] == right) l[i] = both, l.erase(l.begin() + static_cast<std::ptrdiff_t>(i) + 1);
      }
    }
  }
  return v;
}

std::unique_ptr<Tokenizer> loaded(const Handmade& v) {
  auto result = v.load();
  EXPECT_TRUE(result) << result.error().message;
  return result ? std::move(*result) : nullptr;
}
Ids encode(const Tokenizer& t, std::string_view text, Recognize recognize = Recognize::kNothing) {
  Ids ids;
  t.encode(text, recognize, ids);
  return ids;
}
std::string bytes_of(const Tokenizer& t, const Ids& ids) {
  std::string bytes;
  for (const TokenId id : ids) bytes += t.token_bytes(id);
  return bytes;
}

std::string random_text(Rng& rng, size_t max_pieces) {
  static constexpr std::string_view kPieces[] = {"the", " the", "a", "b", "c", " ", "  ", "\n", "中", "文", "字", "中文", "é", "è", "ж", "д", "，", "。", "1", "22", "😀",
                                                 "한", "हि", "\u0301", "e\u0301", "'s", "<", "\xff", "\xe4", "\xb8\xad", "\xf0\x9f"};
  std::string text;
  for (uint64_t n = rng.below(max_pieces); n > 0; --n) text += kPieces[rng.below(std::size(kPieces))];
  return text;
}

// Strings, a map and the definition: nothing shared with the code under test but the pre-tokenizer.
Ids encode_naively(const Handmade& v, Splitter splitter, std::string_view text) {
  std::map<std::string, TokenId> id_of;
  for (size_t i = 0; i < v.tokens.size(); ++i) id_of[v.tokens[i]] = static_cast<TokenId>(i);
  std::map<std::string, size_t> rank_of;
  for (size_t i = 0; i < v.merges.size(); ++i) rank_of[v.merges[i]] = i;
  Ids ids;
  std::array<size_t, 1> end;
  for (size_t begin = 0; split(splitter, text, begin, end) == 1; begin = end[0]) {
    std::vector<std::string> symbols;
    for (const char b : text.substr(begin, end[0] - begin)) symbols.push_back(spell(std::string(1, b)));
    for (;;) {
      size_t best = v.merges.size(), at = 0;
      for (size_t i = 0; i + 1 < symbols.size(); ++i) {
        const auto found = rank_of.find(symbols[i] + " " + symbols[i + 1]);
        if (found != rank_of.end() && found->second < best) best = found->second, at = i;
      }
      if (best == v.merges.size()) break;
      symbols[at] += symbols[at + 1];
      symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(at) + 1);
    }
    for (const std::string& s : symbols) ids.push_back(id_of.at(s));
  }
  return ids;
}

TEST(ByteLevel, IsTheDefinitionAndLosesNothing) {
  Rng rng(11);
  static constexpr std::pair<const char*, Splitter> kPre[] = {
      {"gpt-2", Splitter::kGpt2}, {"smollm", Splitter::kDigitsGpt2}, {"smaug-bpe", Splitter::kLlama3}, {"deepseek-v3", Splitter::kDeepSeek3}};
  for (int round = 0; round < 24; ++round) {
    Handmade v = random_byte_vocabulary(rng, 20 + rng.below(150));
    v.pre = kPre[static_cast<size_t>(round) % std::size(kPre)].first;
    const auto t = loaded(v);
    ASSERT_TRUE(t);
    for (int i = 0; i < 60; ++i) {
      const std::string text = random_text(rng, 60);
      const Ids ids = encode(*t, text);
      ASSERT_EQ(ids, encode_naively(v, kPre[static_cast<size_t>(round) % std::size(kPre)].second, text)) << text;
      ASSERT_EQ(bytes_of(*t, ids), text);
      ASSERT_EQ(encode(*t, text), ids);  // from the cache
    }
  }
}

TEST(ByteLevel, MergesWithoutOrderAreTheDefinitionToo) {
  // Ranks that no training gives: a merge before those that make its parts, one result from several pairs.
  Rng rng(12);
  for (int round = 0; round < 40; ++round) {
    Handmade v = random_byte_vocabulary(rng, 80);
    for (size_t i = v.merges.size() - 1; i > 0; --i) std::swap(v.merges[i], v.merges[rng.below(i + 1)]);
    const auto t = loaded(v);
    ASSERT_TRUE(t);
    for (int i = 0; i < 60; ++i) {
      const std::string text = random_text(rng, 40);
      ASSERT_EQ(encode(*t, text), encode_naively(v, Splitter::kGpt2, text)) << text;
    }
  }
}

TEST(ByteLevel, DecodeUndoesEncode) {
  Rng rng(13);
  const auto t = loaded(random_byte_vocabulary(rng, 200));
  for (int i = 0; i < 2000; ++i) {
    std::string text;
    for (uint64_t n = rng.below(30); n > 0; --n) {
      const uint32_t c = static_cast<uint32_t>(rng.below(rng.below(2) ? 0x110000 : 0x180));
      if (c < 0xd800 || c >= 0xe000) append_utf8(c, text);
    }
    ASSERT_EQ(t->decode(encode(*t, text), false), text);
  }
}

TEST(ByteLevel, IgnoreMergesTakesWholePieces) {
  Handmade v = all_bytes();
  v.merge("a", "b");
  const TokenId whole = v.add("abc");  // no merge leads here
  v.pre = "smaug-bpe";
  EXPECT_EQ(encode(*loaded(v), "abc").size(), 2u);
  v.pre = "llama-bpe";
  EXPECT_EQ(encode(*loaded(v), "abc"), (Ids{whole}));
}

TEST(ByteLevel, BytesWithoutATokenAreLeftOut) {
  Handmade v;
  for (int b = 4; b < 256; ++b) v.add(spell(std::string(1, static_cast<char>(b))));
  v.merge("a", "b");
  const auto t = loaded(v);
  EXPECT_EQ(bytes_of(*t, encode(*t, "a\x01" "b \x02\x03 中")), "ab  中");
  EXPECT_EQ(encode(*t, "\x01").size(), 0u);
  Handmade w;
  for (int b = 'b'; b < 256; ++b) w.add(spell(std::string(1, static_cast<char>(b))));
  w.merge("b", "c");
  const auto refused = w.load();
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kUnsupported);
}

TEST(AddedTokens, AreRecognisedOnlyWhenAsked) {
  Handmade v = all_bytes();
  v.merge("x", "y");
  const TokenId user = v.add("<think>", 4), control = v.add("<|end|>", 3), longer = v.add("<|end|>>", 3);
  v.eos_id = control;
  const auto t = loaded(v);
  const std::string text = "a<think><|end|>>b<|end|>";
  EXPECT_EQ(bytes_of(*t, encode(*t, text)), text);
  EXPECT_EQ(encode(*t, text).size(), text.size());
  EXPECT_EQ(encode(*t, text, Recognize::kUserDefined).size(), text.size() - 6);
  const Ids all = encode(*t, text, Recognize::kAll);
  ASSERT_EQ(all.size(), 5u);
  EXPECT_EQ(all[1], user);
  EXPECT_EQ(all[2], longer);
  EXPECT_EQ(all[4], control);
  EXPECT_EQ(t->special_id("<think>"), user);
  EXPECT_EQ(t->special_id("<thin"), std::nullopt);
  EXPECT_EQ(t->special_id("a"), std::nullopt);
  EXPECT_FALSE(t->is_special(user));
  EXPECT_TRUE(t->is_special(control));
  EXPECT_EQ(Ids(t->stop_ids().begin(), t->stop_ids().end()), (Ids{control}));
  EXPECT_EQ(t->decode(all, false), "a<think>b");
  EXPECT_EQ(t->decode(all, true), text);
}

TEST(AddedTokens, MergingNeverMakesOne) {
  Handmade v = all_bytes();
  v.add("<e", 1);
  v.add("<e>", 3);
  v.merges = {"< e", "<e >"};
  const auto t = loaded(v);
  for (const TokenId id : encode(*t, "<e>")) EXPECT_FALSE(t->is_special(id));
  EXPECT_EQ(bytes_of(*t, encode(*t, "<e>")), "<e>");
}

TEST(Gguf, RefusesWhatItDoesNotKnow) {
  const auto refused = [](const Handmade& v, Code code, std::string_view word) {
    const auto result = v.load();
    ASSERT_FALSE(result) << word;
    EXPECT_EQ(result.error().code, code) << result.error().message;
    EXPECT_NE(result.error().message.find("handmade.gguf"), std::string::npos);
    EXPECT_NE(result.error().message.find(word), std::string::npos) << result.error().message;
  };
  Handmade good = all_bytes();
  good.merge("a", "b");
  ASSERT_TRUE(good.load());
  Handmade v = good;
  v.pre = "tekken";
  refused(v, Code::kUnsupported, "tekken");
  v = good;
  v.model = "t5";
  refused(v, Code::kUnsupported, "t5");
  v = good;
  v.merges.push_back("ab zz");
  refused(v, Code::kCorruption, "zz");
  v = good;
  v.merges.push_back("ab");
  refused(v, Code::kCorruption, "merge");
  v = good;
  v.merges.push_back("a b c");
  refused(v, Code::kCorruption, "merge");
  v = good;
  v.eos_id = 70000;
  refused(v, Code::kCorruption, "EOS");
  v = good;
  v.bos_id = -1;
  refused(v, Code::kCorruption, "BOS");
  v = good;
  v.types.pop_back();
  refused(v, Code::kCorruption, "types");
  v = good;
  v.types[0] = 9;
  refused(v, Code::kCorruption, "type 9");
  v = good;
  v.add("a");
  refused(v, Code::kCorruption, "spelt");
  v = good;
  v.merges.clear();
  refused(v, Code::kCorruption, "merges");
}

// --- SentencePiece ---

Handmade sentence_piece() {
  Handmade v;
  v.model = "llama";
  v.pre = "";
  v.add("<unk>", 2);
  v.add("<s>", 3);
  v.add("</s>", 3);
  static const char kHex[] = "0123456789ABCDEF";
  for (int b = 0; b < 256; ++b) v.add(std::string("<0x") + kHex[b >> 4] + kHex[b & 15] + ">", 6);
  for (const char* s : {"▁", "a", "b", "c", "é"}) v.add(s, 1, -100);
  v.add("▁a", 1, -1);
  v.add("ab", 1, -2);
  v.add("bc", 1, -2);  // as good as "ab": the left one wins
  v.add("▁ab", 1, -3);
  v.add("▁▁", 1, -4);
  v.add("x中", 1, -5);  // its parts are no tokens, the whole is
  v.bos_id = 1;
  v.eos_id = 2;
  return v;
}

TEST(SentencePiece, MergesByScoreAndFallsBackToBytes) {
  Handmade v = sentence_piece();
  const auto t = loaded(v);
  ASSERT_TRUE(t);
  const auto id = [&](const char* s) { return static_cast<TokenId>(std::find(v.tokens.begin(), v.tokens.end(), s) - v.tokens.begin()); };
  EXPECT_TRUE(t->add_space_prefix());
  EXPECT_TRUE(t->add_bos());
  EXPECT_EQ(encode(*t, "ab"), (Ids{id("▁ab")}));            // from "▁a" and "b": "▁a" has the better score
  EXPECT_EQ(encode(*t, "abc"), (Ids{id("▁a"), id("bc")}));  // "bc" before "▁ab"
  EXPECT_EQ(encode(*t, "cabc"), (Ids{id("▁"), id("c"), id("ab"), id("c")}));
  EXPECT_EQ(encode(*t, "  a"), (Ids{id("▁▁"), id("▁a")}));
  EXPECT_EQ(encode(*t, "x中"), (Ids{id("▁"), id("x中")}));
  EXPECT_EQ(encode(*t, "中"), (Ids{id("▁"), 3 + 0xe4, 3 + 0xb8, 3 + 0xad}));
  EXPECT_EQ(encode(*t, "a\xff▁a"), (Ids{id("▁a"), 3 + 0xff, id("▁a")}));
  EXPECT_EQ(t->decode(encode(*t, " é x中 \n"), false), " é x中 \n");
  const Ids safe = encode(*t, "</s>");
  EXPECT_EQ(std::count_if(safe.begin(), safe.end(), [&](TokenId i) { return t->is_special(i); }), 0);
  EXPECT_EQ(encode(*t, "a</s>b", Recognize::kAll), (Ids{id("▁a"), 2, id("▁"), id("b")}));
  v.add_space_prefix = false;
  EXPECT_EQ(encode(*loaded(v), "ab"), (Ids{id("ab")}));
  EXPECT_EQ(loaded(v)->decode(Ids{id("▁a")}, false), " a");
}

TEST(SentencePiece, CuttingAtSpacesChangesNothing) {
  // A token with a space inside turns the cut off; scored last, it changes no other merge, so both must agree where it is absent.
  Rng rng(5);
  Handmade v = sentence_piece();
  const auto cut = loaded(v);
  v.add("▁q▁", 1, -1000);
  const auto whole = loaded(v);
  for (int i = 0; i < 3000; ++i) {
    static constexpr std::string_view kPieces[] = {"a", "b", "c", " ", "  ", "▁", "é", "中", "x中", "ab", " ab", "\n"};
    std::string text;
    for (uint64_t n = rng.below(20); n > 0; --n) text += kPieces[rng.below(std::size(kPieces))];
    ASSERT_EQ(encode(*cut, text), encode(*whole, text)) << text;
  }
}

TEST(SentencePiece, RefusesWhatItDoesNotKnow) {
  Handmade v = sentence_piece();
  v.types[3] = 1;
  auto refused = v.load();
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kUnsupported);
  v = sentence_piece();
  v.scores[5] = std::numeric_limits<float>::quiet_NaN();
  refused = v.load();
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kCorruption);
  v = sentence_piece();
  v.tokens[3] = "<0xZZ>";
  refused = v.load();
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kCorruption);
}

// --- decoding ---

TEST(Detokenizer, AnyCutOfAnyBytesGivesTheSameText) {
  const auto t = loaded([] {
    Handmade v = all_bytes();
    v.merge("a", "b");
    return v;
  }());
  std::array<TokenId, 256> id_of_byte;
  for (int b = 0; b < 256; ++b) {
    for (TokenId id = 0; id < 256; ++id) {
      if (t->token_bytes(id) == std::string(1, static_cast<char>(b))) id_of_byte[static_cast<size_t>(b)] = id;
    }
  }
  static constexpr std::string_view kPieces[] = {"a", "é", "中", "😀", "\xff", "\x80", "\xe4", "\xe4\xb8", "\xf0\x9f", "\xf0\x9f\x98", "\xed\xa0\x80",
                                                 "\xf4\x90", "\xc0\xaf", "\xef\xbf\xbd"};
  Rng rng(17);
  for (int i = 0; i < 3000; ++i) {
    std::string bytes;
    for (uint64_t n = rng.below(8); n > 0; --n) bytes += kPieces[rng.below(std::size(kPieces))];
    // The reference: one pass over the whole.
    std::string expected;
    for (size_t pos = 0; pos < bytes.size();) {
      const Subpart part = subpart_at(bytes, pos);
      expected += part.kind == Subpart::kValid ? bytes.substr(pos, part.size) : "\xef\xbf\xbd";
      pos += part.size;
    }
    Ids ids;
    for (const char b : bytes) ids.push_back(id_of_byte[static_cast<unsigned char>(b)]);
    ASSERT_EQ(t->decode(ids, false), expected);
    Detokenizer detokenizer(*t);
    std::string streamed;
    for (const TokenId id : ids) {
      std::string out;
      detokenizer.push(id, out);
      for (size_t pos = 0; pos < out.size();) {  // whole code points only
        const Subpart part = subpart_at(out, pos);
        ASSERT_EQ(part.kind, Subpart::kValid);
        pos += part.size;
      }
      streamed += out;
    }
    detokenizer.finish(streamed);
    ASSERT_EQ(streamed, expected);
  }
}

TEST(Detokenizer, ForgivesIdsOutOfRange) {
  Handmade v = all_bytes();
  v.merge("a", "b");
  const auto t = loaded(v);
  EXPECT_EQ(t->decode(Ids{-1, 1 << 30, t->vocab_size()}, true), "");
}

// --- size and threads ---

TEST(Tokenizer, LongRunsOfAnythingEnd) {
  // One quadratic step anywhere would need hours for a megabyte; the bound on growth below is wide against noise.
  Rng rng(19);
  const auto t = loaded(random_byte_vocabulary(rng, 200));
  const auto repeated = [](std::string_view piece, size_t size) {
    std::string text;
    while (text.size() < size) text += piece;
    return text;
  };
  static constexpr std::string_view kBase64 = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string base64(1 << 20, ' ');
  for (char& c : base64) c = kBase64[rng.below(64)];
  std::vector<std::string> texts = {base64};
  for (const std::string_view piece : {"a", "ab", " ", "\n", " \n", "7", "\u0301", "中", "中文字", "<", "\xff", "'", "ж", "😀", "\u200b", "e\u0301"}) {
    texts.push_back(repeated(piece, 1 << 20));
  }
  const auto seconds = [&](std::string_view text) {
    const auto start = std::chrono::steady_clock::now();
    const Ids ids = encode(*t, text);
    EXPECT_EQ(bytes_of(*t, ids), text);
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  for (const std::string& text : texts) {
    const std::string_view eighth = std::string_view(text).substr(0, text.size() / 8);
    double small = 1e9, large = 1e9;
    for (int i = 0; i < 3 && large > 30 * small + 0.05; ++i) {  // quadratic would be 64 times
      small = std::min(small, seconds(eighth));
      large = std::min(large, seconds(text));
    }
    EXPECT_LT(large, 30 * small + 0.05) << text.substr(0, 8);
  }
}

TEST(Tokenizer, ThreadsShareOne) {
  Rng rng(23);
  const auto t = loaded(random_byte_vocabulary(rng, 200));
  std::vector<std::string> texts;
  std::vector<Ids> expected;
  for (int i = 0; i < 300; ++i) {
    texts.push_back(random_text(rng, 80));
    expected.push_back(encode(*t, texts.back()));
  }
  std::vector<std::thread> threads;
  std::vector<int> wrong(4);
  for (size_t k = 0; k < wrong.size(); ++k) {
    threads.emplace_back([&, k] {
      for (size_t i = 0; i < texts.size(); ++i) {
        const size_t at = (i * 7 + k * 75) % texts.size();
        wrong[k] += encode(*t, texts[at]) != expected[at];
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<int>(4));
}

}  // namespace
}  // namespace deepinfer::tokenizer
