#include "kernels/block_linear.h"

#include <array>

#include "kernels/lane_dot.h"

namespace deepinfer {
namespace {

constexpr int kBlock = 32;

const std::array<float, 256>& e4m3_table() {
  static const std::array<float, 256> table = [] {
    std::array<float, 256> t;
    for (size_t i = 0; i < 256; ++i) t[i] = to_f32(e4m3{static_cast<uint8_t>(i)});
    return t;
  }();
  return table;
}

// One output for every row: weight_block(b, w) writes the 32 decoded weights of block b and returns their scale.
template <class WeightBlock>
void output_column(const Fp8Rows& x, int64_t cols, float* y, int64_t ldy, const WeightBlock& weight_block) {
  const auto& decode = e4m3_table();
  const int64_t num_blocks = cols / kBlock;
  for (int64_t t = 0; t < x.num_rows; ++t) y[t * ldy] = 0;
  for (int64_t b = 0; b < num_blocks; ++b) {
    float w[kBlock], a[kBlock];
    const float w_scale = weight_block(b, w);
    for (int64_t t = 0; t < x.num_rows; ++t) {
      const e4m3* codes = x.codes + t * cols + b * kBlock;
      for (int k = 0; k < kBlock; ++k) a[k] = decode[codes[k].bits];
      y[t * ldy] += lane_dot(a, w, kBlock) * to_f32(x.scales[t * num_blocks + b]) * w_scale;
    }
  }
  for (int64_t t = 0; t < x.num_rows; ++t) y[t * ldy] = to_f32(to_bf16(y[t * ldy]));
}

}  // namespace

void linear_fp8(const Fp8Rows& x, const Fp8Matrix& w, float* y, int64_t ldy, Team& team) {
  const auto& decode = e4m3_table();
  const auto [begin, end] = team.range(w.rows);
  for (int64_t n = begin; n < end; ++n)
    output_column(x, w.cols, y + n, ldy, [&](int64_t b, float* out) {
      const e4m3* codes = w.codes + n * w.cols + b * kBlock;
      for (int k = 0; k < kBlock; ++k) out[k] = decode[codes[k].bits];
      return to_f32(w.scales[n / kBlock * (w.cols / kBlock) + b]);
    });
}

void linear_fp4(const Fp8Rows& x, const Fp4Matrix& w, float* y, int64_t ldy, Team& team) {
  const auto [begin, end] = team.range(w.rows);
  for (int64_t n = begin; n < end; ++n)
    output_column(x, w.cols, y + n, ldy, [&](int64_t b, float* out) {
      const uint8_t* codes = w.codes + (n * w.cols + b * kBlock) / 2;
      for (int k = 0; k < kBlock / 2; ++k) {
        out[2 * k] = e2m1_to_f32(codes[k] & 15);
        out[2 * k + 1] = e2m1_to_f32(codes[k] >> 4);
      }
      return to_f32(w.scales[n * (w.cols / kBlock) + b]);
    });
}

void linear_fp8_as_bf16(const float* x, int64_t ldx, int64_t num_rows, const Fp8Matrix& w, float* y, int64_t ldy, Team& team) {
  const auto& decode = e4m3_table();
  const auto [begin, end] = team.range(w.rows);
  for (int64_t n = begin; n < end; ++n) {
    for (int64_t t = 0; t < num_rows; ++t) y[t * ldy + n] = 0;
    for (int64_t b = 0; b < w.cols / kBlock; ++b) {
      const float scale = to_f32(w.scales[n / kBlock * (w.cols / kBlock) + b]);
      float values[kBlock];
      for (int k = 0; k < kBlock; ++k) values[k] = decode[w.codes[n * w.cols + b * kBlock + k].bits] * scale;
      for (int64_t t = 0; t < num_rows; ++t) y[t * ldy + n] += lane_dot(x + t * ldx + b * kBlock, values, kBlock);
    }
    for (int64_t t = 0; t < num_rows; ++t) y[t * ldy + n] = to_f32(to_bf16(y[t * ldy + n]));
  }
}

void linear_bf16(const float* x, int64_t ldx, int64_t num_rows, const Bf16Matrix& w, bool round, float* y, int64_t ldy, Team& team) {
  const auto [begin, end] = team.range(w.rows);
  for (int64_t n = begin; n < end; ++n) {
    const bf16* row = w.values + n * w.cols;
    for (int64_t t = 0; t < num_rows; ++t) {
      const float sum = lane_dot(x + t * ldx, row, w.cols);
      y[t * ldy + n] = round ? to_f32(to_bf16(sum)) : sum;
    }
  }
}

}  // namespace deepinfer
