#include "engine/mask_worker.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/rng.h"
#include "grammar/fake_vocabulary.h"

namespace deepinfer::engine {
namespace {

constexpr const char* kMaskedList =
    R"({"kind":"json_schema","schema":{"type":"array","items":{"anyOf":[{"type":"string","maxLength":5},{"type":"integer"},{"enum":["ab","abc",null]}]}}})";

class MaskWorkerTest : public ::testing::Test {
 protected:
  MaskWorkerTest() : vocabulary_(build()), grammar_(grammar::Grammar::compile(*vocabulary_, kMaskedList).value()) {}

  std::unique_ptr<const grammar::Vocabulary> build() const {
    const TokenId end = tokenizer_.end();
    return grammar::Vocabulary::build(tokenizer_, tokenizer_.vocab_size(), {&end, 1}).value();
  }
  TokenId pick(std::span<const uint32_t> bits, uint64_t draw) const {
    std::vector<TokenId> allowed;
    for (TokenId t = 0; t < tokenizer_.vocab_size(); ++t) {
      if ((bits[static_cast<size_t>(t) / 32] >> (t % 32) & 1) != 0) allowed.push_back(t);
    }
    return allowed.at(draw % allowed.size());
  }

  const grammar::FakeVocabulary tokenizer_;
  const std::unique_ptr<const grammar::Vocabulary> vocabulary_;
  const std::shared_ptr<const grammar::Grammar> grammar_;
};

class MasksBeside : public MaskWorkerTest, public ::testing::WithParamInterface<bool> {};
INSTANTIATE_TEST_SUITE_P(Thread, MasksBeside, ::testing::Bool());

// Steps of random rows, taken by two threads at once, at once or only when the worker has had time for them.
TEST_P(MasksBeside, MasksAreThoseOfTheMatchers) {
  constexpr int32_t kRows = 6;
  MaskWorker worker(kRows, vocabulary_->size(), GetParam());
  std::vector<grammar::Matcher> matchers, twins;
  for (int32_t row = 0; row < kRows; ++row) {
    matchers.push_back(grammar_->matcher().value());
    twins.push_back(grammar_->matcher().value());
  }
  Rng rng(7);
  std::vector<uint32_t> expected(vocabulary_->mask_words());
  for (int step = 0; step < 200; ++step) {
    std::vector<int32_t> rows;
    for (int32_t row = 0; row < kRows; ++row) {
      if (rng.below(3) > 0) rows.push_back(row);
    }
    for (const int32_t row : rows) worker.offer(row, matchers[static_cast<size_t>(row)]);
    worker.start();
    if (rng.below(2) > 0) std::this_thread::sleep_for(std::chrono::microseconds(rng.below(300)));
    std::vector<std::optional<std::span<const uint32_t>>> taken(rows.size());
    std::thread other([&] {
      for (size_t i = 0; i < rows.size(); i += 2) taken[i] = worker.take(rows[i]);
    });
    for (size_t i = 1; i < rows.size(); i += 2) taken[i] = worker.take(rows[i]);
    other.join();
    for (size_t i = 0; i < rows.size(); ++i) {
      const auto row = static_cast<size_t>(rows[i]);
      ASSERT_TRUE(twins[row].mask(expected).has_value());
      ASSERT_TRUE(taken[i].has_value());
      ASSERT_TRUE(std::equal(expected.begin(), expected.end(), taken[i]->begin(), taken[i]->end())) << "step " << step << " row " << row;
      const TokenId token = pick(expected, rng.next_u32());
      if (token == tokenizer_.end()) {
        matchers[row] = grammar_->matcher().value();
        twins[row] = grammar_->matcher().value();
      } else {
        ASSERT_TRUE(matchers[row].accept(token).has_value() && twins[row].accept(token).has_value());
      }
    }
  }
}

TEST_F(MaskWorkerTest, AMatcherThatGaveUpIsSaidSo) {
  MaskWorker worker(2, vocabulary_->size(), true);
  grammar::Matcher good = grammar_->matcher().value(), bad = grammar_->matcher().value();
  EXPECT_FALSE(bad.accept('x').has_value());
  for (int step = 0; step < 20; ++step) {
    worker.offer(0, bad);
    worker.offer(1, good);
    worker.start();
    if (step % 2 == 0) std::this_thread::sleep_for(std::chrono::microseconds(200));
    EXPECT_FALSE(worker.take(0).has_value());
    EXPECT_TRUE(worker.take(1).has_value());
  }
}

TEST_F(MaskWorkerTest, WithoutWorkItSleeps) {
  MaskWorker worker(4, vocabulary_->size(), true);
  grammar::Matcher matcher = grammar_->matcher().value();
  worker.offer(0, matcher);
  worker.start();
  ASSERT_TRUE(worker.take(0).has_value());
  std::this_thread::sleep_for(std::chrono::milliseconds(10));
  const double before_s = process_cpu_seconds();
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_LT(process_cpu_seconds() - before_s, 0.010);
}

}  // namespace
}  // namespace deepinfer::engine
