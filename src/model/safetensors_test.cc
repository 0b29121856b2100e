#include "model/safetensors.h"

#include <gtest/gtest.h>
#include <cstring>
#include <vector>

#include "broken_models.h"

namespace deepinfer::model {
namespace {

std::vector<std::byte> file_of(const std::string& header, size_t data_bytes) {
  std::vector<std::byte> out(8 + header.size() + data_bytes);
  const uint64_t length = header.size();
  std::memcpy(out.data(), &length, 8);
  std::memcpy(out.data() + 8, header.data(), header.size());
  for (size_t i = 0; i < data_bytes; ++i) out[8 + header.size() + i] = static_cast<std::byte>(i);
  return out;
}

TEST(Safetensors, ReadsTensorsInPlace) {
  const auto bytes =
      file_of(R"({"__metadata__":{"format":"pt"},"z":{"dtype":"BF16","shape":[2,3],"data_offsets":[8,20]},)"
              R"("a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"s":{"dtype":"F16","shape":[],"data_offsets":[20,22]}})",
              22);
  const auto file = Safetensors::parse(bytes, "x");
  ASSERT_TRUE(file) << file.error().message;
  ASSERT_EQ((*file)->tensors().size(), 3u);
  EXPECT_EQ((*file)->tensors()[0].name, "a");
  const TensorView* z = (*file)->find("z");
  ASSERT_NE(z, nullptr);
  EXPECT_EQ(z->dtype, DType::kBF16);
  EXPECT_EQ(z->shape, (std::vector<int64_t>{2, 3}));
  ASSERT_EQ(z->data.size(), 12u);
  EXPECT_EQ(z->data[0], std::byte{8});
  EXPECT_EQ(z->data.data(), bytes.data() + bytes.size() - 14);
  EXPECT_EQ((*file)->find("s")->num_elements(), 1);
  EXPECT_EQ((*file)->find("zz"), nullptr);
}

TEST(Safetensors, NamesTheTensorWhoseDtypeIsNotSupported) {
  const auto file =
      Safetensors::parse(file_of(R"({"mask":{"dtype":"I64","shape":[1],"data_offsets":[0,8]}})", 8), "x.safetensors");
  ASSERT_FALSE(file);
  EXPECT_EQ(file.error().code, Code::kUnsupported);
  EXPECT_EQ(file.error().message,
            "x.safetensors: tensor mask: dtype I64 is not supported (F32, F16, BF16, F8_E4M3, F8_E8M0 and I8 are)");
}

TEST(Safetensors, RefusesDamagedHeaders) {
  const auto message = [](const std::string& header, size_t data_bytes) {
    const auto file = Safetensors::parse(file_of(header, data_bytes), "x");
    return file ? std::string("accepted") : file.error().message;
  };
  const std::string a = R"("a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]})";
  EXPECT_EQ(message("{" + a + "}", 8), "accepted");
  EXPECT_EQ(message("{" + a + "," + a + "}", 8), "x: tensor a overlaps tensor a");
  EXPECT_EQ(
      message(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"a":{"dtype":"F32","shape":[2],"data_offsets":[8,16]}})",
              16),
      "x: tensor a appears twice");
  EXPECT_EQ(message("{" + a + "} x", 8).substr(0, 36), "x: its header is not a JSON object (");
  EXPECT_EQ(message("", 0).substr(0, 36), "x: its header is not a JSON object (");
  EXPECT_EQ(message("{}", 1), "x: 1 bytes after the last tensor");
  EXPECT_EQ(message(R"({"a":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}})", 0), "x: tensor a: a dimension is 0");
  EXPECT_EQ(message(R"({"a":{"dtype":"F32","dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 8),
            "x: tensor a: dtype is given twice");
  EXPECT_EQ(message(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8],"x":1}})", 8),
            "x: tensor a: its entry has a field other than dtype, shape and data_offsets");
  EXPECT_EQ(message(R"({"a":{"dtype":"F32","shape":[2.0],"data_offsets":[0,8]}})", 8),
            "x: tensor a: a dimension is not a whole number below 2^63");
  EXPECT_EQ(message(R"({"a":{"dtype":"F32","shape":[1,1,1,1,1,1,1,1,2],"data_offsets":[0,8]}})", 8),
            "x: tensor a: more than 8 dimensions");
  EXPECT_EQ(message(R"({"a\nb":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 8),
            "x: a tensor's name is empty, too long or not printable");
  EXPECT_EQ(message(R"({"a":7})", 0), "x: tensor a: its entry is not an object");
  EXPECT_EQ(message(R"({"__metadata__":7})", 0), "x: __metadata__ is not an object");
}

TEST(Safetensors, JoinsTheShardsOfAFolder) {
  const auto folder = Safetensors::open(kBroken + "good-sharded");
  ASSERT_TRUE(folder) << folder.error().message;
  EXPECT_EQ((*folder)->path(), kBroken + "good-sharded");
  EXPECT_EQ((*folder)->tensors().size(), 11u);
  const TensorView* embedding = (*folder)->find("model.embed_tokens.weight");
  ASSERT_NE(embedding, nullptr);
  EXPECT_EQ(embedding->shape, (std::vector<int64_t>{8, 32}));
  (*folder)->release(*embedding);  // and can be read again
  EXPECT_EQ(embedding->data.size(), 8u * 32 * 4);
  EXPECT_NE(embedding->data[0] | embedding->data[1] | embedding->data[2] | embedding->data[3], std::byte{0});
}

TEST(Safetensors, SaysWhatAFolderLacks) {
  const auto folder = Safetensors::open(std::string(DI_SOURCE_DIR) + "/src/model");
  ASSERT_FALSE(folder);
  EXPECT_EQ(folder.error().code, Code::kNotFound);
  EXPECT_TRUE(folder.error().message.ends_with("neither model.safetensors nor model.safetensors.index.json is in this folder"));
}

}  // namespace
}  // namespace deepinfer::model
