#include "model/v41_engram.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <numeric>

#include "golden_safetensors.h"

namespace deepinfer::model {
namespace {

constexpr int32_t kDead = EngramHash::kDead;

V41Config released() {
  V41Config c;
  c.vocab_size = 129280;
  c.engram_layer_ids = {1, 14};
  c.engram_num_embeddings = {384006168, 384016682};
  c.engram_vocab_size = 16000000;
  c.engram_max_ngram_size = 4;
  c.engram_n_heads = 8;
  c.engram_pad_token_id = 2;
  c.engram_compressed_vocab_size = 99092;
  return c;
}

std::vector<int32_t> any_map(const V41Config& c) {
  std::vector<int32_t> map(static_cast<size_t>(c.vocab_size));
  for (size_t i = 0; i < map.size(); ++i) map[i] = static_cast<int32_t>(i) % c.engram_compressed_vocab_size;
  return map;
}

TEST(EngramHash, MultipliersOfTheReleasedModel) {
  const auto hash = EngramHash::create(released(), any_map(released()));
  ASSERT_TRUE(hash) << hash.error().message;
  const auto first = hash->multipliers(0), second = hash->multipliers(1);
  EXPECT_EQ(std::vector<int64_t>(first.begin(), first.end()),
            (std::vector<int64_t>{76632096046245, 4839876093313, 35959672319349, 73987337458391}));
  EXPECT_EQ(std::vector<int64_t>(second.begin(), second.end()),
            (std::vector<int64_t>{67716810739261, 51510806800915, 30921347202721, 82619226485591}));
}

// model.md 8.3: compressed ids (5, 70000, DEAD, 11, 99091, 17) with the released primes and multipliers.
TEST(EngramHash, RowsOfTheReleasedModel) {
  const auto hash = EngramHash::create(released(), any_map(released()));
  ASSERT_TRUE(hash);
  ASSERT_EQ(hash->num_columns(), 24);
  const struct {
    int32_t table;
    std::array<int32_t, 4> recent;
    std::array<int64_t, 6> columns;  // 0, 7, 8, 15, 16, 23
    int64_t sum;
  } cases[] = {
      {0, {5, kDead, kDead, kDead}, {5412672, 127351390, 143494632, 247008214, 256353435, 372009279}, 4611638733},
      {0, {70000, 5, kDead, kDead}, {307849, 120459326, 134261676, 254040257, 270919890, 380159963}, 4631522374},
      {0, {11, kDead, 70000, 5}, {5935489, 127360623, 134799720, 246183019, 265484878, 376233586}, 4625044596},
      {0, {17, 99091, 11, kDead}, {7754933, 115165195, 137291423, 241958694, 258962743, 380576316}, 4577977643},
      {1, {5, kDead, kDead, kDead}, {6939818, 119840903, 131576092, 243164617, 268363546, 382274687}, 4609980373},
      {1, {70000, 5, kDead, kDead}, {5357215, 126862249, 133007010, 251710714, 256663286, 369473997}, 4616439620},
      {1, {11, kDead, 70000, 5}, {12163276, 122529219, 130800596, 245953124, 266532396, 383349447}, 4625616184},
      {1, {17, 99091, 11, kDead}, {13562614, 121961369, 140161848, 247960700, 268262664, 370248133}, 4618745856},
  };
  for (const auto& c : cases) {
    std::array<int64_t, 24> ids;
    hash->rows(c.table, c.recent, ids.data());
    EXPECT_EQ((std::array<int64_t, 6>{ids[0], ids[7], ids[8], ids[15], ids[16], ids[23]}), c.columns);
    EXPECT_EQ(std::accumulate(ids.begin(), ids.end(), int64_t{0}), c.sum);
  }
}

TEST(EngramHash, RefusesTablesOfAnotherSize) {
  V41Config c = released();
  c.engram_num_embeddings[1] += 1;
  EXPECT_FALSE(EngramHash::create(c, any_map(c)));
  EXPECT_FALSE(EngramHash::create(released(), std::vector<int32_t>(10)));
  std::vector<int32_t> map = any_map(released());
  map[77] = 99092;
  EXPECT_FALSE(EngramHash::create(released(), map));
}

// Of a tokenizer with one token fewer, or with one more that folds into another.
TEST(EngramHash, RefusesAMapWithFewerIdsThanTheConfigSays) {
  std::vector<int32_t> map = any_map(released());
  std::replace(map.begin(), map.end(), 99091, 0);
  const auto hash = EngramHash::create(released(), map);
  ASSERT_FALSE(hash);
  EXPECT_EQ(hash.error().message, "Engram token map has 99091 compressed ids, engram_compressed_vocab_size is 99092: it is not of the model's own tokenizer");
}

}  // namespace
}  // namespace deepinfer::model
