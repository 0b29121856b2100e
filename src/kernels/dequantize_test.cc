#include "kernels/dequantize.h"

#include <gtest/gtest.h>
#include <bit>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace deepinfer {
namespace {

std::vector<std::byte> from_hex(std::string_view hex) {
  std::vector<std::byte> out;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) {
    out.push_back(static_cast<std::byte>(std::stoi(std::string(hex.substr(i, 2)), nullptr, 16)));
  }
  return out;
}

struct Vector {
  std::vector<std::byte> bytes;
  std::vector<uint32_t> f32;  // the bits of the floats
};

// The blocks of one type in dequant.json. The file has one flat form ("TYPE": {… "bytes": "hex", "f32": "hex" …}), so plain
// searching reads it; this folder has no JSON library.
std::vector<Vector> golden(std::string_view dtype) {
  std::ifstream file(std::string(DI_SOURCE_DIR) + "/tests/golden/dense/dequant.json");
  std::stringstream stream;
  stream << file.rdbuf();
  const std::string text = stream.str();
  std::vector<Vector> out;
  size_t at = text.find("\"" + std::string(dtype) + "\":");
  if (at == std::string::npos) return out;
  const size_t end = text.find("]", at);
  const auto next_string = [&](std::string_view key) {
    at = text.find(key, at);
    if (at == std::string::npos || at > end) return std::string();
    const size_t open = text.find('"', text.find(':', at)), close = text.find('"', open + 1);
    at = close;
    return text.substr(open + 1, close - open - 1);
  };
  for (;;) {
    Vector vector;
    vector.bytes = from_hex(next_string("\"bytes\""));
    if (vector.bytes.empty()) return out;
    const auto floats = from_hex(next_string("\"f32\""));
    vector.f32.resize(floats.size() / 4);
    std::memcpy(vector.f32.data(), floats.data(), floats.size());
    out.push_back(std::move(vector));
  }
}

class DequantizeGolden : public testing::TestWithParam<DType> {};

TEST_P(DequantizeGolden, MeetsEveryBit) {
  const auto vectors = golden(dtype_info(GetParam()).name);
  const bool halves = dtype_info(GetParam()).block_size == 1;
  ASSERT_EQ(vectors.size(), halves ? 1u : 7u);
  for (size_t v = 0; v < vectors.size(); ++v) {
    const auto& [bytes, expected] = vectors[v];
    ASSERT_EQ(expected.size(), halves ? 16u : static_cast<size_t>(dtype_info(GetParam()).block_size));
    ASSERT_EQ(static_cast<int64_t>(bytes.size()), row_bytes(GetParam(), static_cast<int64_t>(expected.size())));
    std::vector<std::byte> misaligned(bytes.size() + 1);
    std::memcpy(misaligned.data() + 1, bytes.data(), bytes.size());
    std::vector<float> values(expected.size());
    dequantize(GetParam(), misaligned.data() + 1, values.data(), static_cast<int64_t>(values.size()));
    for (size_t i = 0; i < values.size(); ++i) {
      EXPECT_EQ(std::bit_cast<uint32_t>(values[i]), expected[i]) << "block " << v << ", number " << i << ": " << values[i];
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, DequantizeGolden,
                         testing::Values(DType::kF16, DType::kBF16, DType::kQ4_0, DType::kQ4_1, DType::kQ5_0, DType::kQ5_1,
                                         DType::kQ8_0, DType::kQ2_K, DType::kQ3_K, DType::kQ4_K, DType::kQ5_K, DType::kQ6_K,
                                         DType::kIQ4_NL, DType::kIQ4_XS),
                         [](const auto& test) { return std::string(dtype_info(test.param).name); });

// A row of several blocks is its blocks one after the other.
TEST(Dequantize, ARowIsItsBlocksInOrder) {
  const auto vectors = golden("Q6_K");
  std::vector<std::byte> row;
  std::vector<uint32_t> expected;
  for (const auto& vector : vectors) {
    row.insert(row.end(), vector.bytes.begin(), vector.bytes.end());
    expected.insert(expected.end(), vector.f32.begin(), vector.f32.end());
  }
  std::vector<uint32_t> values(expected.size());
  dequantize(DType::kQ6_K, row.data(), reinterpret_cast<float*>(values.data()), static_cast<int64_t>(values.size()));
  EXPECT_EQ(values, expected);
}

TEST(Dequantize, F32IsCopied) {
  const std::vector<uint32_t> in{0x3f800000, 0x00000001, 0x80000000, 0x7f800000, 0x7fc12345};
  std::vector<uint32_t> out(in.size());
  dequantize(DType::kF32, reinterpret_cast<const std::byte*>(in.data()), reinterpret_cast<float*>(out.data()), 5);
  EXPECT_EQ(out, in);
}

TEST(Dequantize, NothingIsNothing) { dequantize(DType::kQ4_K, nullptr, nullptr, 0); }

}  // namespace
}  // namespace deepinfer
