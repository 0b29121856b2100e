// Walks tests/golden/dense/broken: every damaged file must be refused in one sentence that names it, and the controls must load.
#include <gtest/gtest.h>
#include <simdjson.h>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/hash.h"
#include "broken_models.h"
#include "model/dense_weights.h"
#include "model/gguf_vocabulary.h"
#include "model/model_file.h"
#include "read_file.h"

namespace deepinfer::model {
namespace {


// What the bytes of the container alone must show.
Result<> parse_only(const std::string& path) {
  DI_TRY(open_model_file(path));
  return {};
}

Result<> load(const std::string& path) {
  DI_TRY(const ModelFile file, open_model_file(path));
  DI_TRY(const DenseConfig config, read_dense_config(file));
  DI_TRY(const DenseWeights weights, bind_dense(file.checkpoint(), config));
  if (file.gguf) DI_TRY(gguf_vocabulary(*file.gguf));
  return {};
}

// What the sentence must say besides the file: the tensor, the key, or the fault.
const std::map<std::string, std::string> kNamed = {
    {"gguf-empty.gguf", "0 bytes long"},
    {"gguf-bad-magic.gguf", "not a GGUF file"},
    {"gguf-version-1.gguf", "version 1"},
    {"gguf-version-99.gguf", "version 99"},
    {"gguf-big-endian.gguf", "big-endian"},
    {"gguf-truncated-header.gguf", "tokenizer.ggml.tokens: an array of 260"},
    {"gguf-truncated-infos.gguf", "table of tensors"},
    {"gguf-truncated-data.gguf", "tensor blk.0.ffn_down.weight: 1088 bytes"},
    {"gguf-offset-past-end.gguf", "1099511627776"},
    {"gguf-offset-wraps.gguf", "18446744073709551552"},
    {"gguf-offset-unaligned.gguf", "offset 17"},
    {"gguf-overlap.gguf", "overlaps"},
    {"gguf-tensor-count-absurd.gguf", "tensor count 4611686018427387904"},
    {"gguf-kv-count-absurd.gguf", "metadata count 4611686018427387904"},
    {"gguf-string-length-overflow.gguf", "past the end"},
    {"gguf-key-length-huge.gguf", "281474976710656"},
    {"gguf-array-count-overflow.gguf", "2305843009213693953"},
    {"gguf-array-nested-bomb.gguf", "array of arrays"},
    {"gguf-kv-bad-type.gguf", "type 77"},
    {"gguf-duplicate-key.gguf", "llama.block_count"},
    {"gguf-negative-dim.gguf", "blk.0.attn_q.weight: dimension -32"},
    {"gguf-dims-overflow.gguf", "too large"},
    {"gguf-zero-dim.gguf", "dimension 0"},
    {"gguf-nine-dims.gguf", "9 dimensions"},
    {"gguf-ndims-absurd.gguf", "4294967295 dimensions"},
    {"gguf-bad-dtype.gguf", "type 200"},
    {"gguf-removed-dtype.gguf", "Q4_2"},
    {"gguf-row-not-blocks.gguf", "33"},
    {"gguf-duplicate-tensor.gguf", "blk.0.attn_q.weight"},
    {"gguf-missing-tensor.gguf", "blk.0.attn_q.weight is missing"},
    {"gguf-wrong-shape.gguf", "blk.0.attn_q.weight is 48 x 32"},
    {"gguf-bad-alignment.gguf", "general.alignment: 0"},
    {"gguf-alignment-not-power.gguf", "general.alignment: 24"},
    {"gguf-missing-key.gguf", "llama.attention.head_count is absent"},
    {"gguf-heads-do-not-divide.gguf", "llama.attention.head_count: an embedding of 32"},
    {"gguf-zero-heads.gguf", "llama.attention.head_count_kv: 0"},
    {"gguf-token-count-short.gguf", "tokenizer.ggml.tokens has 200"},
    {"gguf-token-id-out-of-range.gguf", "tokenizer.ggml.eos_token_id: token id 70000"},
    {"gguf-architecture-unknown.gguf", "no-such-arch"},
    {"st-seven-bytes.safetensors", "7 bytes long"},
    {"st-header-length-past-end.safetensors", "1048576"},
    {"st-header-length-absurd.safetensors", "18446744073709551615"},
    {"st-header-not-json.safetensors", "not a JSON object"},
    {"st-header-not-object.safetensors", "not a JSON object"},
    {"st-header-not-utf8.safetensors", "UTF-8"},
    {"st-header-json-bomb.safetensors", "not a JSON object"},
    {"st-header-number-bomb.safetensors", "Problem while parsing a number"},
    {"st-truncated-data.safetensors", "tensor b"},
    {"st-trailing-bytes.safetensors", "40 bytes after"},
    {"st-offset-past-end.safetensors", "tensor b"},
    {"st-offsets-reversed.safetensors", "tensor b"},
    {"st-overlap.safetensors", "tensor b overlaps tensor a"},
    {"st-hole.safetensors", "32 unused bytes before tensor b"},
    {"st-size-mismatch.safetensors", "144 bytes"},
    {"st-negative-dim.safetensors", "dimension"},
    {"st-dims-overflow.safetensors", "too large"},
    {"st-bad-dtype.safetensors", "F33"},
    {"st-missing-field.safetensors", "tensor a: it has no data_offsets"},
    {"st-duplicate-name.safetensors", "tensor a"},
    {"index-absent-shard/", "model-00002-of-00002.safetensors: No such file"},
    {"index-path-traversal/", "../good-sharded/model-00002-of-00002.safetensors"},
    {"index-wrong-shard/", "tensor model.embed_tokens.weight is not listed"},
    {"index-missing-tensor/", "model.layers.0.mlp.down_proj.weight is missing"},
    {"index-not-json/", "model.safetensors.index.json"},
    {"config-wrong-hidden/", "tensor model.embed_tokens.weight is 8 x 32"},
    {"config-missing-key/", "num_attention_heads"},
};

// Needs the tokenizer, which this folder does not know: whoever loads a whole model refuses it.
const std::set<std::string> kTokenizersBusiness = {"gguf-merge-unknown.gguf"};

struct Listed {
  std::string file, expect, stage;
};
std::vector<Listed> list() {
  std::vector<Listed> out;
  simdjson::dom::parser parser;
  simdjson::dom::array entries;
  EXPECT_EQ(parser.load(kBroken + "list.json").get(entries), simdjson::SUCCESS);
  for (const auto entry : entries) {
    std::string_view file, expect, stage;
    EXPECT_EQ(entry["file"].get(file), simdjson::SUCCESS);
    EXPECT_EQ(entry["expect"].get(expect), simdjson::SUCCESS);
    EXPECT_EQ(entry["stage"].get(stage), simdjson::SUCCESS);
    out.push_back({std::string(file), std::string(expect), std::string(stage)});
  }
  return out;
}

TEST(BrokenFiles, EachIsRefusedInOneSentence) {
  size_t num_rejected = 0;
  for (const Listed& entry : list()) {
    if (entry.expect != "reject" || kTokenizersBusiness.contains(entry.file)) continue;
    std::string path = kBroken + entry.file;
    if (path.back() == '/') path.pop_back();
    const auto loaded = entry.stage == "parse" ? parse_only(path) : load(path);
    ASSERT_FALSE(loaded) << entry.file << " was accepted";
    const std::string& message = loaded.error().message;
    ASSERT_TRUE(kNamed.contains(entry.file)) << entry.file << " has no expectation: " << message;
    EXPECT_TRUE(message.starts_with(path)) << message;
    EXPECT_NE(message.find(kNamed.at(entry.file), path.size()), std::string::npos) << message;
    EXPECT_FALSE(message.ends_with(".") || message.find('\n') != std::string::npos) << message;
    EXPECT_LT(message.size(), path.size() + 400) << message;
    ++num_rejected;
  }
  EXPECT_EQ(num_rejected, kNamed.size());
}

TEST(BrokenFiles, TheControlsAreAccepted) {
  const auto gguf = load(kBroken + "good.gguf");
  EXPECT_TRUE(gguf) << gguf.error().message;
  const auto sharded = load(kBroken + "good-sharded");
  EXPECT_TRUE(sharded) << sharded.error().message;
  const auto single = Safetensors::open(kBroken + "good.safetensors");
  ASSERT_TRUE(single) << single.error().message;
  EXPECT_EQ((*single)->tensors().size(), 2u);
  const auto nan = load(kBroken + "gguf-nan-scale.gguf");  // well formed: its values are read by nobody here
  EXPECT_TRUE(nan) << nan.error().message;
}


// Cut anywhere, a file is refused: no prefix of a good file is a good file.
TEST(BrokenFiles, EveryPrefixIsRefused) {
  const std::string gguf = read_file(kBroken + "good.gguf"), safetensors = read_file(kBroken + "good.safetensors");
  ASSERT_TRUE(GgufFile::parse(bytes_of(gguf), "whole"));
  for (size_t length = 0; length < gguf.size(); ++length) {
    const std::vector<std::byte> prefix(bytes_of(gguf).begin(), bytes_of(gguf).begin() + static_cast<ptrdiff_t>(length));
    const auto file = GgufFile::parse(prefix, "prefix");
    // Padding behind the last tensor may be missing.
    if (length + 32 <= gguf.size()) {
      ASSERT_FALSE(file) << length;
    }
  }
  ASSERT_TRUE(Safetensors::parse(bytes_of(safetensors), "whole"));
  for (size_t length = 0; length < safetensors.size(); ++length) {
    const std::vector<std::byte> prefix(bytes_of(safetensors).begin(),
                                        bytes_of(safetensors).begin() + static_cast<ptrdiff_t>(length));
    ASSERT_FALSE(Safetensors::parse(prefix, "prefix")) << length;
  }
}

// Flip any bit of the part before the data: it is read without a fault, accepted or not (asan and ubsan watch).
TEST(BrokenFiles, EveryFlippedBitIsSurvived) {
  const std::string gguf = read_file(kBroken + "good.gguf");
  std::vector<std::byte> damaged(bytes_of(gguf).begin(), bytes_of(gguf).end());
  size_t num_refused = 0;
  for (size_t i = 0; i < 5800; ++i) {
    for (int bit = 0; bit < 8; bit += 3) {
      damaged[i] ^= std::byte{1} << bit;
      if (auto file = GgufFile::parse(damaged, "damaged")) {
        if (auto config = dense_config_from_gguf(**file)) (void)bind_dense(**file, *config).has_value();
        (void)gguf_vocabulary(**file).has_value();
      } else {
        ++num_refused;
      }
      damaged[i] ^= std::byte{1} << bit;
    }
  }
  EXPECT_GT(num_refused, 1000u);
}

}  // namespace
}  // namespace deepinfer::model
