#include "grammar/grammar_cache.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "grammar/fake_vocabulary.h"

namespace deepinfer::grammar {
namespace {

std::string choice(int i) { return R"({"kind":"choice","choices":["a)" + std::to_string(i) + "\"]}"; }

TEST(GrammarCache, KeepsTheMostRecentlyUsed) {
  const FakeVocabulary tokenizer;
  GrammarCache cache(tokenizer, tokenizer.vocab_size(), {tokenizer.end()}, 2);
  const auto first = cache.find_or_compile(choice(1)).value();
  const auto second = cache.find_or_compile(choice(2)).value();
  EXPECT_EQ(cache.find_or_compile(choice(1)).value(), first);
  const auto third = cache.find_or_compile(choice(3)).value();
  EXPECT_EQ(cache.size(), 2u);
  EXPECT_EQ(cache.find_or_compile(choice(1)).value(), first);
  EXPECT_NE(cache.find_or_compile(choice(2)).value(), second);
  EXPECT_TRUE(second->matcher().has_value()) << "one that was dropped works for who has it";
}

TEST(GrammarCache, AScopeKnowsOnlyItsOwn) {
  const FakeVocabulary tokenizer;
  GrammarCache cache(tokenizer, tokenizer.vocab_size(), {tokenizer.end()});
  const Digest256 one{{1}}, two{{2}};
  const auto first = cache.find_or_compile(choice(1), one).value();
  EXPECT_NE(cache.find_or_compile(choice(1), two).value(), first);
  EXPECT_EQ(cache.find_or_compile(choice(1), one).value(), first);
  EXPECT_EQ(cache.size(), 2u);
}

TEST(GrammarCache, RefusalsAreNotKept) {
  const FakeVocabulary tokenizer;
  GrammarCache cache(tokenizer, tokenizer.vocab_size(), {tokenizer.end()});
  EXPECT_FALSE(cache.find_or_compile(R"({"kind":"json_schema","schema":{"not":{}}})").has_value());
  EXPECT_EQ(cache.size(), 0u);
}

TEST(GrammarCache, AVocabularyThatCannotBeIsAnError) {
  const FakeVocabulary tokenizer;
  EXPECT_FALSE(GrammarCache(tokenizer, tokenizer.vocab_size() - 1, {tokenizer.end()}).find_or_compile(choice(1)).has_value());
  EXPECT_FALSE(GrammarCache(tokenizer, tokenizer.vocab_size(), {}).find_or_compile(choice(1)).has_value());
  EXPECT_FALSE(GrammarCache(tokenizer, tokenizer.vocab_size(), {-1}).find_or_compile(choice(1)).has_value());
}

TEST(GrammarCache, ManyThreadsAtOnce) {
  const FakeVocabulary tokenizer;
  GrammarCache cache(tokenizer, tokenizer.vocab_size(), {tokenizer.end()}, 3);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 20; ++i) {
        const auto grammar = cache.find_or_compile(choice((i + t) % 5));
        ASSERT_TRUE(grammar.has_value());
        Matcher matcher = (*grammar)->matcher().value();
        EXPECT_TRUE(matcher.accept('a').has_value());
        EXPECT_TRUE(matcher.accept('0' + (i + t) % 5).has_value());
        EXPECT_TRUE(matcher.is_complete());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(cache.size(), 3u);
}

}  // namespace
}  // namespace deepinfer::grammar
