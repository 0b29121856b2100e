// What a tokenizer.json may say: each accepted form, and each refusal with its reason.
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "tokenizer/byte_map.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/unicode.h"

namespace deepinfer::tokenizer {
namespace {

// The members of a file, to be changed one by one. 256 bytes, "ab" = 256, "abc" = 257, " ab" = 258, and added tokens from 259 on.
struct File {
  std::string normalizer = "null";
  std::string pre_tokenizer = R"({"type":"ByteLevel","add_prefix_space":false,"use_regex":true})";
  std::string post_processor = "null";
  std::string decoder = R"({"type":"ByteLevel"})";
  std::string added = R"([{"id":259,"content":"<s>","special":true},{"id":260,"content":"</s>","special":true}])";
  std::string merges = R"(["a b","ab c",["Ġ","ab"]])";
  std::string model = R"("type":"BPE")";
  std::string extra_vocab;
  std::string config;

  std::string json() const {
    std::string vocab;
    for (int b = 0; b < 256; ++b) {
      std::string spelling;
      append_utf8(kByteSpelling[static_cast<size_t>(b)], spelling);
      if (spelling == "\"" || spelling == "\\") spelling.insert(0, "\\");
      vocab += "\"" + spelling + "\":" + std::to_string(b) + ",";
    }
    vocab += R"("ab":256,"abc":257,"Ġab":258)" + extra_vocab;
    return R"({"version":"1.0","added_tokens":)" + added + R"(,"normalizer":)" + normalizer + R"(,"pre_tokenizer":)" + pre_tokenizer +
           R"(,"post_processor":)" + post_processor + R"(,"decoder":)" + decoder + R"(,"model":{)" + model + R"(,"vocab":{)" + vocab +
           R"(},"merges":)" + merges + "}}";
  }
  Result<std::unique_ptr<Tokenizer>> load() const { return Tokenizer::from_json(json(), config, "tokenizer.json"); }
};

std::vector<TokenId> encode(const File& file, std::string_view text, Recognize recognize = Recognize::kNothing) {
  const auto t = file.load();
  EXPECT_TRUE(t) << t.error().message;
  std::vector<TokenId> ids;
  if (t) (*t)->encode(text, recognize, ids);
  return ids;
}
using Ids = std::vector<TokenId>;

void expect_refused(const File& file, Code code, std::string_view word) {
  const auto t = file.load();
  ASSERT_FALSE(t) << word;
  EXPECT_EQ(t.error().code, code) << t.error().message;
  EXPECT_NE(t.error().message.find(word), std::string::npos) << t.error().message;
}

TEST(TokenizerJson, ReadsBothFormsOfMerges) { EXPECT_EQ(encode({}, "abc ab"), (Ids{257, 258})); }

TEST(TokenizerJson, AddedTokensTakeWhiteSpaceAlong) {
  File file;
  file.added = R"([{"id":259,"content":"<s>","special":true,"lstrip":true},{"id":260,"content":"<t>","special":false,"rstrip":true,"normalized":false}])";
  EXPECT_EQ(encode(file, "ab \u3000<s> ab", Recognize::kAll), (Ids{256, 259, 258}));
  const Ids ids = encode(file, "ab<t> \n ab", Recognize::kUserDefined);
  EXPECT_EQ(ids, (Ids{256, 260, 256}));
  file.added = R"([{"id":259,"content":"<s>","single_word":true}])";
  expect_refused(file, Code::kUnsupported, "single_word");
}

TEST(TokenizerJson, NormalisedAddedTokensAreLookedForAfterNfc) {
  File file;
  file.normalizer = R"({"type":"Sequence","normalizers":[{"type":"NFC"}]})";
  file.added = "[{\"id\":259,\"content\":\"é\",\"special\":false,\"normalized\":true},{\"id\":260,\"content\":\"à\",\"special\":false,\"normalized\":false}]";
  EXPECT_EQ(encode(file, "e\u0301ab", Recognize::kAll), (Ids{259, 256}));
  EXPECT_EQ(encode(file, "a\u0300ab", Recognize::kAll).size(), 3u);  // the raw text does not have it
}

TEST(TokenizerJson, KnowsItsPatternsByTheirText) {
  File file;
  const auto split = [&](const std::string& regex, const std::string& rest) {
    file.pre_tokenizer = R"({"type":"Sequence","pretokenizers":[{"type":"Split","pattern":{"Regex":")" + regex + R"("},)" + rest +
                         R"(},{"type":"ByteLevel","add_prefix_space":false,"use_regex":false}]})";
  };
  const std::string isolated = R"("behavior":"Isolated","invert":false)";
  const std::string qwen =
      R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+)";
  split(qwen, isolated);
  EXPECT_EQ(encode(file, "abc\tab"), (Ids{257, 9, 256}));
  split(qwen, R"("behavior":"Removed","invert":true)");
  EXPECT_EQ(encode(file, "abc"), (Ids{257}));
  split(qwen, R"("behavior":"Removed","invert":false)");
  expect_refused(file, Code::kUnsupported, "Removed");
  split(qwen, R"("behavior":"MergedWithNext","invert":false)");
  expect_refused(file, Code::kUnsupported, "MergedWithNext");
  split("\\\\w+", isolated);
  expect_refused(file, Code::kUnsupported, "\\w+");
  split("\\\\p{N}{1,3}", isolated);  // known, but not alone
  expect_refused(file, Code::kUnsupported, "digits3");
  file.pre_tokenizer = R"({"type":"Sequence","pretokenizers":[{"type":"Digits","individual_digits":true},{"type":"ByteLevel","add_prefix_space":false}]})";
  EXPECT_EQ(encode(file, "ab1"), (Ids{256, '1'}));
  file.pre_tokenizer = R"({"type":"Digits","individual_digits":false})";
  expect_refused(file, Code::kUnsupported, "individual_digits");
  file.pre_tokenizer = R"({"type":"ByteLevel","add_prefix_space":true})";
  expect_refused(file, Code::kUnsupported, "add_prefix_space");
  file.pre_tokenizer = R"({"type":"BertPreTokenizer"})";
  expect_refused(file, Code::kUnsupported, "BertPreTokenizer");
  file.pre_tokenizer = "null";
  expect_refused(file, Code::kUnsupported, "decoder");
}

TEST(TokenizerJson, RefusesPartsItDoesNotKnow) {
  const auto with = [](auto change) {
    File file;
    change(file);
    return file;
  };
  expect_refused(with([](File& f) { f.normalizer = R"({"type":"NFKC"})"; }), Code::kUnsupported, "NFKC");
  expect_refused(with([](File& f) { f.normalizer = R"({"type":"Lowercase"})"; }), Code::kUnsupported, "Lowercase");
  expect_refused(with([](File& f) { f.decoder = R"({"type":"WordPiece"})"; }), Code::kUnsupported, "WordPiece");
  expect_refused(with([](File& f) { f.post_processor = R"({"type":"BertProcessing"})"; }), Code::kUnsupported, "BertProcessing");
  expect_refused(with([](File& f) { f.model = R"("type":"Unigram")"; }), Code::kUnsupported, "Unigram");
  expect_refused(with([](File& f) { f.model = R"("type":"BPE","dropout":0.1)"; }), Code::kUnsupported, "dropout");
  expect_refused(with([](File& f) { f.model = R"("type":"BPE","continuing_subword_prefix":"##")"; }), Code::kUnsupported, "continuing_subword_prefix");
  expect_refused(with([](File& f) { f.model = R"("type":"BPE","byte_fallback":true)"; }), Code::kUnsupported, "ByteLevel");
  expect_refused(with([](File& f) { f.merges = R"(["a zz"])"; }), Code::kCorruption, "zz");
  expect_refused(with([](File& f) { f.merges = R"(["ab"])"; }), Code::kCorruption, "merge");
  expect_refused(with([](File& f) { f.merges = R"([["a"]])"; }), Code::kCorruption, "merge");
  expect_refused(with([](File& f) { f.merges = R"([7])"; }), Code::kCorruption, "merge");
  expect_refused(with([](File& f) { f.merges = "{}"; }), Code::kCorruption, "merges");
  expect_refused(with([](File& f) { f.extra_vocab = R"(,"x1":2000000000)"; }), Code::kCorruption, "out of range");
  expect_refused(with([](File& f) { f.extra_vocab = R"(,"x1":-1)"; }), Code::kCorruption, "out of range");
  expect_refused(with([](File& f) { f.extra_vocab = R"(,"x1":256)"; }), Code::kCorruption, "twice");
  expect_refused(with([](File& f) { f.extra_vocab = R"(,"x1":"y")"; }), Code::kCorruption, "no number");
  expect_refused(with([](File& f) { f.added = R"([{"id":256,"content":"<s>"}])"; }), Code::kCorruption, "same id");
  expect_refused(with([](File& f) { f.added = R"([{"id":259,"content":""}])"; }), Code::kCorruption, "content");
  expect_refused(with([](File& f) { f.added = R"([{"id":259,"content":"<s>"},{"id":260,"content":"<s>"}])"; }), Code::kCorruption, "<s>");
  for (const char* text : {"", "{", "[]", "7", "{\"model\":7}", "{\"model\":{\"vocab\":[]}}", "\xff\xfe"}) {
    const auto t = Tokenizer::from_json(text, "", "tokenizer.json");
    ASSERT_FALSE(t) << text;
    EXPECT_EQ(t.error().code, Code::kCorruption);
  }
}

TEST(TokenizerJson, SpecialIdsComeFromTheConfigAndTheTemplate) {
  const auto ids = [](const File& file) {
    const auto t = file.load();
    EXPECT_TRUE(t) << t.error().message;
    return std::tuple((*t)->bos_id(), (*t)->eos_id(), (*t)->add_bos(), Ids((*t)->stop_ids().begin(), (*t)->stop_ids().end()));
  };
  using Expected = std::tuple<std::optional<TokenId>, std::optional<TokenId>, bool, Ids>;
  File file;
  EXPECT_EQ(ids(file), (Expected{std::nullopt, std::nullopt, false, {260}}));  // </s> ends answers wherever it is a control token
  file.config = R"({"bos_token":"<s>","eos_token":{"content":"</s>","lstrip":false},"model_max_length":1000000000000000019884624838656})";
  EXPECT_EQ(ids(file), (Expected{259, 260, false, {260}}));
  file.post_processor = R"({"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<s>","type_id":0}},{"Sequence":{"id":"A","type_id":0}}]})";
  EXPECT_EQ(ids(file), (Expected{259, 260, true, {260}}));
  file.config = R"({"eos_token":"ab","add_bos_token":false,"bos_token":null})";
  EXPECT_EQ(ids(file), (Expected{259, 256, false, {256, 260}}));
  file.config = R"({"eos_token":"<nowhere>"})";
  expect_refused(file, Code::kCorruption, "<nowhere>");
  file.config = R"({"eos_token":7})";
  expect_refused(file, Code::kCorruption, "eos_token");
  file.config = "[1]";
  expect_refused(file, Code::kCorruption, "tokenizer_config.json");
}

}  // namespace
}  // namespace deepinfer::tokenizer
