// Products over fp8, fp4 and bf16 weights as stored, on every instruction set of this machine, against the double reference; and bit by
// bit between batches, choices of rows, cuts of the outputs and threads.
#include "kernels/block_linear.h"

#include <cmath>
#include <cstring>
#include <gtest/gtest.h>
#include <vector>

#include "base/rng.h"
#include "kernels/block_quantize.h"
#include "kernels/cpu/block_linear_kernels.h"

namespace deepinfer {
namespace {

constexpr int64_t kMaxBlockRows = 101;

struct BlockShape {
  int64_t outputs, cols;
};
constexpr BlockShape kShapes[] = {{1, 32}, {3, 96}, {33, 64}, {70, 192}, {36, 1280}, {9, 2112}, {5, 4128}};

std::vector<bf16> random_bf16_rows(int64_t rows, int64_t cols, uint64_t seed) {
  Rng rng(seed);
  std::vector<bf16> out(static_cast<size_t>(rows * cols));
  for (size_t i = 0; i < out.size(); ++i) out[i] = to_bf16(rng.normal() * (i / 32 % 3 == 0 ? 4.0f : 0.5f));
  return out;
}

// The bytes of a matrix in each of the three formats; every code but NaN occurs.
struct Weights {
  std::vector<uint8_t> codes;
  std::vector<e8m0> scales;
  std::vector<bf16> values;
  Weights(BlockShape shape, uint64_t seed) {
    Rng rng(seed);
    const auto [outputs, cols] = shape;
    codes.resize(static_cast<size_t>(outputs * cols));
    for (uint8_t& code : codes) {
      code = static_cast<uint8_t>(rng.next_u32());
      if ((code & 0x7f) == 0x7f) code = 0x80;
    }
    scales.resize(static_cast<size_t>(outputs * cols / 32));
    for (e8m0& scale : scales) scale.bits = static_cast<uint8_t>(112 + rng.next_u32() % 12);
    values = random_bf16_rows(outputs, cols, seed + 1);
  }
  Fp8Matrix fp8(BlockShape s) const { return {reinterpret_cast<const e4m3*>(codes.data()), scales.data(), s.outputs, s.cols}; }
  Fp4Matrix fp4(BlockShape s) const { return {codes.data(), scales.data(), s.outputs, s.cols}; }
  Bf16Matrix bf16s(BlockShape s) const { return {values.data(), s.outputs, s.cols}; }
};

// What an instruction set uses on this machine, or a table of kernels that it may use on others.
struct Version {
  std::string name;
  Isa isa;
  const cpu::BlockLinearKernels* table = nullptr;
};

std::vector<Version> versions() {
  std::vector<Version> all;
  for (const Isa isa : available_isas()) all.push_back({std::string(isa_name(isa)), isa});
#if defined(__x86_64__)
  for (const Isa isa : available_isas())
    if (isa == Isa::kAvx512) {
      all.push_back({"avx512_pairs", isa, &cpu::block_linear_avx512()});
      all.push_back({"avx512_f32", isa, &cpu::block_linear_f32_avx512()});
    }
#endif
  return all;
}

void run_table(const cpu::BlockLinearKernels& table, const Bf16Rows& x, const Fp8Matrix& w, const ProductOut& out) { table.fp8(x, w, 0, w.rows, out); }
void run_table(const cpu::BlockLinearKernels& table, const Bf16Rows& x, const Fp4Matrix& w, const ProductOut& out) { table.fp4(x, w, 0, w.rows, out); }
void run_table(const cpu::BlockLinearKernels& table, const Bf16Rows& x, const Bf16Matrix& w, const ProductOut& out) { table.bf16(x, w, 0, w.rows, out); }

template <class Matrix>
std::vector<float> multiply_blocks(const Bf16Rows& x, const Matrix& w, bool round, const Version& version, int threads = 1) {
  constexpr float kGuard = 12345.0f;
  const int64_t ldy = w.rows + 3;
  std::vector<float> y(static_cast<size_t>(x.num_rows * ldy), kGuard), out;
  if (version.table != nullptr) run_table(*version.table, x, w, {y.data(), ldy, round});
  else Workers::create(threads, false)->run([&](Team& team) { linear(x, w, {y.data(), ldy, round}, version.isa, team); });
  for (int64_t t = 0; t < x.num_rows; ++t) {
    out.insert(out.end(), y.begin() + t * ldy, y.begin() + t * ldy + w.rows);
    for (int64_t i = w.rows; i < ldy; ++i) EXPECT_EQ(y[static_cast<size_t>(t * ldy + i)], kGuard) << "written past row " << t;
  }
  return out;
}

class BlockLinear : public testing::TestWithParam<Version> {
 protected:
  // f(matrix) for each format.
  template <class F>
  static void each_format(const Weights& weights, BlockShape shape, F f) {
    f(weights.fp8(shape));
    f(weights.fp4(shape));
    f(weights.bf16s(shape));
  }
};
INSTANTIATE_TEST_SUITE_P(Versions, BlockLinear, testing::ValuesIn(versions()), [](const auto& info) { return info.param.name; });

TEST_P(BlockLinear, MatchesTheReference) {
  for (const BlockShape shape : kShapes) {
    const Weights weights(shape, 1);
    const auto x = random_bf16_rows(kMaxBlockRows, shape.cols, 2);
    each_format(weights, shape, [&](const auto& w) {
      const Bf16Rows rows{x.data(), shape.cols, kMaxBlockRows};
      const size_t count = static_cast<size_t>(kMaxBlockRows * w.rows);
      std::vector<double> expected(count), magnitude(count);
      ref::linear(rows, w, expected.data(), magnitude.data());
      const auto y = multiply_blocks(rows, w, false, GetParam()), rounded = multiply_blocks(rows, w, true, GetParam());
      for (size_t i = 0; i < count; ++i) {
        ASSERT_LE(std::fabs(y[i] - expected[i]), 0x1p-24 * (static_cast<double>(w.cols) / 8 + 8) * magnitude[i]) << w.rows << "x" << w.cols << " at " << i;
        ASSERT_EQ(rounded[i], to_f32(to_bf16(y[i])));
      }
    });
  }
}

// The bf16 products of a vision tower have any number of inputs.
TEST_P(BlockLinear, Bf16TakesAnyNumberOfInputs) {
  for (int64_t cols = 1; cols <= 70; ++cols) {
    const auto values = random_bf16_rows(6, cols, 3), x = random_bf16_rows(7, cols, 4);
    const Bf16Matrix w{values.data(), 6, cols};
    const Bf16Rows rows{x.data(), cols, 7};
    double expected[42], magnitude[42];
    ref::linear(rows, w, expected, magnitude);
    const auto y = multiply_blocks(rows, w, false, GetParam());
    for (size_t i = 0; i < 42; ++i) ASSERT_LE(std::fabs(y[i] - expected[i]), 0x1p-22 * magnitude[i]) << cols << " at " << i;
    const auto one = multiply_blocks({x.data() + 3 * cols, cols, 1}, w, false, GetParam());
    for (size_t i = 0; i < 6; ++i) ASSERT_EQ(one[i], y[18 + i]) << cols;
  }
}

TEST_P(BlockLinear, BitsDoNotDependOnBatchChoiceOfRowsOrThreads) {
  for (const BlockShape shape : kShapes) {
    const Weights weights(shape, 5);
    const auto x = random_bf16_rows(kMaxBlockRows, shape.cols, 6);
    each_format(weights, shape, [&](const auto& w) {
      const auto all = multiply_blocks({x.data(), shape.cols, kMaxBlockRows}, w, false, GetParam());
      const auto row = [&](int64_t t) { return std::vector<float>(all.begin() + t * w.rows, all.begin() + (t + 1) * w.rows); };
      for (int32_t count = 1; count <= 26; ++count) {
        std::vector<int32_t> ids;
        std::vector<float> expected;
        for (int32_t i = 0; i < count; ++i) {
          ids.push_back((i * 37 + count) % static_cast<int32_t>(kMaxBlockRows));
          const auto one = row(ids.back());
          expected.insert(expected.end(), one.begin(), one.end());
        }
        ASSERT_EQ(multiply_blocks({x.data(), shape.cols, count, ids.data()}, w, false, GetParam()), expected) << count << " rows of " << w.cols;
      }
      for (const int threads : {2, 3}) ASSERT_EQ(multiply_blocks({x.data(), shape.cols, kMaxBlockRows}, w, false, GetParam(), threads), all);
      ASSERT_EQ(multiply_blocks({x.data(), shape.cols, 1}, w, false, GetParam(), 2), row(0));
    });
  }
}

TEST_P(BlockLinear, PartsOfAMatrix) {
  const BlockShape shape{128, 96};
  const Weights weights(shape, 7);
  const auto x = random_bf16_rows(9, shape.cols, 8);
  const Bf16Rows rows{x.data(), shape.cols, 9};
  const auto check = [&](const auto& w) {
    const auto all = multiply_blocks(rows, w, false, GetParam()), part = multiply_blocks(rows, rows_of(w, 64, 33), false, GetParam());
    for (size_t t = 0; t < 9; ++t)
      for (size_t n = 0; n < 33; ++n) ASSERT_EQ(part[t * 33 + n], all[t * 128 + 64 + n]);
  };
  check(weights.fp8(shape));
  check(weights.fp4(shape));
}

// Activations at the ends of the range, times scales that would take them beyond it: few rows and many agree on those bits too.
TEST_P(BlockLinear, ExtremeActivationsKeepTheirBits) {
  const BlockShape shape{40, 128};
  for (const uint8_t scale : {uint8_t{11}, uint8_t{120}, uint8_t{240}}) {
    Weights weights(shape, 13);
    for (e8m0& s : weights.scales) s.bits = scale;
    for (const uint16_t extreme : {0x8000, 0x0001, 0x0080, 0x0100, 0x7f7f, 0x7f80, 0x7fc0}) {
      auto x = random_bf16_rows(8, shape.cols, 14);
      x[50].bits = extreme;
      each_format(weights, shape, [&](const auto& w) {
        const auto many = multiply_blocks({x.data(), shape.cols, 8}, w, false, GetParam()), one = multiply_blocks({x.data(), shape.cols, 1}, w, false, GetParam());
        for (size_t i = 0; i < 40; ++i) ASSERT_TRUE(one[i] == many[i] || (std::isnan(one[i]) && std::isnan(many[i]))) << int{scale} << " " << extreme << " at " << i;
      });
    }
  }
}

// Scales that a checkpoint may hold though no model needs them; and NaN, as scale, code or activation, spoils only what it touches.
TEST_P(BlockLinear, OddScalesAndNan) {
  const BlockShape shape{40, 128};
  for (const uint8_t odd : {uint8_t{0}, uint8_t{9}, uint8_t{30}, uint8_t{220}, uint8_t{0xff}}) {
    Weights weights(shape, 9);
    weights.scales[6].bits = odd;
    weights.codes[17 * 128 + 5] = 0x7f;  // NaN as fp8; as fp4 an ordinary pair
    const auto x = random_bf16_rows(8, shape.cols, 10);
    each_format(weights, shape, [&](const auto& w) {
      if constexpr (std::is_same_v<std::decay_t<decltype(w)>, Bf16Matrix>) return;
      for (const int64_t count : {1, 8}) {
        const Bf16Rows rows{x.data(), shape.cols, count};
        std::vector<double> expected(static_cast<size_t>(count * 40)), magnitude(expected.size());
        ref::linear(rows, w, expected.data(), magnitude.data());
        const auto y = multiply_blocks(rows, w, false, GetParam());
        for (size_t i = 0; i < y.size(); ++i) {
          ASSERT_EQ(std::isnan(y[i]), std::isnan(expected[i])) << int{odd} << " at " << i;
          if (std::isnan(expected[i])) continue;
          ASSERT_LE(std::fabs(y[i] - expected[i]), 0x1p-20 * magnitude[i]) << int{odd} << " at " << i;
        }
      }
    });
  }
  Weights weights(shape, 11);
  auto x = random_bf16_rows(8, shape.cols, 12);
  const auto clean = multiply_blocks({x.data(), shape.cols, 8}, weights.fp4(shape), true, GetParam());
  x[3 * 128 + 50].bits = 0x7fc0;
  const auto y = multiply_blocks({x.data(), shape.cols, 8}, weights.fp4(shape), true, GetParam());
  for (size_t i = 0; i < y.size(); ++i) {
    if (i / 40 == 3) {
      EXPECT_TRUE(std::isnan(y[i]));
    } else {
      EXPECT_EQ(y[i], clean[i]);
    }
  }
}

}  // namespace
}  // namespace deepinfer
