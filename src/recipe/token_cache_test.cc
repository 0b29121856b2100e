#include "recipe/token_cache.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "base/rng.h"
#include "recipe/fake_tokenizer.h"

namespace deepinfer::recipe {
namespace {

// Counts the bytes that were really encoded.
class CountingTokenizer final : public tokenizer::Tokenizer {
 public:
  void encode(std::string_view text, tokenizer::Recognize recognize, std::vector<TokenId>& out) const override {
    num_encoded += text.size();
    fake.encode(text, recognize, out);
  }
  int32_t vocab_size() const override { return fake.vocab_size(); }
  std::optional<TokenId> special_id(std::string_view spelling) const override { return fake.special_id(spelling); }
  std::span<const AddedToken> added_tokens() const override { return fake.added_tokens(); }
  std::string_view token_bytes(TokenId id) const override { return fake.token_bytes(id); }
  bool is_special(TokenId id) const override { return fake.is_special(id); }
  std::optional<TokenId> bos_id() const override { return {}; }
  std::optional<TokenId> eos_id() const override { return {}; }
  bool add_bos() const override { return false; }
  std::span<const TokenId> stop_ids() const override { return {}; }

  FakeTokenizer fake{{{1, "<user>", true}}};
  mutable std::atomic<size_t> num_encoded = 0;
};

void add_turn(Prompt& prompt, std::string text) {
  prompt.segments.push_back({.kind = Segment::Kind::kSpecial, .id = 1, .text = "<user>"});
  prompt.segments.push_back({.text = std::move(text)});
}

TEST(TokenCache, EncodesOnlyWhatIsNew) {
  CountingTokenizer tokenizer;
  TokenCache cache(tokenizer);
  Prompt prompt;
  for (int turn = 0; turn < 20; ++turn) {
    add_turn(prompt, std::string(1000, static_cast<char>('a' + turn)));
    const size_t before = tokenizer.num_encoded;
    const std::vector<TokenId> ids = cache.tokens(prompt, {});
    EXPECT_EQ(tokenizer.num_encoded - before, 1000u);
    EXPECT_EQ(ids, prompt_tokens(prompt, tokenizer.fake));
  }
  // Neighbouring texts are one text, with or without the cache.
  Prompt split;
  add_turn(split, std::string(500, 'a'));
  split.segments.push_back({.text = std::string(500, 'a')});
  EXPECT_EQ(cache.tokens(split, {}), prompt_tokens(split, tokenizer.fake));
}

TEST(TokenCache, AScopeKnowsOnlyItsOwnTexts) {
  CountingTokenizer tokenizer;
  TokenCache cache(tokenizer);
  Prompt prompt;
  add_turn(prompt, std::string(1000, 'a'));
  const Digest256 one{{1}}, two{{2}};
  const auto encoded = [&](const Digest256& scope) {
    const size_t before = tokenizer.num_encoded;
    EXPECT_EQ(cache.tokens(prompt, scope), prompt_tokens(prompt, tokenizer.fake));
    return tokenizer.num_encoded - before;
  };
  EXPECT_EQ(encoded(one), 1000u);
  EXPECT_EQ(encoded(two), 1000u);
  EXPECT_EQ(encoded(one), 0u);
  EXPECT_EQ(encoded(two), 0u);
}

TEST(TokenCache, StaysInItsBounds) {
  CountingTokenizer tokenizer;
  constexpr size_t kMax = 100'000;
  TokenCache cache(tokenizer, kMax);
  Rng rng(3);
  for (int i = 0; i < 2000; ++i) {
    Prompt prompt;
    add_turn(prompt, std::string(64 + rng.below(4000), static_cast<char>('a' + rng.below(20))));
    EXPECT_EQ(cache.tokens(prompt, {}), prompt_tokens(prompt, tokenizer.fake));
    EXPECT_LE(cache.num_bytes(), kMax);
  }
  EXPECT_GT(cache.num_bytes(), kMax / 2);
  // What is larger than the cache passes through.
  Prompt large;
  add_turn(large, std::string(kMax, 'z'));
  EXPECT_EQ(cache.tokens(large, {}), prompt_tokens(large, tokenizer.fake));
  EXPECT_LE(cache.num_bytes(), kMax);
  TokenCache none(tokenizer, 0);
  EXPECT_EQ(none.tokens(large, {}), prompt_tokens(large, tokenizer.fake));
  EXPECT_EQ(none.num_bytes(), 0u);
}

TEST(TokenCache, ForgetsTheLeastRecentlyUsed) {
  CountingTokenizer tokenizer;
  TokenCache cache(tokenizer, 3 * (1000 + 4000 + 400));
  const auto encoded = [&](char c) {
    Prompt prompt;
    add_turn(prompt, std::string(1000, c));
    const size_t before = tokenizer.num_encoded;
    cache.tokens(prompt, {});
    return tokenizer.num_encoded - before;
  };
  for (const char c : {'a', 'b', 'c'}) EXPECT_EQ(encoded(c), 1000u);
  EXPECT_EQ(encoded('a'), 0u);
  EXPECT_EQ(encoded('d'), 1000u);  // b goes
  EXPECT_EQ(encoded('a'), 0u);
  EXPECT_EQ(encoded('b'), 1000u);
}

TEST(TokenCache, TakesThreads) {
  CountingTokenizer tokenizer;
  TokenCache cache(tokenizer, 50'000);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      Rng rng(static_cast<uint64_t>(t));
      for (int i = 0; i < 300; ++i) {
        Prompt prompt;
        add_turn(prompt, std::string(64 + rng.below(2000), static_cast<char>('a' + rng.below(8))));
        EXPECT_EQ(cache.tokens(prompt, {}), prompt_tokens(prompt, tokenizer.fake));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace deepinfer::recipe
