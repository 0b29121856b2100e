// Planted documents are found wherever they stand, and nothing else is.
#include "trace/repetition.h"

#include "audit_fixture.h"

namespace deepinfer::trace {
namespace {

constexpr int64_t kShortTail = 15;  // tokens at the end of a text that make no chunk
constexpr int64_t kResync = 128;    // tokens until the chunks of a text within others are the same again

class RepetitionOfLogs : public AuditFixture {
 protected:
  // What a log of one request a prompt repeats at other places, in tokens: with this tokenizer, bytes.
  int64_t other_tokens(const std::vector<std::vector<std::string>>& prompts) const {
    std::vector<std::string> lines;
    for (const std::vector<std::string>& turns : prompts) {
      json::array messages;
      for (const std::string& turn : turns) messages.push_back(json::object{{"role", messages.size() % 2 == 0 ? "user" : "assistant"}, {"content", turn}});
      lines.push_back(json::serialize(json::object{{"model", "m"}, {"messages", std::move(messages)}}));
    }
    write_lines(file("log.jsonl"), lines);
    return report_of(file("log.jsonl")).at("repetition").at("other_tokens").to_number<int64_t>();
  }
};

TEST_F(RepetitionOfLogs, ADocumentBehindOtherTurnsIsCountedToItsEnd) {
  Rng rng(1);
  const std::string document = words(rng, 5000);
  std::vector<std::vector<std::string>> prompts;
  for (int i = 0; i < 10; ++i) prompts.push_back({words(rng, 100 + rng.below(900)), words(rng, 200), document});
  const int64_t found = other_tokens(prompts);
  EXPECT_LE(found, 9 * 5000);
  EXPECT_GE(found, 9 * (5000 - kShortTail));
}

TEST_F(RepetitionOfLogs, ADocumentWithinOtherTextIsCountedButForItsEdges) {
  Rng rng(2);
  const std::string document = words(rng, 5000);
  std::vector<std::vector<std::string>> prompts;
  for (int i = 0; i < 10; ++i) prompts.push_back({words(rng, 100 + rng.below(900)) + document + words(rng, 100 + rng.below(900))});
  const int64_t found = other_tokens(prompts);
  EXPECT_LE(found, 9 * 5000);
  EXPECT_GE(found, 9 * (5000 - 2 * kResync));
}

TEST_F(RepetitionOfLogs, WhatAPrefixCacheReachesAndWhatIsNewDoNotCount) {
  Rng rng(3);
  const std::string document = words(rng, 5000);
  std::vector<std::vector<std::string>> grown, fresh;
  for (int i = 0; i < 10; ++i) {
    grown.push_back({document, words(rng, 300), words(rng, 300)});  // the document is the prefix itself
    fresh.push_back({words(rng, 3000)});
  }
  EXPECT_LE(other_tokens(grown), 9 * 64) << "at most the rest of a block";
  EXPECT_EQ(other_tokens(fresh), 0);
}

TEST_F(RepetitionOfLogs, ASampleOfChunksEstimatesTheSame) {
  Rng rng(4);
  std::vector<PreparedRequest> requests;
  std::vector<TokenId> document(40'000);
  for (TokenId& token : document) token = static_cast<TokenId>(rng.below(100'000));
  for (int i = 0; i < 4; ++i) {
    PreparedRequest r;
    for (uint64_t n = 1000 + rng.below(1000); n > 0; --n) r.tokens.push_back(static_cast<TokenId>(rng.below(100'000)));
    r.tokens.insert(r.tokens.end(), document.begin(), document.end());
    r.runs.push_back({0, static_cast<uint32_t>(r.tokens.size()), 0});
    requests.push_back(std::move(r));
  }
  Repetition all(1 << 20), sampled(200);
  for (const PreparedRequest& r : requests) {
    all.add(r, 0);
    sampled.add(r, 0);
  }
  EXPECT_GE(all.repeated_tokens(), 3 * (40'000 - 2 * kResync));
  EXPECT_LE(all.repeated_tokens(), 3 * 40'000);
  // About 100 chunks of 800 are kept: a standard error of a tenth.
  EXPECT_NEAR(sampled.repeated_tokens(), all.repeated_tokens(), 0.3 * all.repeated_tokens());
}

}  // namespace
}  // namespace deepinfer::trace
