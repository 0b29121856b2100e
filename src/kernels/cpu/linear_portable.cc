// The version without intrinsics: what other machines run and what the fast ones must equal, bit for bit in the integer formats.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/half.h"
#include "kernels/cpu/linear_kernels.h"

namespace deepinfer::cpu {
namespace {

using panels::kGroup;
using panels::kOutputs;

constexpr int64_t kRowBlock = 64;  // rows that share one decoding of a block

void quantize_row(const float* x, int64_t cols, int8_t* q, float* scale, int32_t* sum16) {
  for (int64_t g = 0; g < cols / kGroup; ++g, x += kGroup, q += kGroup) {
    // As integers, magnitudes order like the numbers, and NaN is above all.
    uint32_t magnitude = 0;
    for (int i = 0; i < kGroup; ++i) magnitude = std::max(magnitude, std::bit_cast<uint32_t>(x[i]) & 0x7fffffff);
    const float max = std::bit_cast<float>(magnitude);
    const bool finite = magnitude < 0x7f800000;
    const float inverse = finite && max >= 1e-30f ? 127.0f / max : 0.0f;
    scale[g] = finite ? (inverse != 0 ? max / 127.0f : 0.0f) : std::bit_cast<float>(0x7fc00000u);
    int32_t sum[2] = {0, 0};
    for (int i = 0; i < kGroup; ++i) {
      const int8_t value = finite ? static_cast<int8_t>(std::nearbyintf(x[i] * inverse)) : int8_t{0};
      q[i] = value;
      sum[i / 16] += value;
    }
    sum16[g * 2] = sum[0];
    sum16[g * 2 + 1] = sum[1];
  }
}

void round_to_bf16(const float* x, int64_t cols, uint16_t* out) {
  for (int64_t i = 0; i < cols; ++i) out[i] = to_bf16(x[i]).bits;
}

void store(const Output& out, int64_t row, const PanelSet& set, int64_t panel, const float* acc) {
  const int64_t first = panel * kOutputs, count = std::min<int64_t>(kOutputs, set.rows - first);
  float* y = out.y + row * out.ldy + set.first_output + first;
  const float* bias = out.bias != nullptr ? out.bias + set.first_output + first : nullptr;
  for (int64_t o = 0; o < count; ++o) y[o] = bias != nullptr ? acc[o] + bias[o] : acc[o];
}

// Block `index` of K against one row: adds to acc [16].
void integer_block(const panels::Format& format, const panels::DecodedBlock& block, const Rows& rows, int64_t row, int64_t index,
                   float* acc) {
  const int n = format.block_sub_groups(), size = format.sub_group;
  const int8_t* q = Rows::at<int8_t>(rows.q, rows.stride, row) + index * format.block_k();
  const float* scale = Rows::at<float>(rows.scale, rows.stride, row) + index * format.block_groups();
  const int32_t* start = Rows::at<int32_t>(rows.start, rows.stride, row) + index * n;
  const float* sum = format.offsets ? Rows::at<float>(rows.sum, rows.stride, row) + index * n : nullptr;
  for (int g = 0; g < n; ++g) {
    int32_t dot[kOutputs];
    std::fill(dot, dot + kOutputs, start[g]);
    for (int quad = 0; quad < size / 4; ++quad) {
      const uint8_t* codes = block.codes + (g * size / 4 + quad) * panels::kQuadBytes;
      const int8_t* x = q + g * size + quad * 4;
      for (int o = 0; o < kOutputs; ++o) {
        dot[o] += codes[o * 4] * x[0] + codes[o * 4 + 1] * x[1] + codes[o * 4 + 2] * x[2] + codes[o * 4 + 3] * x[3];
      }
    }
    const float sx = scale[g * size / kGroup];
    for (int o = 0; o < kOutputs; ++o) {
      acc[o] = std::fma(static_cast<float>(dot[o]) * block.scale[g * kOutputs + o], sx, acc[o]);
      if (format.offsets) acc[o] = std::fma(block.offset[g * kOutputs + o], sum[g], acc[o]);
    }
  }
}

void apply_integer(const PanelSet& set, const Rows& rows, int64_t num_rows, const Output& out, int64_t begin, int64_t end) {
  const panels::Format& format = set.format;
  const int64_t blocks = (set.cols + format.block_k() - 1) / format.block_k();
  panels::DecodedBlock block;
  float acc[kRowBlock][kOutputs];
  for (int64_t row = 0; row < num_rows; row += kRowBlock) {
    const int64_t count = std::min(kRowBlock, num_rows - row);
    for (int64_t panel = begin; panel < end; ++panel) {
      std::memset(acc, 0, sizeof acc);
      for (int64_t b = 0; b < blocks; ++b) {
        panels::decode_block(format, set.data + panel * set.stride + b * format.block_bytes(), block);
        for (int64_t i = 0; i < count; ++i) integer_block(format, block, rows, row + i, b, acc[i]);
      }
      for (int64_t i = 0; i < count; ++i) store(out, row + i, set, panel, acc[i]);
    }
  }
}

// Weights of chunk `index` of a panel as floats [k][16]; returns how many k.
int64_t decode_chunk(const PanelSet& set, int64_t panel, int64_t index, float* out) {
  const std::byte* data = set.data + panel * set.stride;
  const int64_t k0 = index * kChunk, count = std::min<int64_t>(kChunk, set.cols - k0);
  if (!panels::is_integer(set.dtype)) {
    for (int64_t k = 0; k < count; ++k) {
      for (int o = 0; o < kOutputs; ++o) {
        const int64_t place = (k0 + k) * kOutputs + o;
        uint16_t half = 0;
        if (set.dtype == DType::kF32) {
          std::memcpy(&out[k * kOutputs + o], data + place * 4, 4);
        } else if (set.dtype == DType::kF16) {
          std::memcpy(&half, data + place * 2, 2);
          out[k * kOutputs + o] = to_f32(f16{half});
        } else {
          std::memcpy(&half, data + ((k0 + k) / 2 * kOutputs + o) * 4 + k % 2 * 2, 2);
          out[k * kOutputs + o] = to_f32(bf16{half});
        }
      }
    }
    return count;
  }
  const panels::Format& format = set.format;
  panels::DecodedBlock block;
  for (int64_t k = 0; k < count; ++k) {
    const int in_block = static_cast<int>(k % format.block_k());
    if (in_block == 0) panels::decode_block(format, data + (k0 + k) / format.block_k() * format.block_bytes(), block);
    const int g = in_block / format.sub_group;
    for (int o = 0; o < kOutputs; ++o) {
      const int code = block.codes[in_block / 4 * panels::kQuadBytes + o * 4 + in_block % 4] - format.zero_point;
      const float product = static_cast<float>(code) * block.scale[g * kOutputs + o];
      out[k * kOutputs + o] = format.offsets ? product + block.offset[g * kOutputs + o] : product;
    }
  }
  return count;
}

void apply_float(const PanelSet& set, const Rows& rows, int64_t num_rows, const Output& out, int64_t begin, int64_t end) {
  const int64_t chunks = (set.cols + kChunk - 1) / kChunk;
  float weights[kChunk * kOutputs];
  float acc[kRowBlock][kOutputs];
  for (int64_t row = 0; row < num_rows; row += kRowBlock) {
    const int64_t rows_here = std::min(kRowBlock, num_rows - row);
    for (int64_t panel = begin; panel < end; ++panel) {
      for (int64_t chunk = 0; chunk < chunks; ++chunk) {
        const int64_t count = decode_chunk(set, panel, chunk, weights);
        for (int64_t i = 0; i < rows_here; ++i) {
          const float* x = Rows::at<float>(rows.f32, rows.stride, row + i) + chunk * kChunk;
          float partial[kOutputs] = {};
          for (int64_t k = 0; k < count; ++k) {
            for (int o = 0; o < kOutputs; ++o) partial[o] += x[k] * weights[k * kOutputs + o];
          }
          for (int o = 0; o < kOutputs; ++o) acc[i][o] = chunk == 0 ? partial[o] : acc[i][o] + partial[o];
        }
      }
      for (int64_t i = 0; i < rows_here; ++i) store(out, row + i, set, panel, acc[i]);
    }
  }
}

}  // namespace

const Kernels* portable_kernels() {
  static constexpr Kernels kTable{
      .quantize_row = quantize_row,
      .round_to_bf16 = round_to_bf16,
      .integer_bias = 0,
      .bf16_products = false,
      .row_padding = 0,
      .apply_integer = apply_integer,
      .apply_bf16 = nullptr,
      .apply_float = apply_float,
  };
  return &kTable;
}

}  // namespace deepinfer::cpu
