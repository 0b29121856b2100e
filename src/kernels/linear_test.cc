// Every dtype, both modes, every instruction set of this machine, against the double reference; and bit by bit between batch
// sizes, row offsets, thread counts and (integer formats) instruction sets.
#include "kernels/linear.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "base/half.h"
#include "base/rng.h"
#include "kernels/dequantize.h"
#include "kernels/panels.h"
#include "kernels/ref/linear.h"

namespace deepinfer {
namespace {

constexpr DType kAllDTypes[] = {DType::kF32,  DType::kF16,  DType::kBF16, DType::kQ4_0, DType::kQ4_1,
                                DType::kQ5_0, DType::kQ5_1, DType::kQ8_0, DType::kQ2_K, DType::kQ3_K,
                                DType::kQ4_K, DType::kQ5_K, DType::kQ6_K, DType::kIQ4_NL, DType::kIQ4_XS};

// Places of f16 scales in a block.
std::vector<int> scale_places(DType dtype) {
  switch (dtype) {
    case DType::kQ4_1:
    case DType::kQ5_1:
    case DType::kQ4_K:
    case DType::kQ5_K: return {0, 2};
    case DType::kQ2_K: return {80, 82};
    case DType::kQ3_K: return {108};
    case DType::kQ6_K: return {208};
    default: return {0};
  }
}

std::vector<std::byte> random_weights(DType dtype, int64_t rows, int64_t cols, uint64_t seed) {
  Rng rng(seed);
  std::vector<std::byte> out(rows * row_bytes(dtype, cols));
  if (!panels::is_integer(dtype)) {
    for (int64_t i = 0; i < rows * cols; ++i) {
      const float value = rng.normal();
      if (dtype == DType::kF32) std::memcpy(&out[i * 4], &value, 4);
      const uint16_t half = dtype == DType::kF16 ? to_f16(value).bits : to_bf16(value).bits;
      if (dtype != DType::kF32) std::memcpy(&out[i * 2], &half, 2);
    }
    return out;
  }
  for (std::byte& b : out) b = static_cast<std::byte>(rng.next_u32());
  const int64_t size = dtype_info(dtype).block_bytes;
  for (int64_t block = 0; block < static_cast<int64_t>(out.size()) / size; ++block) {
    for (int place : scale_places(dtype)) {
      const uint16_t half = to_f16(0.02f * rng.normal()).bits;
      std::memcpy(&out[block * size + place], &half, 2);
    }
  }
  return out;
}

std::vector<float> random_rows(int64_t rows, int64_t cols, uint64_t seed) {
  Rng rng(seed);
  std::vector<float> out(rows * cols);
  for (int64_t i = 0; i < rows * cols; ++i) out[i] = rng.normal() * (i / 32 % 3 == 0 ? 4.0f : 0.5f);
  return out;
}

struct Shape {
  int64_t outputs, cols;
};

std::vector<Shape> shapes_of(DType dtype) {
  switch (dtype_info(dtype).block_size) {
    case 1: return {{5, 1}, {33, 37}, {50, 576}};
    case 32: return {{1, 32}, {33, 96}, {50, 576}, {16, 896}};
    default: return {{17, 256}, {50, 768}};
  }
}

constexpr int64_t kMaxRows = 200;

// One workers object a size for the whole program: threads are pinned, and tests are many.
Workers& workers_of(int size) {
  static std::map<int, std::unique_ptr<Workers>> all;
  auto& workers = all[size];
  if (workers == nullptr) workers = Workers::create(size);
  return *workers;
}

// Rows [first, first + count) of x through the product; y has a stride of its own and a guard after each row.
std::vector<float> multiply(const Linear& linear, const std::vector<float>& x, int64_t first, int64_t count, const float* bias,
                            Workers& workers, ActivationBuffer& act) {
  const int64_t outputs = linear.rows(), cols = linear.cols(), ldy = outputs + 3;
  constexpr float kGuard = 12345.0f;
  std::vector<float> y(count * ldy, kGuard);
  workers.run([&](Team& team) {
    linear.prepare(x.data() + first * cols, cols, count, act, team);
    if (count > 1) team.barrier();
    linear.apply(act, count, bias, y.data(), ldy, team);
  });
  std::vector<float> out;
  for (int64_t t = 0; t < count; ++t) {
    out.insert(out.end(), y.begin() + t * ldy, y.begin() + t * ldy + outputs);
    for (int64_t i = outputs; i < ldy; ++i) EXPECT_EQ(y[t * ldy + i], kGuard) << "written past row " << t;
  }
  return out;
}

void expect_same_bits(const std::vector<float>& all, int64_t first, const std::vector<float>& part, int64_t outputs,
                      const std::string& what) {
  for (size_t i = 0; i < part.size(); ++i) {
    uint32_t a, b;
    std::memcpy(&a, &all[first * outputs + i], 4);
    std::memcpy(&b, &part[i], 4);
    ASSERT_EQ(a, b) << what << ": row " << first + i / outputs << " output " << i % outputs << ": " << all[first * outputs + i]
                    << " and " << part[i];
  }
}

using LinearParam = std::tuple<DType, Activations, Isa>;

class LinearCase : public testing::TestWithParam<LinearParam> {
 protected:
  DType dtype() const { return std::get<0>(GetParam()); }
  Activations activations() const { return std::get<1>(GetParam()); }
  Isa isa() const { return std::get<2>(GetParam()); }
  std::unique_ptr<Linear> pack(const std::vector<std::byte>& weights, Shape shape) const {
    const LinearSource source{dtype(), weights.data(), shape.outputs};
    return Linear::pack({&source, 1}, shape.cols, {activations(), isa()}, workers_of(1));
  }
};

TEST_P(LinearCase, MatchesTheReference) {
  for (Shape shape : shapes_of(dtype())) {
    const auto weights = random_weights(dtype(), shape.outputs, shape.cols, 1);
    const auto x = random_rows(kMaxRows, shape.cols, 2);
    const auto bias = random_rows(1, shape.outputs, 3);
    const auto linear = pack(weights, shape);
    ActivationBuffer act;
    act.reserve(kMaxRows, shape.cols);
    const auto y = multiply(*linear, x, 0, kMaxRows, bias.data(), workers_of(1), act);

    const auto rounded = ref::rounded_activations(x, dtype(), activations());
    const auto expected = ref::linear(rounded, kMaxRows, shape.cols, dtype(), weights.data(), shape.outputs);
    // Offset formats subtract large terms: their size enters the bound through the weights' own range, 8 times the result's.
    const double terms = static_cast<double>(shape.cols) + 16;
    for (size_t i = 0; i < y.size(); ++i) {
      const double error = std::abs(y[i] - (expected.y[i] + bias[i % shape.outputs]));
      const double bound = 0x1p-24 * (terms * expected.magnitude[i] + 2 * std::abs(bias[i % shape.outputs])) * 4 + 1e-30;
      ASSERT_LE(error, bound) << "outputs " << shape.outputs << " cols " << shape.cols << " at " << i;
    }
  }
}

TEST_P(LinearCase, BitsDoNotDependOnBatchOffsetOrThreads) {
  for (Shape shape : shapes_of(dtype())) {
    const auto weights = random_weights(dtype(), shape.outputs, shape.cols, 6);
    const auto x = random_rows(kMaxRows, shape.cols, 7);
    const auto linear = pack(weights, shape);
    ActivationBuffer act;
    act.reserve(kMaxRows, shape.cols);
    const auto all = multiply(*linear, x, 0, kMaxRows, nullptr, workers_of(1), act);
    for (int64_t count = 1; count <= 33; ++count) {
      const int64_t first = count * 37 % (kMaxRows - count);
      const auto part = multiply(*linear, x, first, count, nullptr, workers_of(1), act);
      expect_same_bits(all, first, part, shape.outputs, std::to_string(count) + " rows");
    }
    for (int size : {2, 3}) {
      for (int64_t count : {int64_t{1}, int64_t{5}, int64_t{64}, int64_t{100}, kMaxRows}) {
        const auto part = multiply(*linear, x, kMaxRows - count, count, nullptr, workers_of(size), act);
        expect_same_bits(all, kMaxRows - count, part, shape.outputs, std::to_string(size) + " threads");
      }
    }
  }
}

TEST_P(LinearCase, ABadScaleOrActivationSpoilsOnlyWhatItTouches) {
  const Shape shape = shapes_of(dtype()).back();
  auto weights = random_weights(dtype(), shape.outputs, shape.cols, 10);
  const auto clean_weights = weights;
  auto x = random_rows(20, shape.cols, 11);
  const auto clean_x = x;
  const int64_t bad_output = 5, row = row_bytes(dtype(), shape.cols);
  const auto half_nan = dtype() == DType::kBF16 ? uint16_t{0x7fc0} : uint16_t{0x7e00};
  const float float_nan = std::numeric_limits<float>::quiet_NaN();
  std::byte* place = weights.data() + bad_output * row + scale_places(dtype())[0];
  if (dtype() == DType::kF32) std::memcpy(place, &float_nan, 4);
  else std::memcpy(place, &half_nan, 2);
  x[3 * shape.cols + 7] = float_nan;
  x[4 * shape.cols + 7] = std::numeric_limits<float>::infinity();
  const auto linear = pack(weights, shape), clean_linear = pack(clean_weights, shape);
  ActivationBuffer act;
  act.reserve(20, shape.cols);
  const auto clean = multiply(*clean_linear, clean_x, 0, 20, nullptr, workers_of(1), act);
  for (int64_t count : {1, 5, 20}) {
    const auto y = multiply(*linear, x, 0, count, nullptr, workers_of(1), act);
    for (int64_t t = 0; t < count; ++t) {
      for (int64_t n = 0; n < shape.outputs; ++n) {
        const float value = y[t * shape.outputs + n];
        if (n == bad_output || t == 3 || t == 4) {
          EXPECT_FALSE(std::isfinite(value)) << t << ' ' << n;
        } else {
          EXPECT_EQ(value, clean[t * shape.outputs + n]) << t << ' ' << n;
        }
      }
    }
  }
}

std::string case_name(const testing::TestParamInfo<LinearParam>& info) {
  const auto [dtype, activations, isa] = info.param;
  return std::string(dtype_info(dtype).name) + (activations == Activations::kFast ? "_fast_" : "_f32_") + std::string(isa_name(isa));
}

INSTANTIATE_TEST_SUITE_P(All, LinearCase,
                         testing::Combine(testing::ValuesIn(kAllDTypes), testing::Values(Activations::kFast, Activations::kF32),
                                          testing::ValuesIn(available_isas().begin(), available_isas().end())),
                         case_name);

class QuantisedActivations : public testing::TestWithParam<DType> {};

// 8-bit activations lose at most half a step of their group's scale in each number.
TEST_P(QuantisedActivations, LoseNoMoreThanTheirRounding) {
  const DType dtype = GetParam();
  const Shape shape = shapes_of(dtype).back();
  const auto weights = random_weights(dtype, shape.outputs, shape.cols, 4);
  const auto x = random_rows(3, shape.cols, 5);
  const LinearSource source{dtype, weights.data(), shape.outputs};
  const auto linear = Linear::pack({&source, 1}, shape.cols, {Activations::kFast, available_isas().back()}, workers_of(1));
  ActivationBuffer act;
  act.reserve(3, shape.cols);
  const auto y = multiply(*linear, x, 0, 3, nullptr, workers_of(1), act);
  const auto exact = ref::linear(x, 3, shape.cols, dtype, weights.data(), shape.outputs);
  std::vector<float> w(shape.cols);
  for (int64_t n = 0; n < shape.outputs; ++n) {
    dequantize(dtype, weights.data() + n * row_bytes(dtype, shape.cols), w.data(), shape.cols);
    for (int64_t t = 0; t < 3; ++t) {
      double bound = 0x1p-20 * exact.magnitude[t * shape.outputs + n];
      for (int64_t k = 0; k < shape.cols; k += 32) {
        float max = 0;
        for (int64_t i = k; i < k + 32; ++i) max = std::max(max, std::abs(x[t * shape.cols + i]));
        for (int64_t i = k; i < k + 32; ++i) bound += std::abs(w[i]) * max / 254 * 1.0001;
      }
      EXPECT_LE(std::abs(y[t * shape.outputs + n] - exact.y[t * shape.outputs + n]), bound);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, QuantisedActivations,
                         testing::ValuesIn(std::begin(kAllDTypes) + 3, std::end(kAllDTypes)),
                         [](const auto& info) { return std::string(dtype_info(info.param).name); });

// Which instruction sets promise each other's bits: all of them in the integer formats, whose order of sums is one; those that fuse
// multiplication and addition in float sums; those without bf16 instructions (which round in their own ways) for BF16 in kFast.
std::vector<Isa> equal_isas(DType dtype, Activations activations) {
  const std::span<const Isa> all = available_isas();
  const bool integers = activations == Activations::kFast && panels::is_integer(dtype);
  std::vector<Isa> out;
  for (Isa isa : all) {
    if (isa == Isa::kPortable && !integers) continue;
    if ((isa == Isa::kAvx512 || isa == Isa::kAmx) && dtype == DType::kBF16 && activations == Activations::kFast) continue;
    out.push_back(isa);
  }
  return out;
}

TEST(Linear, BitsDoNotDependOnTheInstructionSet) {
  for (DType dtype : kAllDTypes) {
    for (Activations activations : {Activations::kFast, Activations::kF32}) {
      for (Shape shape : shapes_of(dtype)) {
        const auto weights = random_weights(dtype, shape.outputs, shape.cols, 8);
        const auto x = random_rows(40, shape.cols, 9);
        const LinearSource source{dtype, weights.data(), shape.outputs};
        ActivationBuffer act;
        act.reserve(40, shape.cols);
        std::vector<float> expected;
        for (Isa isa : equal_isas(dtype, activations)) {
          const auto linear = Linear::pack({&source, 1}, shape.cols, {activations, isa}, workers_of(1));
          for (int64_t count : {40, 1}) {
            const auto y = multiply(*linear, x, 0, count, nullptr, workers_of(1), act);
            if (expected.empty()) expected = y;
            const std::string what = std::string(dtype_info(dtype).name) + ' ' + std::string(isa_name(isa));
            expect_same_bits(expected, 0, y, shape.outputs, what);
          }
        }
      }
    }
  }
}

// Fused matrices: sources of different dtypes and odd heights, one set of activations.
TEST(Linear, FusedSourcesEqualSeparateOnes) {
  constexpr int64_t kCols = 256;
  const std::vector<std::pair<DType, int64_t>> parts = {{DType::kQ5_0, 21}, {DType::kQ8_0, 16},  {DType::kQ6_K, 7}, {DType::kQ4_K, 48},
                                                        {DType::kF32, 3},   {DType::kBF16, 19}, {DType::kQ2_K, 5}, {DType::kQ3_K, 40}};
  for (Isa isa : available_isas()) {
    for (Activations activations : {Activations::kFast, Activations::kF32}) {
      std::vector<std::vector<std::byte>> weights;
      std::vector<LinearSource> sources;
      for (const auto& [dtype, rows] : parts) {
        weights.push_back(random_weights(dtype, rows, kCols, weights.size() + 20));
        sources.push_back({dtype, weights.back().data(), rows});
      }
      const auto fused = Linear::pack(sources, kCols, {activations, isa}, workers_of(2));
      EXPECT_GT(fused->packed_bytes(), 0);
      const auto x = random_rows(30, kCols, 30);
      const auto bias = random_rows(1, fused->rows(), 31);
      ActivationBuffer act;
      act.reserve(30, kCols);
      for (int64_t count : {1, 6, 30}) {
        const auto y = multiply(*fused, x, 0, count, bias.data(), workers_of(2), act);
        int64_t first = 0;
        for (const LinearSource& source : sources) {
          const auto single = Linear::pack({&source, 1}, kCols, {activations, isa}, workers_of(1));
          const auto part = multiply(*single, x, 0, count, bias.data() + first, workers_of(1), act);
          for (int64_t t = 0; t < count; ++t) {
            for (int64_t n = 0; n < source.rows; ++n) ASSERT_EQ(part[t * source.rows + n], y[t * fused->rows() + first + n]);
          }
          first += source.rows;
        }
      }
    }
  }
}

// Panels keep exactly the file's numbers.
TEST(Panels, DecodeToTheDequantisedWeights) {
  for (DType dtype : kAllDTypes) {
    if (!panels::is_integer(dtype)) continue;
    const int64_t cols = dtype_info(dtype).block_size == 32 ? 96 : 512, rows = 11;
    const auto weights = random_weights(dtype, rows, cols, 40);
    std::vector<std::byte> panel(panels::panel_stride(dtype, cols));
    panels::pack_panel(dtype, weights.data(), rows, cols, panel.data());
    const panels::Format format = panels::format_of(dtype);
    panels::DecodedBlock block;
    for (int64_t n = 0; n < rows; ++n) {
      std::vector<float> expected(cols);
      dequantize(dtype, weights.data() + n * row_bytes(dtype, cols), expected.data(), cols);
      for (int64_t k = 0; k < cols; ++k) {
        const int64_t index = k / format.block_k(), in_block = k % format.block_k(), g = in_block / format.sub_group;
        panels::decode_block(format, panel.data() + index * format.block_bytes(), block);
        const float code = static_cast<float>(block.codes[in_block / 4 * panels::kQuadBytes + n * 4 + in_block % 4] - format.zero_point);
        EXPECT_EQ(code * block.scale[g * 16 + n] + block.offset[g * 16 + n], expected[k]) << dtype_info(dtype).name << ' ' << n << ' ' << k;
      }
    }
  }
}

TEST(Panels, StayNearTheFilesSize) {
  for (DType dtype : kAllDTypes) {
    const double file = static_cast<double>(row_bytes(dtype, 4096)) * 16;
    const double packed = static_cast<double>(panels::panel_stride(dtype, 4096));
    // 2- and 3-bit codes lie in nibbles; else 6-bit sub scales take a byte, and the stride up to two lines.
    const double limit = dtype == DType::kQ2_K ? 2.0 : dtype == DType::kQ3_K ? 1.4 : 1.04;
    EXPECT_LE(packed / file, limit) << dtype_info(dtype).name;
    EXPECT_EQ(static_cast<int64_t>(packed) / 64 % 2, 1);
  }
}

TEST(Isa, PortableIsFirstAndTheDefaultIsAvailable) {
  ASSERT_FALSE(available_isas().empty());
  EXPECT_EQ(available_isas().front(), Isa::kPortable);
  if (std::getenv("DEEPINFER_ISA") == nullptr) {
    EXPECT_EQ(default_isa(), available_isas().back());
  }
}

TEST(IsaDeathTest, AnUnknownWishEndsWithASentence) {
  EXPECT_DEATH(
      {
        setenv("DEEPINFER_ISA", "abacus", 1);
        default_isa();
      },
      "abacus.*it has portable");
}

}  // namespace
}  // namespace deepinfer
