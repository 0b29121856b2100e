#include "tokenizer/engram_map.h"

#include <algorithm>
#include <filesystem>
#include <gtest/gtest.h>

#include "read_file.h"

namespace deepinfer::tokenizer {
namespace {

int32_t compressed_size(const std::vector<int32_t>& map) { return *std::max_element(map.begin(), map.end()) + 1; }

TEST(EngramKey, FoldsCaseAccentsAndBlanks) {
  EXPECT_EQ(engram_key(" The"), "the");
  EXPECT_EQ(engram_key("Éa"), "ea");
  EXPECT_EQ(engram_key("ﬁ"), "fi");
  EXPECT_EQ(engram_key("a \t\n b"), "a b");
  EXPECT_EQ(engram_key(" "), " ");
  EXPECT_EQ(engram_key("\n\n"), " ");  // one run of blanks is one space, which stays
  EXPECT_EQ(engram_key(" \xc2\xa0"), " ");  // NFKC makes it two spaces
  EXPECT_EQ(engram_key("\xcc\x81"), "\xcc\x81");  // a lone accent would leave nothing
}

TEST(EngramTokenMap, NanoHasAsManyIdsAsItsConfigSays) {
  const auto tokenizer = Tokenizer::from_json(read_file(DI_SOURCE_DIR "/models/nano/tokenizer.json"), "", "nano");
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  const auto map = engram_token_map(**tokenizer, 2048);
  const std::string config = read_file(DI_SOURCE_DIR "/models/nano/config.json");
  EXPECT_NE(config.find("\"engram_compressed_vocab_size\": " + std::to_string(compressed_size(map)) + ","), std::string::npos)
      << compressed_size(map);
}

TEST(EngramTokenMap, TheReleasedVocabularyHas99092) {
  const std::string path = DI_SOURCE_DIR "/../shared/golden/recipe/deepseek_tokenizer.json";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << "the released tokenizer.json is not here";
  const auto tokenizer = Tokenizer::from_json(read_file(path), "", "deepseek");
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  const auto map = engram_token_map(**tokenizer, 129280);
  EXPECT_EQ(compressed_size(map), 99092);
  EXPECT_EQ(map[2], 2);
}

}  // namespace
}  // namespace deepinfer::tokenizer
