#include "model/gguf.h"

#include <gtest/gtest.h>

#include "model/dense_config.h"
#include "model/gguf_types.h"
#include "model/gguf_vocabulary.h"
#include "model/gguf_writer.h"

namespace deepinfer::model {
namespace {

// A file's bytes and what was read from them.
struct Parsed {
  std::string bytes;
  Result<std::unique_ptr<GgufFile>> file;
};
Parsed parse(std::string bytes, GgufFile::UnsupportedTypes types = GgufFile::UnsupportedTypes::kReject) {
  auto file = GgufFile::parse(std::as_bytes(std::span(bytes)), "x.gguf", types);
  return {std::move(bytes), std::move(file)};  // short strings move their bytes, but a GGUF file is never short
}

TEST(Gguf, ReadsWhatTheWriterWrote) {
  GgufWriter writer;
  writer.add_text("a.text", "value");
  writer.add_u32("a.integer", 4'000'000'000);
  writer.add_f32("a.number", 0.5f);
  writer.add_bool("a.bool", true);
  writer.add_texts("a.texts", std::vector<std::string>{"x", "", "yz"});
  writer.add_int32s("a.int32s", std::vector<int32_t>{-1, 2});
  writer.add_tensor("vector", DType::kF32, std::vector<int64_t>{3});
  writer.add_tensor("matrix", DType::kQ8_0, std::vector<int64_t>{2, 64});
  std::string bytes = writer.header();
  EXPECT_EQ(bytes.size() % 32, 0u);
  bytes += std::string(12 + GgufWriter::padding(12), 'v') + std::string(4 * 34, 'm');
  const auto [kept, file] = parse(std::move(bytes));
  ASSERT_TRUE(file) << file.error().message;
  const GgufFile& f = **file;
  EXPECT_EQ(f.version(), 3u);
  EXPECT_EQ(*f.text("a.text"), "value");
  EXPECT_EQ(*f.integer("a.integer"), 4'000'000'000);
  EXPECT_EQ(*f.number("a.number"), 0.5);
  EXPECT_EQ(*f.number("a.integer"), 4e9);
  EXPECT_EQ(*f.find_bool("a.bool"), true);
  EXPECT_EQ(*f.texts("a.texts"), (std::vector<std::string_view>{"x", "", "yz"}));
  EXPECT_EQ(*f.int32s("a.int32s"), (std::vector<int32_t>{-1, 2}));
  EXPECT_EQ(f.keys().size(), 6u);
  ASSERT_EQ(f.tensors().size(), 2u);
  EXPECT_EQ(f.tensors()[0].name, "matrix");
  EXPECT_EQ(f.tensors()[0].shape, (std::vector<int64_t>{2, 64}));
  EXPECT_EQ(f.tensors()[0].data.size(), 136u);
  EXPECT_EQ(f.tensors()[0].data[0], std::byte{'m'});
  EXPECT_EQ(f.find("vector")->data[11], std::byte{'v'});
}

TEST(Gguf, GettersNameTheKey) {
  GgufWriter writer;
  writer.add_text("a.text", "value");
  writer.add_int32s("a.int32s", std::vector<int32_t>{-1, 2});
  const auto [kept, file] = parse(writer.header());
  ASSERT_TRUE(file) << file.error().message;
  const GgufFile& f = **file;
  EXPECT_EQ(f.integer("a.b").error().message, "x.gguf: metadata key a.b is absent");
  EXPECT_EQ(f.integer("a.text").error().message, "x.gguf: metadata key a.text is a string, not an integer");
  EXPECT_EQ(f.number("a.int32s").error().message, "x.gguf: metadata key a.int32s is an array, not a usable number");
  EXPECT_EQ(f.text("a.int32s").error().message, "x.gguf: metadata key a.int32s is an array, not a string");
  EXPECT_EQ(f.texts("a.int32s").error().message, "x.gguf: metadata key a.int32s is not an array of strings");
  EXPECT_EQ(f.floats("a.int32s").error().message, "x.gguf: metadata key a.int32s is not an array of 32-bit floats");
  EXPECT_FALSE(*f.find_integer("a.b"));
  EXPECT_TRUE(f.texts("a.b")->empty());
}

// Replaces the four bytes of tensor "t"'s type, which follow its name, dimension count and two dimensions.
std::string with_tensor_type(uint32_t type) {
  GgufWriter writer;
  writer.add_tensor("t", DType::kF32, std::vector<int64_t>{2, 256});
  std::string bytes = writer.header() + std::string(2 * 256 * 8, '\0');
  const size_t at = bytes.find(std::string("\x01\0\0\0\0\0\0\0t", 9)) + 9 + 4 + 16;
  bytes.replace(at, 4, std::string(reinterpret_cast<const char*>(&type), 4));
  return bytes;
}

TEST(Gguf, ListsTensorsOfUnsupportedTypesOnlyIfAsked) {
  const auto [kept, rejected] = parse(with_tensor_type(16));
  ASSERT_FALSE(rejected);
  EXPECT_EQ(rejected.error().code, Code::kUnsupported);
  EXPECT_EQ(rejected.error().message, "x.gguf: tensor t has type IQ2_XXS, which is not supported");
  const auto [kept2, listed] = parse(with_tensor_type(16), GgufFile::UnsupportedTypes::kList);
  ASSERT_TRUE(listed) << listed.error().message;
  EXPECT_TRUE((*listed)->tensors().empty());
  ASSERT_EQ((*listed)->unsupported_tensors().size(), 1u);
  EXPECT_EQ((*listed)->unsupported_tensors()[0].num_bytes, 2u * 66);
  EXPECT_EQ(parse(with_tensor_type(31), GgufFile::UnsupportedTypes::kList).file.error().message,
            "x.gguf: tensor t has type Q4_0_4_4, which was removed from GGUF");
}

TEST(Gguf, EveryDTypeHasItsType) {
  for (int i = 0; i <= static_cast<int>(DType::kIQ4_XS); ++i) {
    const auto dtype = static_cast<DType>(i);
    const GgufTensorType* type = find_gguf_tensor_type(gguf_tensor_type_id(dtype));
    ASSERT_NE(type, nullptr);
    EXPECT_EQ(type->dtype, dtype);
    EXPECT_TRUE(parse(with_tensor_type(type->id)).file) << type->name;
  }
}

TEST(Gguf, KeepsToTheAlignmentOfTheFile) {
  for (const uint32_t alignment : {1u, 8u, 64u}) {
    GgufWriter writer;
    writer.add_u32("general.alignment", alignment);
    writer.add_tensor("t", DType::kF32, std::vector<int64_t>{2});
    std::string bytes = writer.header();
    bytes.resize(bytes.find(std::string("\x01\0\0\0\0\0\0\0t", 9)) + 9 + 4 + 8 + 4 + 8);  // the padding cut off
    bytes.resize((bytes.size() + alignment - 1) / alignment * alignment, '\0');
    bytes += "12345678";
    const auto [kept, file] = parse(std::move(bytes));
    ASSERT_TRUE(file) << file.error().message;
    EXPECT_EQ((*file)->find("t")->data[0], std::byte{'1'});
    EXPECT_EQ((*file)->find("t")->data[7], std::byte{'8'});
  }
}

TEST(Gguf, RefusesOnePartOfASplitModel) {
  GgufWriter writer;
  writer.add_u32("split.count", 3);
  EXPECT_EQ(parse(writer.header()).file.error().message,
            "x.gguf: one of 3 parts of a split model; join them with gguf-split --merge");
}

TEST(Gguf, NamesAreMadeForTerminals) {
  GgufWriter key, tensor;
  key.add_bool("a\x1b[31m", true);
  EXPECT_EQ(parse(key.header()).file.error().message, "x.gguf: metadata key number 0: its name is empty or not printable");
  tensor.add_tensor("", DType::kF32, std::vector<int64_t>{8});
  EXPECT_EQ(parse(tensor.header() + std::string(32, '\0')).file.error().message,
            "x.gguf: tensor number 0: its name is empty or not printable");
}

// The metadata of a small model; `change` adds to them.
template <class F>
Result<DenseConfig> config_of(const std::string& architecture, F&& change) {
  GgufWriter writer;
  const auto count = [&](const char* key, uint32_t value) { writer.add_u32(architecture + "." + key, value); };
  writer.add_text("general.architecture", architecture);
  count("block_count", 2), count("context_length", 4096), count("embedding_length", 64), count("feed_forward_length", 128);
  count("attention.head_count", 4), count("vocab_size", 300);
  writer.add_f32(architecture + ".attention.layer_norm_rms_epsilon", 1e-6f);
  change(writer);
  const auto [kept, file] = parse(writer.header());
  EXPECT_TRUE(file) << file.error().message;
  return dense_config_from_gguf(**file);
}

TEST(DenseConfigGguf, DefaultsAreThoseOfTheFormat) {
  const auto c = config_of("llama", [](GgufWriter&) {});
  ASSERT_TRUE(c) << c.error().message;
  EXPECT_EQ(c->num_key_value_heads, 4);
  EXPECT_EQ(c->head_dim, 16);
  EXPECT_EQ(c->rope.theta, 10000);
  EXPECT_TRUE(c->rope.interleaved);
  EXPECT_TRUE(c->tied_head);
  EXPECT_EQ(c->vocab_size, 300);
  EXPECT_FALSE(config_of("qwen2", [](GgufWriter&) {})->rope.interleaved);
}

TEST(DenseConfigGguf, ReadsRopeScaling) {
  const auto yarn = config_of("qwen2", [](GgufWriter& w) {
    w.add_text("qwen2.rope.scaling.type", "yarn");
    w.add_f32("qwen2.rope.scaling.factor", 4);
    w.add_u32("qwen2.rope.scaling.original_context_length", 4096);
  });
  ASSERT_TRUE(yarn) << yarn.error().message;
  EXPECT_EQ(yarn->rope.scaling, RopeConfig::Scaling::kYarn);
  EXPECT_EQ(yarn->max_context, 16384);
  EXPECT_NEAR(yarn->rope.attention_factor, 1.1386294, 1e-6);
  const auto older = config_of("llama", [](GgufWriter& w) { w.add_f32("llama.rope.scale_linear", 2); });
  ASSERT_TRUE(older) << older.error().message;
  EXPECT_EQ(older->rope.scaling, RopeConfig::Scaling::kLinear);
  EXPECT_EQ(older->max_context, 8192);
  const auto unknown = config_of("llama", [](GgufWriter& w) { w.add_text("llama.rope.scaling.type", "longrope"); });
  EXPECT_EQ(unknown.error().message,
            "x.gguf: metadata key llama.rope.scaling.type: \"longrope\" (none, linear and yarn are supported)");
}

TEST(DenseConfigGguf, NamesTheKeyThatIsWrong) {
  const auto message = [](auto&& change) {
    const auto config = config_of("llama", change);
    return config ? std::string("accepted") : config.error().message;
  };
  EXPECT_EQ(message([](GgufWriter& w) { w.add_u32("llama.expert_count", 8); }),
            "x.gguf: metadata key llama.expert_count: mixtures of experts are not supported");
  EXPECT_EQ(message([](GgufWriter& w) { w.add_u32("llama.attention.value_length", 8); }),
            "x.gguf: metadata key llama.attention.value_length: 8 in heads of 16");
  EXPECT_EQ(message([](GgufWriter& w) { w.add_u32("llama.attention.head_count_kv", 3); }),
            "x.gguf: metadata key llama.attention.head_count_kv: 4 heads cannot share 3 KV heads evenly");
  EXPECT_EQ(message([](GgufWriter& w) { w.add_int32s("llama.attention.head_count_kv", std::vector<int32_t>{4, 4}); }),
            "x.gguf: metadata key llama.attention.head_count_kv is an array, not an integer");
  EXPECT_EQ(message([](GgufWriter& w) { w.add_f32("llama.rope.freq_base", 0); }),
            "x.gguf: metadata key llama.rope.freq_base: 0 is not in 1.0001 to 1000000000000");
  EXPECT_EQ(message([](GgufWriter& w) { w.add_u32("tokenizer.ggml.bos_token_id", 300); }),
            "x.gguf: metadata key tokenizer.ggml.bos_token_id: token id 300 in a vocabulary of 300");
  EXPECT_EQ(message([](GgufWriter& w) { w.add_u32("llama.attention.sliding_window", 64); }), "accepted");
}

TEST(GgufVocabulary, ChecksCountsAndIds) {
  const auto message = [](auto&& change) {
    GgufWriter writer;
    writer.add_text("tokenizer.ggml.model", "gpt2");
    writer.add_texts("tokenizer.ggml.tokens", std::vector<std::string>{"a", "b"});
    change(writer);
    const auto [kept, file] = parse(writer.header());
    EXPECT_TRUE(file) << file.error().message;
    const auto vocabulary = gguf_vocabulary(**file);
    return vocabulary ? std::string("accepted") : vocabulary.error().message;
  };
  EXPECT_EQ(message([](GgufWriter&) {}), "accepted");
  EXPECT_EQ(message([](GgufWriter& w) { w.add_int32s("tokenizer.ggml.token_type", std::vector<int32_t>{1}); }),
            "x.gguf: metadata key tokenizer.ggml.token_type has 1 entries for 2 tokens");
  EXPECT_EQ(message([](GgufWriter& w) { w.add_int32s("tokenizer.ggml.token_type", std::vector<int32_t>{}); }),
            "x.gguf: metadata key tokenizer.ggml.token_type has 0 entries for 2 tokens");
  EXPECT_EQ(message([](GgufWriter& w) { w.add_u32("tokenizer.ggml.unknown_token_id", 2); }),
            "x.gguf: metadata key tokenizer.ggml.unknown_token_id is 2 in a vocabulary of 2");
}

}  // namespace
}  // namespace deepinfer::model
