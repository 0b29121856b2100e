// The block quantisers against the official code, byte for byte; its quantised products to the last bit of a bf16 number.
#include <gtest/gtest.h>

#include "golden_safetensors.h"
#include "kernels/block_linear.h"
#include "kernels/block_quantize.h"
#include "v41_tiny.h"

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

class QuantisedProduct : public testing::TestWithParam<Isa> {};

TEST_P(QuantisedProduct, MeetsTheOfficialCode) {
  const GoldenFile golden(model::kTiny + "/quant.safetensors");
  const auto checkpoint = model::Safetensors::open(model::kTiny).value();
  const auto config = model::v41_config_from_json(read_file(model::kTiny + "/config.json"), "config.json").value();
  const auto weights = model::bind_v41(*checkpoint, config).value();
  const auto x = golden.floats("linear.x");
  std::vector<bf16> x8(x.size());
  round_to_fp8(x.data(), static_cast<int64_t>(x.size()), x8.data(), GetParam());
  const auto check = [&](const auto& w, const char* name) {
    const auto expected = golden.floats(name);
    const int64_t rows = static_cast<int64_t>(x.size()) / w.cols;
    std::vector<float> y(expected.size());
    linear({x8.data(), w.cols, rows}, w, 0, w.rows, {y.data(), w.rows, true}, GetParam());
    ASSERT_EQ(rows * w.rows, static_cast<int64_t>(expected.size()));
    for (size_t i = 0; i < y.size(); ++i) EXPECT_LE(std::fabs(y[i] - expected[i]), std::fabs(expected[i]) * 0x1p-7f) << name << " " << i;
  };
  check(weights.layers[0].wq_a, "linear.fp8");
  check(weights.layers[0].experts[3].w1, "linear.fp4");
}

INSTANTIATE_TEST_SUITE_P(Isas, QuantisedProduct, testing::ValuesIn(available_isas().begin(), available_isas().end()),
                         [](const auto& info) { return std::string(isa_name(info.param)); });

INSTANTIATE_TEST_SUITE_P(Formats, BlockQuantize, testing::Values("fp8", "fp4_e8m0", "fp4_e4m3"), [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace deepinfer
