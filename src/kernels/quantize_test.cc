#include "kernels/quantize.h"

#include <gtest/gtest.h>
#include <cmath>
#include <vector>

#include "base/rng.h"
#include "kernels/dequantize.h"

namespace deepinfer {
namespace {

std::vector<float> round_trip(DType dtype, const std::vector<float>& in) {
  const auto n = static_cast<int64_t>(in.size());
  std::vector<std::byte> bytes(static_cast<size_t>(row_bytes(dtype, n)));
  std::vector<float> out(in.size());
  quantize(dtype, in.data(), bytes.data(), n);
  dequantize(dtype, bytes.data(), out.data(), n);
  return out;
}

TEST(Quantize, StaysWithinHalfAStep) {
  Rng rng(1);
  for (const auto& [dtype, steps] : {std::pair{DType::kQ8_0, 127.0f}, std::pair{DType::kQ4_0, 8.0f}}) {
    for (int round = 0; round < 50; ++round) {
      std::vector<float> in(32);
      float max = 0;
      for (float& x : in) {
        x = static_cast<float>((rng.uniform() - 0.5) * std::pow(10.0, round % 7 - 3));
        max = std::max(max, std::fabs(x));
      }
      const auto out = round_trip(dtype, in);
      // Half a step, one whole where Q4_0 lacks the code +8, and the rounding of d to f16,
      // which small numbers drive below its normal range.
      const float bound = max / steps * (dtype == DType::kQ4_0 ? 1.01f : 0.51f) + max * 0x1p-10f + steps * 0x1p-25f;
      for (size_t i = 0; i < in.size(); ++i) EXPECT_NEAR(in[i], out[i], bound) << dtype_info(dtype).name;
    }
  }
}

TEST(Quantize, TheLargestNumberKeepsItsSign) {
  std::vector<float> in(32, 0.25f);
  in[5] = -2;
  EXPECT_FLOAT_EQ(round_trip(DType::kQ4_0, in)[5], -2);
  in[5] = 2;
  EXPECT_FLOAT_EQ(round_trip(DType::kQ4_0, in)[5], 2);
}

TEST(Quantize, ZerosStayZero) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16, DType::kQ8_0, DType::kQ4_0}) {
    EXPECT_EQ(round_trip(dtype, std::vector<float>(64, 0.0f)), std::vector<float>(64, 0.0f));
  }
}

TEST(Quantize, FormatsThatHoldTheNumberKeepIt) {
  const std::vector<float> in{1, -0.5f, 0, 255, -3};
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) EXPECT_EQ(round_trip(dtype, in), in);
}

}  // namespace
}  // namespace deepinfer
