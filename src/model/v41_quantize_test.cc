// The block quantisers against the official code, byte for byte.
#include <gtest/gtest.h>

#include "golden_safetensors.h"
#include "kernels/block_quantize.h"

namespace deepinfer {
namespace {

class BlockQuantize : public testing::TestWithParam<const char*> {};

TEST_P(BlockQuantize, EqualsTheOfficialCode) {
  const std::string prefix = GetParam();
  const GoldenFile golden(DI_SOURCE_DIR "/tests/golden/v41-tiny/quant.safetensors");
  const auto x = golden.floats(prefix + ".x"), y = golden.floats(prefix + ".y");
  const auto codes = golden.bytes(prefix + ".codes"), scales = golden.bytes(prefix + ".scales");
  const int64_t n = static_cast<int64_t>(x.size());
  std::vector<uint8_t> got_codes(codes.size()), got_scales(scales.size());
  std::vector<bf16> got(x.size());
  if (prefix == "fp8") {
    auto* c = reinterpret_cast<e4m3*>(got_codes.data());
    auto* s = reinterpret_cast<e8m0*>(got_scales.data());
    quantize_fp8(x.data(), n, c, s, default_isa());
    dequantize_fp8(c, s, n, got.data(), default_isa());
  } else if (prefix == "fp4_e8m0") {
    auto* s = reinterpret_cast<e8m0*>(got_scales.data());
    quantize_fp4_e8m0(x.data(), n, got_codes.data(), s, default_isa());
    dequantize_fp4_e8m0(got_codes.data(), s, n, got.data(), default_isa());
  } else {
    auto* s = reinterpret_cast<e4m3*>(got_scales.data());
    quantize_fp4_e4m3(x.data(), n, got_codes.data(), s, default_isa());
    dequantize_fp4_e4m3(got_codes.data(), s, n, got.data(), default_isa());
  }
  EXPECT_EQ(got_scales, scales);
  EXPECT_EQ(got_codes, codes);
  ASSERT_EQ(got.size(), y.size());
  for (size_t i = 0; i < y.size(); ++i) ASSERT_EQ(std::bit_cast<uint32_t>(to_f32(got[i])), std::bit_cast<uint32_t>(y[i])) << i;
}

INSTANTIATE_TEST_SUITE_P(Formats, BlockQuantize, testing::Values("fp8", "fp4_e8m0", "fp4_e4m3"), [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace deepinfer
