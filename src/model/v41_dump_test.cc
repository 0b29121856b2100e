#include "model/v41_dump.h"

#include <cmath>
#include <cstdio>
#include <gtest/gtest.h>

#include "temp_folder.h"
#include "v41_folder.h"

namespace deepinfer::model {
namespace {

// Every array that the official code left of the run of 33 tokens is in the dump, of the same type, shape and (near enough) content.
TEST(V41Dump, HasWhatTheGoldensHave) {
  const GoldenFile golden(kTiny + "/layers33.safetensors");
  const std::string path = temp_folder() + "v41_dump.safetensors";
  const auto model = open_v41(kTiny);
  const auto workers = Workers::create(2, false);
  const auto dumped = dump_v41(*model, tokens_of(golden, "tokens"), {}, path, *workers);
  ASSERT_TRUE(dumped) << dumped.error().message;
  const GoldenFile dump(path);
  int compared = 0;
  for (const std::string& name : golden.names()) {
    const std::string ours = name.starts_with("hc.") ? name + ".0" : name;  // the goldens have them of layer 0 only
    ASSERT_TRUE(dump.has(ours)) << ours;
    EXPECT_EQ(dump.shape(ours), golden.shape(name)) << name;
    EXPECT_EQ(dump.dtype(ours), golden.dtype(name)) << name;
    ++compared;
    if (golden.dtype(name) == "BF16" || golden.dtype(name) == "F32") {
      const auto a = dump.floats(ours), b = golden.floats(name);
      double difference = 0, size = 0;
      for (size_t i = 0; i < b.size(); ++i) difference += std::pow(double{a[i]} - b[i], 2), size += double{b[i]} * b[i];
      EXPECT_LT(std::sqrt(difference / size), 0.03) << name;  // whole network: one flipped selection moves a position by some hundredths
    } else {
      const auto a = dump.bytes(ours), b = golden.bytes(name);
      size_t equal = 0;
      for (size_t i = 0; i < b.size(); ++i) equal += a[i] == b[i];
      EXPECT_GE(static_cast<double>(equal), 0.9 * static_cast<double>(b.size())) << name;
    }
  }
  EXPECT_EQ(compared, 126);
  for (const char* exact : {"tokens", "engram_ids", "candidates.4", "index.1", "index.3", "index.4"}) EXPECT_EQ(dump.bytes(exact), golden.bytes(exact)) << exact;
  EXPECT_EQ(dump.floats("embed"), golden.floats("embed"));
  std::remove(path.c_str());
}

TEST(V41Dump, OneLayerAlone) {
  const GoldenFile golden(kTiny + "/layers33.safetensors");
  const std::string path = temp_folder() + "v41_dump_layer.safetensors";
  const auto model = open_v41(kTiny);
  const auto workers = Workers::create(1, false);
  const int32_t layer = 4;
  ASSERT_TRUE(dump_v41(*model, tokens_of(golden, "tokens"), {&layer, 1}, path, *workers));
  const GoldenFile dump(path);
  for (const char* name : {"logits", "taps", "attn_in.4", "main_codes.4", "candidates.4"}) EXPECT_TRUE(dump.has(name)) << name;
  for (const char* name : {"attn_in.3", "X.7"}) EXPECT_FALSE(dump.has(name)) << name;
  std::remove(path.c_str());
}

TEST(V41Dump, SaysWhatCannotBe) {
  const auto model = open_v41(kTiny);
  const auto workers = Workers::create(1, false);
  const std::vector<TokenId> good{1, 2}, bad{1, 320}, none, many(5000, 1);
  const int32_t layer = 8;
  EXPECT_EQ(dump_v41(*model, none, {}, "/tmp/x", *workers).error().code, Code::kInvalidArgument);
  EXPECT_EQ(dump_v41(*model, many, {}, "/tmp/x", *workers).error().code, Code::kInvalidArgument);
  EXPECT_EQ(dump_v41(*model, bad, {}, "/tmp/x", *workers).error().message, "token 320 is not in the vocabulary of 320");
  EXPECT_EQ(dump_v41(*model, good, {&layer, 1}, "/tmp/x", *workers).error().message, "layer 8 is not one of 0 to 7");
  EXPECT_EQ(dump_v41(*model, good, {}, "/nonexistent/x", *workers).error().code, Code::kIo);
}

}  // namespace
}  // namespace deepinfer::model
