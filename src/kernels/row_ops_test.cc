// Every version of the row operations against its definition, at all small sizes and at misaligned addresses.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "base/rng.h"
#include "kernels/rms_norm.h"
#include "kernels/rope.h"
#include "kernels/silu_mul.h"

namespace deepinfer {
namespace {

std::vector<float> random_floats(Rng& rng, size_t n, float scale = 1) {
  std::vector<float> x(n);
  for (float& v : x) v = scale * static_cast<float>(2 * rng.uniform() - 1);
  return x;
}

class RowOps : public ::testing::TestWithParam<Isa> {};
INSTANTIATE_TEST_SUITE_P(Isas, RowOps, ::testing::ValuesIn(available_isas().begin(), available_isas().end()),
                         [](const auto& test) { return std::string(isa_name(test.param)); });

TEST_P(RowOps, RmsNormAddsAndNormalises) {
  Rng rng(1);
  for (int64_t cols = 1; cols <= 70; ++cols) {
    for (const bool with_delta : {false, true}) {
      const int64_t rows = 3, ld = cols + 1;  // the second row is misaligned
      const auto x = random_floats(rng, static_cast<size_t>(rows * ld), 3), delta = random_floats(rng, x.size());
      const auto weight = random_floats(rng, static_cast<size_t>(cols));
      auto x1 = x, x2 = x;
      std::vector<float> out1(x.size(), 7), out2(x.size(), 7);
      RmsNormParams p{.x = x1.data(), .ldx = ld, .delta = with_delta ? delta.data() : nullptr, .ld_delta = ld, .weight = weight.data(),
                      .out = out1.data(), .ld_out = ld, .num_rows = rows, .cols = cols, .eps = 1e-5f};
      rms_norm(p, GetParam());
      p.x = x2.data();
      p.out = out2.data();
      ref::rms_norm(p);
      EXPECT_EQ(x1, x2);
      for (size_t i = 0; i < out1.size(); ++i) EXPECT_NEAR(out1[i], out2[i], 2e-6) << "cols " << cols << " at " << i;
    }
  }
}

TEST_P(RowOps, RmsNormInPlaceAndAloneGivesTheSameBits) {
  Rng rng(2);
  const int64_t rows = 5, cols = 83;
  auto x = random_floats(rng, rows * cols);
  const auto weight = random_floats(rng, cols);
  std::vector<float> out(x.size());
  RmsNormParams p{.x = x.data(), .ldx = cols, .delta = nullptr, .ld_delta = 0, .weight = weight.data(), .out = out.data(), .ld_out = cols,
                  .num_rows = rows, .cols = cols, .eps = 1e-6f};
  rms_norm(p, GetParam());
  p.num_rows = 1;
  for (int64_t t = 0; t < rows; ++t) {
    p.x = p.out = x.data() + t * cols;
    rms_norm(p, GetParam());
  }
  EXPECT_EQ(x, out);
}

TEST_P(RowOps, SiluMulMatches) {
  Rng rng(3);
  for (int64_t cols = 1; cols <= 70; ++cols) {
    auto x = random_floats(rng, static_cast<size_t>(2 * (2 * cols + 1)), 20);
    x[0] = -120;  // e^-|x| below the smallest float, and the sigmoid with it
    std::vector<float> out1(static_cast<size_t>(2 * cols)), out2(out1.size());
    SiluMulParams p{.gate_up = x.data(), .ld_in = 2 * cols + 1, .out = out1.data(), .ld_out = cols, .num_rows = 2, .cols = cols};
    silu_mul(p, GetParam());
    p.out = out2.data();
    ref::silu_mul(p);
    for (size_t i = 0; i < out1.size(); ++i) EXPECT_NEAR(out1[i], out2[i], 3e-6 * std::fabs(out2[i]) + 1e-30) << "cols " << cols << " at " << i;
  }
}

TEST_P(RowOps, SiluMulKeepsNan) {
  std::vector<float> x(34, 1.0f), out(17);
  x[3] = NAN;
  silu_mul({.gate_up = x.data(), .ld_in = 34, .out = out.data(), .ld_out = 17, .num_rows = 1, .cols = 17}, GetParam());
  EXPECT_TRUE(std::isnan(out[3]));
  EXPECT_FALSE(std::isnan(out[4]));
}

TEST_P(RowOps, RopeMatches) {
  Rng rng(4);
  for (int64_t head_dim = 2; head_dim <= 80; head_dim += 2) {
    for (const bool interleaved : {false, true}) {
      std::vector<double> frequencies(static_cast<size_t>(head_dim / 2));
      for (double& f : frequencies) f = rng.uniform();
      std::vector<float> angles(static_cast<size_t>(head_dim));
      rope_angles(100003, frequencies, 1.2, angles.data());
      auto x1 = random_floats(rng, static_cast<size_t>(3 * head_dim)), x2 = x1;
      rope({.x = x1.data(), .cos_sin = angles.data(), .num_heads = 3, .head_dim = head_dim, .interleaved = interleaved}, GetParam());
      ref::rope({.x = x2.data(), .cos_sin = angles.data(), .num_heads = 3, .head_dim = head_dim, .interleaved = interleaved});
      for (size_t i = 0; i < x1.size(); ++i) EXPECT_NEAR(x1[i], x2[i], 1e-6);
    }
  }
}

TEST(RopeAngles, AreExactFarOut) {
  const double frequency = 1e-3;
  float cos_sin[2];
  rope_angles(1000001, std::span(&frequency, 1), 2.0, cos_sin);
  EXPECT_EQ(cos_sin[0], static_cast<float>(2 * std::cos(1000.001)));  // in float32 the angle itself would be off by 3e-5
  EXPECT_EQ(cos_sin[1], static_cast<float>(2 * std::sin(1000.001)));
}

}  // namespace
}  // namespace deepinfer
