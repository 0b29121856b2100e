// The tokenizer against ids that other programs gave: real and tiny vocabularies, from GGUF and tokenizer.json.
#include <gtest/gtest.h>
#include <simdjson.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "id_digest.h"
#include "vocabulary_files.h"

namespace deepinfer::tokenizer {
namespace {

namespace dom = simdjson::dom;
using testing::decimal;
using testing::golden_path;
using testing::model_path;
using testing::sha256;
using Ids = std::vector<TokenId>;

// By value: what a temporary result refers to would be gone before the loop over it starts.
dom::array array_of(const dom::element& element) { return element.get_array(); }
dom::object object_of(const dom::element& element) { return element.get_object(); }

Ids ids_of(const dom::element& array) {
  Ids ids;
  for (const dom::element id : array_of(array)) ids.push_back(static_cast<TokenId>(id.get_int64().value()));
  return ids;
}
std::string text_of(const dom::element& text) { return std::string(text.get_string().value()); }

Ids encode(const Tokenizer& t, std::string_view text, Recognize recognize) {
  Ids ids;
  t.encode(text, recognize, ids);
  return ids;
}

// --- tokens.json of the real vocabularies ---

struct RealVocabulary {
  const char* folder;
  const char* file;
  TokenId eos;
};
class RealVocabularyTest : public ::testing::TestWithParam<RealVocabulary> {};

TEST_P(RealVocabularyTest, GivesTheIdsOfTheReference) {
  const auto gguf = model_path(GetParam().file);
  if (!gguf) GTEST_SKIP() << GetParam().file << " is not in the folder of test models";
  const auto loaded = testing::tokenizer_from_gguf(*gguf);
  ASSERT_TRUE(loaded) << loaded.error().message;
  const Tokenizer& t = **loaded;

  dom::parser parser;
  const dom::element golden = parser.load(*golden_path(std::string("dense/") + GetParam().folder + "/tokens.json"));
  size_t num_cases = 0, num_strict = 0;
  for (const dom::element c : array_of(golden["cases"])) {
    const std::string text = text_of(c["text"]);
    SCOPED_TRACE(text);
    const Ids ids = ids_of(c["ids"]);
    dom::element other;
    const Ids all = c["ids_special"].get(other) == simdjson::SUCCESS ? ids_of(other) : ids;
    const Ids strict = c["ids_strict"].get(other) == simdjson::SUCCESS ? ids_of(other) : ids;
    num_strict += strict != ids;
    EXPECT_EQ(encode(t, text, Recognize::kUserDefined), ids);
    EXPECT_EQ(encode(t, text, Recognize::kAll), all);
    EXPECT_EQ(encode(t, text, Recognize::kNothing), strict);
    ++num_cases;
  }
  EXPECT_EQ(num_cases, 140u);

  std::map<std::string, TokenId> added;
  for (const Tokenizer::AddedToken& a : t.added_tokens()) added[a.spelling] = a.id;
  size_t num_added = 0;
  for (const auto& [kind, special] : {std::pair("special", true), std::pair("user_defined", false)}) {
    for (const auto& [spelling, id] : object_of(golden[kind])) {
      const auto token = static_cast<TokenId>(id.get_int64().value());
      EXPECT_EQ(t.special_id(spelling), token) << spelling;
      EXPECT_EQ(t.is_special(token), special) << spelling;
      EXPECT_EQ(t.token_bytes(token), spelling);
      ++num_added;
    }
  }
  EXPECT_EQ(added.size(), num_added);
  EXPECT_EQ(t.eos_id(), GetParam().eos);
  EXPECT_NE(std::find(t.stop_ids().begin(), t.stop_ids().end(), GetParam().eos), t.stop_ids().end());
}

INSTANTIATE_TEST_SUITE_P(Golden, RealVocabularyTest,
                         ::testing::Values(RealVocabulary{"smollm2-135m-instruct-q4_1", "smollm2-135m-instruct-q4_1.gguf", 2},
                                           RealVocabulary{"qwen2.5-coder-0.5b-instruct-q4_k_m", "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf", 151645},
                                           RealVocabulary{"deepseek-r1-distill-qwen-7b", "deepseek-r1-distill-qwen-7b-vocab.gguf", 151643}),
                         [](const auto& info) { return std::string(info.param.folder).substr(0, 6) == "smollm" ? "SmolLM2" : std::string(info.param.folder).substr(0, 4) == "qwen" ? "Qwen25Coder" : "R1Distill"; });

// --- the tiny models, from both formats ---

class TinyVocabularyTest : public ::testing::TestWithParam<const char*> {
 protected:
  void check(const Tokenizer& t) {
    dom::parser parser;
    const dom::element golden = parser.load(*golden_path(std::string("dense/") + GetParam() + "/golden.json"));
    size_t num_cases = 0, num_bos = 0;
    for (const dom::element c : array_of(golden["tokenizer_cases"])) {
      const std::string text = text_of(c["text"]);
      const Ids ids = ids_of(c["ids"]);
      EXPECT_EQ(encode(t, text, Recognize::kAll), ids) << text;
      dom::element with_bos;
      if (c["ids_with_bos"].get(with_bos) == simdjson::SUCCESS) {
        EXPECT_TRUE(t.add_bos());
        EXPECT_EQ(t.bos_id(), ids_of(with_bos)[0]);
        ++num_bos;
      }
      ++num_cases;
    }
    EXPECT_EQ(num_cases, 140u);
    EXPECT_EQ(t.add_bos(), num_bos > 0);
    EXPECT_EQ(t.vocab_size(), 512);
    EXPECT_EQ(t.eos_id(), 511);
    EXPECT_EQ(Ids(t.stop_ids().begin(), t.stop_ids().end()), (Ids{509, 511}));
  }
};

TEST_P(TinyVocabularyTest, FromGguf) {
  const auto loaded = testing::tokenizer_from_gguf(*golden_path(std::string("dense/") + GetParam() + "/" + GetParam() + "-Q4_0.gguf"));
  ASSERT_TRUE(loaded) << loaded.error().message;
  check(**loaded);
}

TEST_P(TinyVocabularyTest, FromJson) {
  const auto loaded = testing::tokenizer_from_folder(*golden_path(std::string("dense/") + GetParam() + "/f32"));
  ASSERT_TRUE(loaded) << loaded.error().message;
  check(**loaded);
}

INSTANTIATE_TEST_SUITE_P(Golden, TinyVocabularyTest, ::testing::Values("tiny-llama", "tiny-qwen2", "tiny-qwen3"),
                         [](const auto& info) {
                           std::string name = info.param;
                           name.erase(name.find('-'), 1);
                           return name;
                         });

TEST(BrokenVocabularyTest, MergesOfUnknownTokensAreRefused) {
  const auto loaded = testing::tokenizer_from_gguf(*golden_path("dense/broken/gguf-merge-unknown.gguf"));
  ASSERT_FALSE(loaded);
  EXPECT_EQ(loaded.error().code, Code::kCorruption);
  EXPECT_NE(loaded.error().message.find("merge"), std::string::npos) << loaded.error().message;
}

// --- a small SentencePiece vocabulary as tokenizer.json ---

TEST(SentencePieceJsonTest, GivesTheIdsOfTheReference) {
  const auto loaded = Tokenizer::from_json(read_file(*golden_path("tokenizer/sentence_piece.tokenizer.json")), "", "sentence_piece");
  ASSERT_TRUE(loaded) << loaded.error().message;
  const Tokenizer& t = **loaded;
  EXPECT_TRUE(t.add_space_prefix());
  dom::parser parser;
  size_t num_cases = 0;
  const dom::element golden = parser.load(*golden_path("tokenizer/sentence_piece.json"));
  for (const dom::element c : array_of(golden["cases"])) {
    const std::string text = text_of(c["text"]);
    EXPECT_EQ(encode(t, text, Recognize::kNothing), ids_of(c["ids"])) << text;
    EXPECT_EQ(t.decode(ids_of(c["ids"]), false), text_of(c["decoded"]));
    ++num_cases;
  }
  EXPECT_EQ(num_cases, 320u);
}

// --- recipe/tokenizer.json: the DeepSeek vocabulary and the nano one ---

class DeepSeekTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const bool nano = std::string_view(GetParam()) == "nano";
    const auto path = golden_path(nano ? "models/nano/tokenizer.json" : "recipe/deepseek_tokenizer.json");
    if (!path) GTEST_SKIP() << "the tokenizer.json of " << GetParam() << " is not beside the checkout";
    auto loaded = Tokenizer::from_json(read_file(*path), "", *path);
    ASSERT_TRUE(loaded) << loaded.error().message;
    tokenizer_ = std::move(*loaded);
    golden_ = parser_.load(*golden_path("recipe/tokenizer.json"));
    for (const dom::element set : array_of(golden_["sets"])) {
      if (set["tokenizer"].get_string().value() == GetParam()) set_ = set;
    }
  }

  // The generators that the golden file describes.
  struct Lcg {
    uint64_t x;
    uint64_t draw() {
      x = x * 6364136223846793005u + 1442695040888963407u;
      return x >> 33;
    }
  };
  static void append_code_point(uint32_t c, std::string& out) {
    const auto tail = [&](int shift) { out += static_cast<char>(0x80 | (c >> shift & 63)); };
    if (c < 0x80) {
      out += static_cast<char>(c);
    } else if (c < 0x800) {
      out += static_cast<char>(0xc0 | c >> 6), tail(0);
    } else if (c < 0x10000) {
      out += static_cast<char>(0xe0 | c >> 12), tail(6), tail(0);
    } else {
      out += static_cast<char>(0xf0 | c >> 18), tail(12), tail(6), tail(0);
    }
  }

  dom::parser parser_;
  dom::element golden_, set_;
  std::unique_ptr<Tokenizer> tokenizer_;
};

TEST_P(DeepSeekTest, Cases) {
  size_t num_cases = 0;
  for (const dom::element c : array_of(set_["cases"])) {
    const std::string text = text_of(c["text"]);
    const Ids ids = encode(*tokenizer_, text, Recognize::kNothing);
    EXPECT_EQ(ids, ids_of(c["ids"])) << text;
    std::string bytes;
    for (const TokenId id : ids) bytes += tokenizer_->token_bytes(id);
    EXPECT_EQ(bytes, text);
    ++num_cases;
  }
  EXPECT_GT(num_cases, 200u);
  for (const auto& [spelling, id] : object_of(set_["added"])) {
    EXPECT_EQ(tokenizer_->special_id(spelling), static_cast<TokenId>(id.get_int64().value())) << spelling;
  }
}

TEST_P(DeepSeekTest, IncrementalDecoding) {
  size_t num_runs = 0;
  for (const dom::element c : array_of(set_["incremental"])) {
    const Ids ids = ids_of(c["ids"]);
    // The program that made the file waits for the third byte of a surrogate. It never becomes valid after its second, so the rule
    // (Unicode 3.9) replaces it there: the same text, earlier.
    const bool compare_pieces = text_of(c["note"]) != "surrogate";
    Detokenizer detokenizer(*tokenizer_, true);
    std::string all, expected_all;
    size_t i = 0;
    for (const dom::element piece : array_of(c["pieces"])) {
      std::string out;
      detokenizer.push(ids[i], out);
      if (compare_pieces) {
        EXPECT_EQ(out, text_of(piece)) << "run " << num_runs << ", token " << i;
      }
      all += out;
      expected_all += text_of(piece);
      ++i;
    }
    EXPECT_EQ(i, ids.size());
    std::string out;
    detokenizer.finish(out);
    EXPECT_EQ(out, text_of(c["flush"])) << "run " << num_runs;
    EXPECT_EQ(all, expected_all);
    EXPECT_EQ(tokenizer_->decode(ids, true), expected_all + text_of(c["flush"]));
    ++num_runs;
  }
  EXPECT_GT(num_runs, 60u);
}

TEST_P(DeepSeekTest, GeneratedCorpora) {
  const dom::element generator = golden_["generator"];
  size_t num_corpora = 0;
  for (const dom::element corpus : array_of(set_["corpora"])) {
    SCOPED_TRACE(corpus["name"].get_string().value());
    Lcg lcg{corpus["seed"].get_uint64().value()};
    const uint64_t max_n = corpus["max_n"].get_uint64().value(), num_lines = corpus["lines"].get_uint64().value();
    std::vector<std::string> alphabet;
    std::vector<std::pair<uint32_t, uint32_t>> ranges;
    if (corpus["kind"].get_string().value() == "pieces") {
      for (const dom::element s : array_of(generator["alphabets"][corpus["alphabet"].get_string().value()])) alphabet.push_back(text_of(s));
    } else {
      for (const dom::element r : array_of(generator["ranges"])) {
        ranges.emplace_back(r.at(0).get_uint64().value(), r.at(1).get_uint64().value());
      }
    }
    std::string digest;
    uint64_t num_bytes = 0, num_ids = 0;
    for (uint64_t line = 0; line < num_lines; ++line) {
      std::string text;
      const uint64_t n = 1 + lcg.draw() % max_n;
      for (uint64_t i = 0; i < n; ++i) {
        if (!alphabet.empty()) {
          text += alphabet[lcg.draw() % alphabet.size()];
        } else {
          const auto [low, high] = ranges[lcg.draw() % ranges.size()];
          append_code_point(low + static_cast<uint32_t>(lcg.draw() % (high - low + 1)), text);
        }
      }
      const Ids ids = encode(*tokenizer_, text, Recognize::kNothing);
      num_bytes += text.size();
      num_ids += ids.size();
      digest += decimal(ids);
      digest += '\n';
    }
    EXPECT_EQ(num_bytes, corpus["bytes"].get_uint64().value());
    EXPECT_EQ(num_ids, corpus["ids"].get_uint64().value());
    EXPECT_EQ(sha256(digest), corpus["sha256"].get_string().value());
    ++num_corpora;
  }
  EXPECT_EQ(num_corpora, 5u);
}

TEST_P(DeepSeekTest, LongRuns) {
  static constexpr std::string_view kBase64 = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  for (const dom::element run : array_of(set_["long_runs"])) {
    const std::string_view name = run["name"].get_string();
    SCOPED_TRACE(name);
    Lcg lcg{run["seed"].get_uint64().value()};
    std::string text(run["chars"].get_uint64().value(), 'a');
    for (char& c : text) {
      if (name == "base64 run") c = kBase64[lcg.draw() % 64];
      if (name == "letters only run") c = static_cast<char>('a' + lcg.draw() % 26);
    }
    EXPECT_EQ(sha256(decimal(encode(*tokenizer_, text, Recognize::kNothing))), run["sha256"].get_string().value());
  }
}

INSTANTIATE_TEST_SUITE_P(Golden, DeepSeekTest, ::testing::Values("deepseek", "nano"));

}  // namespace
}  // namespace deepinfer::tokenizer
