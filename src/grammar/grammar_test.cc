// Masks against brute force: where a constraint allows finitely many texts, a token may come if and only if some text goes on with it.
#include "grammar/grammar.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "base/rng.h"
#include "grammar/fake_vocabulary.h"

namespace deepinfer::grammar {
namespace {

class GrammarTest : public ::testing::Test {
 protected:
  // Larger than the tokenizer, as models' vocabularies are.
  GrammarTest() : size_(tokenizer_.vocab_size() + 7), vocabulary_(build()) {}

  std::unique_ptr<const Vocabulary> build() {
    const TokenId end = tokenizer_.end();
    return Vocabulary::build(tokenizer_, size_, {&end, 1}).value();
  }
  Result<Matcher> start(std::string_view spec) {
    DI_TRY(const std::shared_ptr<const Grammar> grammar, Grammar::compile(*vocabulary_, spec));
    return grammar->matcher();
  }
  std::string error(std::string_view spec) {
    const Result<Matcher> made = start(spec);
    return made ? "" : made.error().message;
  }
  std::vector<bool> mask(Matcher& matcher) {
    std::vector<uint32_t> bits(vocabulary_->mask_words());
    EXPECT_TRUE(matcher.mask(bits).has_value());
    std::vector<bool> out(static_cast<size_t>(size_));
    for (size_t t = 0; t < out.size(); ++t) out[t] = (bits[t / 32] >> (t % 32) & 1) != 0;
    return out;
  }
  bool accepts(std::string_view spec, std::string_view text) {
    Matcher matcher = start(spec).value();
    for (const char c : text) {
      const auto token = static_cast<TokenId>(static_cast<unsigned char>(c));
      if (!mask(matcher)[static_cast<size_t>(token)]) return false;
      EXPECT_TRUE(matcher.accept(token).has_value());
    }
    return matcher.is_accepting();
  }

  // Follows every way through the vocabulary that some of `texts` allows and compares each mask.
  void compare(Matcher& matcher, const std::string& so_far, const std::set<std::string>& texts) {
    const std::vector<bool> got = mask(matcher);
    const auto begins = [&](const std::string& text) {
      const auto it = texts.lower_bound(text);
      return it != texts.end() && it->starts_with(text);
    };
    EXPECT_EQ(matcher.is_accepting(), texts.contains(so_far)) << so_far;
    for (TokenId token = 0; token < size_; ++token) {
      const std::string next = so_far + std::string(tokenizer_.token_bytes(token));
      const bool is_text = token < tokenizer_.end();
      const bool wanted = token == tokenizer_.end() ? texts.contains(so_far) : is_text && begins(next);
      ASSERT_EQ(got[static_cast<size_t>(token)], wanted) << "token " << token << " \"" << tokenizer_.token_bytes(token) << "\" behind " << so_far;
      if (!wanted || token == tokenizer_.end()) continue;
      ASSERT_TRUE(matcher.accept(token).has_value());
      compare(matcher, next, texts);
      if (::testing::Test::HasFatalFailure()) return;
      ASSERT_TRUE(matcher.rollback(1).has_value());
    }
  }
  void compare(std::string_view spec, const std::set<std::string>& texts) {
    Result<Matcher> matcher = start(spec);
    ASSERT_TRUE(matcher.has_value()) << matcher.error().message;
    compare(*matcher, "", texts);
  }

  FakeVocabulary tokenizer_;
  const int32_t size_;
  std::unique_ptr<const Vocabulary> vocabulary_;
};

TEST_F(GrammarTest, ChoicesAreWhatIsListed) {
  compare(R"({"kind":"choice","choices":["abc","ab","bcab","\u00e9","a\"]}"]})", {"abc", "ab", "bcab", "\xC3\xA9", "a\"]}"});
}

TEST_F(GrammarTest, PatternsCoverTheWholeText) {
  compare(R"({"kind":"regex","pattern":"^(ab|12)c?$"})", {"ab", "abc", "12", "12c"});
  compare(R"({"kind":"regex","pattern":"a\\$"})", {"a$"});
  compare(R"({"kind":"regex","pattern":"\\u20ac{1,2}"})", {"\xE2\x82\xAC", "\xE2\x82\xAC\xE2\x82\xAC"});
}

TEST_F(GrammarTest, SchemasAreJsonWithAtMostOneSpace) {
  std::set<std::string> texts;
  for (const char* colon : {":", ": "}) {
    for (const char* comma : {",", ", "}) {
      for (const char* second : {":", ": "}) {
        for (const char* name : {"true", "false"}) {
          for (const char* b : {"1", "\"ab\"", "null"}) {
            texts.insert(std::string("{\"a\"") + colon + name + comma + "\"b\"" + second + b + "}");
          }
        }
      }
    }
  }
  const std::string schema =
      R"({"type":"object","properties":{"a":{"type":"boolean"},"b":{"enum":[1,"ab",null]}},"required":["a","b"],"additionalProperties":false})";
  compare(R"({"kind":"json_schema","schema":)" + schema + "}", texts);
  std::set<std::string> compact;
  for (const std::string& text : texts) {
    if (text.find(' ') == std::string::npos) compact.insert(text);
  }
  compare(R"({"kind":"json_schema","compact":true,"schema":)" + schema + "}", compact);
}

TEST_F(GrammarTest, ControlTokensAreNamedByNumber) {
  const std::string mark = std::to_string(tokenizer_.mark());
  const std::string spec = R"({"kind":"lark","grammar":"start: \"ab\" <[)" + mark + R"(]> @s","schemas":[{"name":"s","schema":{"const":12}}]})";
  Matcher matcher = start(spec).value();
  EXPECT_FALSE(mask(matcher)[static_cast<size_t>(tokenizer_.mark())]);
  EXPECT_TRUE(matcher.accept('a').has_value());
  EXPECT_TRUE(matcher.accept('b').has_value());
  std::vector<bool> allowed = mask(matcher);
  for (TokenId token = 0; token < size_; ++token) EXPECT_EQ(allowed[static_cast<size_t>(token)], token == tokenizer_.mark()) << token;
  EXPECT_TRUE(matcher.accept(tokenizer_.mark()).has_value());
  EXPECT_TRUE(matcher.rollback(1).has_value());
  EXPECT_TRUE(matcher.accept(tokenizer_.mark()).has_value());
  EXPECT_TRUE(matcher.accept('1').has_value());
  EXPECT_FALSE(matcher.is_complete());
  EXPECT_TRUE(matcher.accept('2').has_value());
  EXPECT_TRUE(matcher.is_complete());
}

TEST_F(GrammarTest, RollbackIsAsIfNothingHadBeen) {
  const std::string spec = R"({"kind":"json_schema","schema":{"type":"object","properties":{"name":{"type":"string"},"n":{"type":"number"}}}})";
  Rng rng(7);
  for (int round = 0; round < 20; ++round) {
    Matcher walked = start(spec).value(), fresh = start(spec).value();
    std::vector<TokenId> tokens;
    for (int step = 0; step < 30; ++step) {
      const std::vector<bool> allowed = mask(walked);
      ASSERT_EQ(allowed, mask(fresh));
      std::vector<TokenId> choices;
      for (TokenId token = 0; token < tokenizer_.end(); ++token) {
        if (allowed[static_cast<size_t>(token)]) choices.push_back(token);
      }
      if (choices.empty()) break;
      // A draft of one to three tokens that is taken back, then one token that stays.
      const auto draft = static_cast<int32_t>(1 + rng.below(3));
      int32_t taken = 0;
      for (; taken < draft && !walked.is_complete(); ++taken) {
        const std::vector<bool> now = mask(walked);
        std::vector<TokenId> next;
        for (TokenId token = 0; token < tokenizer_.end(); ++token) {
          if (now[static_cast<size_t>(token)]) next.push_back(token);
        }
        if (next.empty()) break;
        ASSERT_TRUE(walked.accept(next[rng.below(next.size())]).has_value());
      }
      ASSERT_TRUE(walked.rollback(taken).has_value());
      const TokenId kept = choices[rng.below(choices.size())];
      ASSERT_TRUE(walked.accept(kept).has_value());
      ASSERT_TRUE(fresh.accept(kept).has_value());
      ASSERT_EQ(walked.is_complete(), fresh.is_complete());
      if (walked.is_complete()) break;
    }
  }
}

TEST_F(GrammarTest, TheEndCanBeTakenBack) {
  Matcher matcher = start(R"({"kind":"choice","choices":["ab","abc"]})").value();
  EXPECT_TRUE(matcher.accept('a').has_value());
  EXPECT_TRUE(matcher.accept('b').has_value());
  EXPECT_TRUE(matcher.is_accepting());
  EXPECT_FALSE(matcher.is_complete());
  EXPECT_TRUE(matcher.accept(tokenizer_.end()).has_value());
  EXPECT_TRUE(matcher.is_complete());
  EXPECT_TRUE(matcher.rollback(1).has_value());
  EXPECT_FALSE(matcher.is_complete());
  EXPECT_TRUE(matcher.accept('c').has_value());
  EXPECT_TRUE(matcher.is_complete());
  std::vector<bool> only_end(static_cast<size_t>(size_));
  only_end[static_cast<size_t>(tokenizer_.end())] = true;
  EXPECT_EQ(mask(matcher), only_end);
}

TEST_F(GrammarTest, AForbiddenTokenIsAnError) {
  Matcher matcher = start(R"({"kind":"choice","choices":["ab"]})").value();
  EXPECT_FALSE(matcher.accept('b').has_value());
}

TEST_F(GrammarTest, WhiteSpaceIsBounded) {
  const std::string spec = R"({"kind":"json_schema","schema":{"type":"object"}})";
  EXPECT_TRUE(accepts(spec, R"({"a": 1, "b": [1, 2]})"));
  EXPECT_FALSE(accepts(spec, R"({"a":  1})"));
  EXPECT_FALSE(accepts(spec, "{ \"a\": 1}"));
  EXPECT_FALSE(accepts(spec, "{\"a\":\n1}"));
  EXPECT_FALSE(accepts(spec, " {}"));
}

TEST_F(GrammarTest, WhatCannotBeHonouredIsNamed) {
  const auto schema = [](const std::string& text) { return R"({"kind":"json_schema","schema":)" + text + "}"; };
  EXPECT_EQ(error(schema(R"({"type":"object","properties":{"a/b":{"not":{"type":"string"}}}})")),
            R"(the schema: keyword "not" at "/properties/a~1b": it is not supported)");
  EXPECT_EQ(error(schema(R"({"anyOf":[{"type":"array","uniqueItems":true}]})")),
            R"(the schema: keyword "uniqueItems" at "/anyOf/0": it is not supported)");
  EXPECT_EQ(error(schema(R"({"$ref":"https://example.com/x"})")),
            R"x(the schema: keyword "$ref" at its root: only references within the schema, "#/…" without escapes, are supported)x");
  EXPECT_NE(error(schema(R"({"type":"object","properties":{"when":{"type":"string","format":"iri"}}})")).find(R"(keyword "format" at "/properties/when")"),
            std::string::npos);
  EXPECT_NE(error(schema(R"({"properties":{"x":{"type":"string","pattern":"(?=a)b"}}})")).find(R"(keyword "pattern" at "/properties/x")"), std::string::npos);
  EXPECT_NE(error(schema(R"({"$defs":{"n":{"minimum":"1"}},"properties":{"x":{"$ref":"#/$defs/n"}}})")).find(R"(keyword "minimum" at "/$defs/n")"),
            std::string::npos);
  EXPECT_NE(error(schema(R"({"oneOf":[{"type":"string"},{"minLength":2}]})")).find(R"(keyword "oneOf" at its root)"), std::string::npos);
  EXPECT_NE(error(R"({"kind":"regex","pattern":"("})"), "");
  EXPECT_NE(error(R"({"kind":"lark","grammar":"begin: \"a\""})"), "");
  EXPECT_NE(error(R"({"kind":"spell","text":"a"})"), "");
  EXPECT_NE(error(R"({"kind":"choice","choices":[]})"), "");
}

TEST_F(GrammarTest, HostileInputIsRefusedAndNothingFalls) {
  std::string deep_schema;
  for (int i = 0; i < 100; ++i) deep_schema += R"({"items":)";
  std::string place;
  for (int i = 0; i < 64; ++i) place += "/items";
  EXPECT_EQ(error(R"({"kind":"json_schema","schema":)" + deep_schema + "true" + std::string(100, '}') + "}"),
            R"(the schema: keyword "items" at ")" + place + R"(": schemas are nested more than 64 deep)");
  for (int i = 0; i < 5000; ++i) deep_schema += R"({"items":)";
  EXPECT_NE(error(R"({"kind":"json_schema","schema":)" + deep_schema + "true" + std::string(5100, '}') + "}"), "");
  EXPECT_NE(error(R"({"kind":"lark","grammar":"start: )" + std::string(20000, '(') + R"("})"), "");
  EXPECT_NE(error(R"({"kind":"regex","pattern":")" + std::string(20000, '(') + R"("})"), "");
  std::string chain = "start: r0\\n";
  for (int i = 0; i < 4000; ++i) chain += "r" + std::to_string(i) + ": r" + std::to_string(i + 1) + "\\n";
  EXPECT_EQ(error(R"({"kind":"lark","grammar":")" + chain + R"(r4000: \"a\""})"), "");
  std::string many = R"({"type":"object","properties":{)";
  for (int i = 0; i < 1001; ++i) many += (i > 0 ? ",\"p" : "\"p") + std::to_string(i) + "\":true";
  EXPECT_EQ(error(R"({"kind":"json_schema","schema":)" + many + "}}}"),
            R"(the schema: keyword "properties" at its root: more than 1000 properties)");
}

}  // namespace
}  // namespace deepinfer::grammar
