// The block quantisers against the official code, byte for byte.
#include <gtest/gtest.h>

#include "golden_safetensors.h"
#include "kernels/block_quantize.h"

namespace deepinfer {
namespace {

struct Case {
  const char* name;
  int block;
  bool packed;
};

class BlockQuantize : public testing::TestWithParam<Case> {};

TEST_P(BlockQuantize, EqualsTheOfficialCode) {
  const auto [name, block, packed] = GetParam();
  const GoldenFile golden(DI_SOURCE_DIR "/tests/golden/v41-tiny/quant.safetensors");
  const std::string prefix = name;
  const auto x = golden.floats(prefix + ".x"), y = golden.floats(prefix + ".y");
  const auto codes = golden.bytes(prefix + ".codes"), scales = golden.bytes(prefix + ".scales");
  const int64_t n = static_cast<int64_t>(x.size());
  std::vector<uint8_t> got_codes(codes.size()), got_scales(scales.size());
  std::vector<float> got(x.size());
  if (prefix == "fp8") {
    auto* c = reinterpret_cast<e4m3*>(got_codes.data());
    auto* s = reinterpret_cast<e8m0*>(got_scales.data());
    quantize_fp8(x.data(), n, block, c, s);
    dequantize_fp8(c, s, n, block, got.data());
  } else if (prefix == "fp4_e8m0") {
    auto* s = reinterpret_cast<e8m0*>(got_scales.data());
    quantize_fp4_e8m0(x.data(), n, got_codes.data(), s);
    dequantize_fp4_e8m0(got_codes.data(), s, n, got.data());
  } else {
    auto* s = reinterpret_cast<e4m3*>(got_scales.data());
    quantize_fp4_e4m3(x.data(), n, got_codes.data(), s);
    dequantize_fp4_e4m3(got_codes.data(), s, n, got.data());
  }
  EXPECT_EQ(got_scales, scales);
  EXPECT_EQ(got_codes, codes);
  ASSERT_EQ(got.size(), y.size());
  for (size_t i = 0; i < y.size(); ++i) ASSERT_EQ(std::bit_cast<uint32_t>(got[i]), std::bit_cast<uint32_t>(y[i])) << i;
}

INSTANTIATE_TEST_SUITE_P(Formats, BlockQuantize,
                         testing::Values(Case{"fp8", 32, false}, Case{"fp4_e8m0", 32, true}, Case{"fp4_e4m3", 16, true}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace deepinfer
