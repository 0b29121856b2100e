// Float32 sums with 256-bit vectors: weights of a chunk of a panel become floats in the L1 cache, each exactly as dequantize() makes it.
// For files compiled for AVX2 or later only (see tiles.h).
#pragma once

#include "kernels/cpu/avx2_linear.h"

namespace deepinfer::cpu {
namespace {

// A group of 32 k of an integer format, half a panel, as floats [k][16] (its half).
template <Format F>
DI_INLINE inline void decode_float_group(const std::byte* p, const BlockScales<F>& scales, int in_block, int half, float* out) {
  constexpr int kSubs = 32 / F.sub_group, kQuads = 8 / kSubs;
  const __m256i low = _mm256_set1_epi32(255), zero_point = _mm256_set1_epi32(F.zero_point);
  each<kSubs>([&](auto s) DI_INLINE {
    const __m256 scale = scales.scale(in_block * kSubs + s), offset = scales.offset(in_block * kSubs + s);
    each<kQuads>([&](auto j) DI_INLINE {
      constexpr int kQuad = s * kQuads + j;
      const __m256i codes = load_quad<F.codes, kQuad>(p + half * 32);
      each<4>([&](auto byte) DI_INLINE {
        const __m256i code = _mm256_sub_epi32(_mm256_and_si256(_mm256_srli_epi32(codes, byte * 8), low), zero_point);
        const __m256 value = _mm256_mul_ps(_mm256_cvtepi32_ps(code), scale);
        _mm256_store_ps(out + (kQuad * 4 + byte) * kOutputs, F.offsets ? _mm256_add_ps(value, offset) : value);
      });
    });
  });
}

template <Format F>
void decode_float(const std::byte* panel, int64_t k, int64_t count, float* out) {
  constexpr int kBlockK = F.block_k(), kBlock = F.block_bytes(), kHeader = F.header_bytes(), kGroupBytes = F.group_bytes();
  for (int64_t done = 0; done < count; done += 32, out += 32 * kOutputs) {
    const int64_t at = k + done, in_block = at % kBlockK / 32;
    const std::byte* block = panel + at / kBlockK * kBlock;
    for (int half = 0; half < 2; ++half) {
      decode_float_group<F>(block + kHeader + in_block * kGroupBytes, BlockScales<F>(block, half), static_cast<int>(in_block), half,
                            out + half * kLanes);
    }
  }
}

// Weights [k, k + count) of a panel as floats [k][16]: in `buffer`, or where they lie.
const float* float_weights(const PanelSet& set, int64_t panel, int64_t k, int64_t count, float* buffer) {
  const std::byte* data = set.data + panel * set.stride;
  switch (set.dtype) {
    case DType::kF32: return reinterpret_cast<const float*>(data) + k * kOutputs;
    case DType::kF16:
      for (int64_t i = 0; i < count * 2; ++i) _mm256_store_ps(buffer + i * kLanes, load_half8(data + (k * 2 + i) * 16));
      return buffer;
    case DType::kBF16:
      for (int64_t i = 0; i < count; i += 2) {
        for (int half = 0; half < 2; ++half) {
          const __m256i pair = load_bytes(data + (k + i) / 2 * kQuadBytes + half * 32);
          float* place = buffer + i * kOutputs + half * kLanes;
          _mm256_store_si256(reinterpret_cast<__m256i*>(place), _mm256_slli_epi32(pair, 16));
          _mm256_store_si256(reinterpret_cast<__m256i*>(place + kOutputs),
                             _mm256_and_si256(pair, _mm256_set1_epi32(static_cast<int>(0xffff0000))));
        }
      }
      return buffer;
    default: with_format(set.dtype, [&]<Format F>() { decode_float<F>(data, k, count, buffer); }); return buffer;
  }
}

// MR rows against a chunk; its sum is added to acc [MR][16], or, for the first chunk, stored there.
template <int MR>
DI_INLINE inline void float_tile(const std::byte* x, int64_t stride, const float* weights, int64_t count, bool first, float* acc_rows) {
  __m256 acc[MR * 2];
  each<MR * 2>([&](auto i) DI_INLINE { acc[i] = _mm256_setzero_ps(); });
  for (int64_t k = 0; k < count; ++k) {
    const __m256 w0 = _mm256_load_ps(weights + k * kOutputs), w1 = _mm256_load_ps(weights + k * kOutputs + kLanes);
    each<MR>([&](auto i) DI_INLINE {
      const __m256 value = _mm256_set1_ps(Rows::at<float>(x, stride, i)[k]);
      acc[i * 2] = _mm256_fmadd_ps(value, w0, acc[i * 2]);
      acc[i * 2 + 1] = _mm256_fmadd_ps(value, w1, acc[i * 2 + 1]);
    });
  }
  each<MR * 2>([&](auto i) DI_INLINE {
    float* place = acc_rows + i * kLanes;
    _mm256_store_ps(place, first ? acc[i] : _mm256_add_ps(_mm256_load_ps(place), acc[i]));
  });
}

void apply_float(const PanelSet& set, const Rows& rows, int64_t num_rows, const Output& out, int64_t begin, int64_t end) {
  alignas(64) float buffer[kChunk * kOutputs];
  alignas(64) float acc[kRowBlock * kOutputs];
  for (int64_t row = 0; row < num_rows; row += kRowBlock) {
    const int64_t rows_here = num_rows - row < kRowBlock ? num_rows - row : kRowBlock;
    for (int64_t panel = begin; panel < end; ++panel) {
      for (int64_t k = 0; k < set.cols; k += kChunk) {
        const int64_t count = set.cols - k < kChunk ? set.cols - k : kChunk;
        const float* weights = float_weights(set, panel, k, count, buffer);
        row_tiles<kTileRowsFloat>(rows_here, [&](int64_t first, int tile) DI_INLINE {
          with_count<kTileRowsFloat>(tile, [&](auto n) DI_INLINE {
            float_tile<n>(rows.f32 + (row + first) * rows.stride + k * 4, rows.stride, weights, count, k == 0, acc + first * kOutputs);
          });
        });
      }
      for (int64_t i = 0; i < rows_here; ++i) store_row(out, row + i, set, panel, acc + i * kOutputs);
    }
  }
}

}  // namespace
}  // namespace deepinfer::cpu
