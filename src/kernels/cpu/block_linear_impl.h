// The products of block_linear.h with f32 arithmetic on Vec: included by block_linear_<isa>.cc, which compile it for their instruction
// set. Four rows of weights at a time become floats in the L1 cache, each times its scale, and serve all rows of activations.
#pragma once

#include "kernels/cpu/block_linear_kernels.h"
#include "kernels/cpu/vec.h"

namespace deepinfer {
namespace {

constexpr int kGroup = 4;           // outputs taken together
constexpr int kTileRows = Vec::kLanes == 4 ? 2 : 3;
constexpr int64_t kDepth = 1024;    // inputs of a chunk: 16 KiB of decoded weights
constexpr int64_t kRowBlock = 48;   // rows whose partial sums wait while chunks pass

// Bits 2^(code - 127): the smallest is subnormal, 0xff is NaN.
DI_INLINE float scale_of(e8m0 scale) {
  const uint32_t bits = scale.bits == 0 ? 0x400000u : scale.bits == 0xff ? 0x7fc00000u : uint32_t{scale.bits} << 23;
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}

#if defined(__AVX2__)

// A block of 32 codes as floats.
DI_INLINE void decode_fp8_block(const uint8_t* codes, float scale, float* out) {
  for (int i = 0; i < 32; i += 8) {
    const __m256i code = _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(codes + i)));
    const __m256i magnitude = _mm256_and_si256(code, _mm256_set1_epi32(0x7f));
    // A subnormal m * 2^-9 is (1 + m / 8) * 2^-6 - 2^-6.
    const __m256i subnormal = _mm256_cmpgt_epi32(_mm256_set1_epi32(8), magnitude);
    const __m256i exponent = _mm256_add_epi32(_mm256_set1_epi32(120 << 23), _mm256_and_si256(subnormal, _mm256_set1_epi32(1 << 23)));
    const __m256 value = _mm256_sub_ps(_mm256_castsi256_ps(_mm256_add_epi32(_mm256_slli_epi32(magnitude, 20), exponent)),
                                       _mm256_and_ps(_mm256_castsi256_ps(subnormal), _mm256_set1_ps(0x1p-6f)));
    const __m256i nan = _mm256_and_si256(_mm256_cmpeq_epi32(magnitude, _mm256_set1_epi32(0x7f)), _mm256_set1_epi32(0x7fc00000));
    const __m256i sign = _mm256_slli_epi32(_mm256_andnot_si256(_mm256_set1_epi32(0x7f), code), 24);
    const __m256 whole = _mm256_or_ps(value, _mm256_castsi256_ps(_mm256_or_si256(nan, sign)));
    _mm256_store_ps(out + i, _mm256_mul_ps(whole, _mm256_set1_ps(scale)));
  }
}

DI_INLINE void decode_fp4_block(const uint8_t* codes, float scale, float* out) {
  const __m256 magnitudes = _mm256_mul_ps(_mm256_setr_ps(0, 0.5f, 1, 1.5f, 2, 3, 4, 6), _mm256_set1_ps(scale));
  const __m256i sign = _mm256_set1_epi32(static_cast<int>(0x80000000u));
  for (int i = 0; i < 32; i += 16) {
    const __m256i pair = _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(codes + i / 2)));
    const auto value = [&](__m256i code) __attribute__((always_inline)) {  // the low four bits of every lane
      const __m256i minus = _mm256_and_si256(_mm256_slli_epi32(code, 28), sign);
      return _mm256_xor_ps(_mm256_permutevar8x32_ps(magnitudes, code), _mm256_castsi256_ps(minus));
    };
    const __m256 even = value(pair), odd = value(_mm256_srli_epi32(pair, 4));
    const __m256 low = _mm256_unpacklo_ps(even, odd), high = _mm256_unpackhi_ps(even, odd);
    _mm256_store_ps(out + i, _mm256_permute2f128_ps(low, high, 0x20));
    _mm256_store_ps(out + i + 8, _mm256_permute2f128_ps(low, high, 0x31));
  }
}

#else

DI_INLINE float e4m3_value(uint32_t code) {
  const uint32_t magnitude = code & 0x7f, bits = magnitude << 20;
  float value;
  std::memcpy(&value, &bits, 4);
  value = magnitude == 0x7f ? __builtin_nanf("") : value * 0x1p120f;
  return code & 0x80 ? -value : value;
}

void decode_fp8_block(const uint8_t* codes, float scale, float* out) {
  static const struct Table {
    float value[256];
    Table() {
      for (uint32_t code = 0; code < 256; ++code) value[code] = e4m3_value(code);
    }
  } table;
  for (int i = 0; i < 32; ++i) out[i] = table.value[codes[i]] * scale;
}

void decode_fp4_block(const uint8_t* codes, float scale, float* out) {
  static constexpr float kMagnitudes[8] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
  float value[16];
  for (int i = 0; i < 8; ++i) {
    value[i] = kMagnitudes[i] * scale;
    value[8 + i] = -value[i];
  }
  for (int i = 0; i < 16; ++i) {
    out[2 * i] = value[codes[i] & 15];
    out[2 * i + 1] = value[codes[i] >> 4];
  }
}

#endif

// Inputs [k, k + count) of output n as floats.
DI_INLINE void decode_row(const Fp8Matrix& w, int64_t n, int64_t k, int64_t count, float* out) {
  const auto* codes = reinterpret_cast<const uint8_t*>(w.codes) + n * w.cols + k;
  const e8m0* scales = w.scales + n / 32 * (w.cols / 32) + k / 32;
  for (int64_t b = 0; b < count / 32; ++b) decode_fp8_block(codes + b * 32, scale_of(scales[b]), out + b * 32);
}
DI_INLINE void decode_row(const Fp4Matrix& w, int64_t n, int64_t k, int64_t count, float* out) {
  const uint8_t* codes = w.codes + (n * w.cols + k) / 2;
  const e8m0* scales = w.scales + n * (w.cols / 32) + k / 32;
  for (int64_t b = 0; b < count / 32; ++b) decode_fp4_block(codes + b * 16, scale_of(scales[b]), out + b * 32);
}
DI_INLINE float bf16_value(const bf16* p) {
  const uint32_t bits = uint32_t{p->bits} << 16;
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}
DI_INLINE void decode_row(const Bf16Matrix& w, int64_t n, int64_t k, int64_t count, float* out) {
  const bf16* values = w.values + n * w.cols + k;
  int64_t i = 0;
  for (; i + Vec::kLanes <= count; i += Vec::kLanes) Vec::store(out + i, Vec::load_bf16(values + i));
  for (; i < count; ++i) out[i] = bf16_value(values + i);
}

DI_INLINE const bf16* row_of(const Bf16Rows& x, int64_t r) { return x.values + (x.ids != nullptr ? x.ids[r] : r) * x.ld; }

// MR rows against a chunk [kGroup][kDepth]; lanes of partial sums in and out at sums [MR][kGroup][kLanes].
template <int MR>
DI_INLINE void multiply_tile(const bf16* const* x, const float* chunk, int64_t count, bool first, float* sums) {
  Vec::F sum[MR * kGroup];
  each<MR * kGroup>([&](auto i) __attribute__((always_inline)) { sum[i] = first ? Vec::zero() : Vec::load(sums + i * Vec::kLanes); });
  const auto step = [&](int64_t k, const Vec::F(&a)[MR]) __attribute__((always_inline)) {
    each<kGroup>([&](auto n) __attribute__((always_inline)) {
      const Vec::F w = Vec::load(chunk + n * kDepth + k);
      each<MR>([&](auto i) __attribute__((always_inline)) { sum[i * kGroup + n] = Vec::fma(a[i], w, sum[i * kGroup + n]); });
    });
  };
  int64_t k = 0;
  Vec::F a[MR];
  for (; k + Vec::kLanes <= count; k += Vec::kLanes) {
    each<MR>([&](auto i) __attribute__((always_inline)) { a[i] = Vec::load_bf16(x[i] + k); });
    step(k, a);
  }
  if (k < count) {  // the lanes past the end are 0 times 0
    float rest[Vec::kLanes];
    each<MR>([&](auto i) __attribute__((always_inline)) {
      for (int64_t j = 0; j < Vec::kLanes; ++j) rest[j] = k + j < count ? bf16_value(x[i] + k + j) : 0.0f;
      a[i] = Vec::load(rest);
    });
    step(k, a);
  }
  each<MR * kGroup>([&](auto i) __attribute__((always_inline)) { Vec::store(sums + i * Vec::kLanes, sum[i]); });
}

template <class Matrix>
void multiply(const Bf16Rows& x, const Matrix& w, int64_t begin, int64_t end, const ProductOut& out) {
  alignas(64) float chunk[kGroup * kDepth];
  alignas(64) float sums[kRowBlock * kGroup * Vec::kLanes];
  for (int64_t row = 0; row < x.num_rows; row += kRowBlock) {
    const int64_t rows = x.num_rows - row < kRowBlock ? x.num_rows - row : kRowBlock;
    for (int64_t n = begin; n < end; n += kGroup) {
      const int64_t outputs = end - n < kGroup ? end - n : kGroup;
      for (int64_t k = 0; k < w.cols; k += kDepth) {
        const int64_t count = w.cols - k < kDepth ? w.cols - k : kDepth;
        for (int64_t i = 0; i < kGroup; ++i) {
          decode_row(w, n + (i < outputs ? i : 0), k, count, chunk + i * kDepth);
          for (int64_t j = count; j % Vec::kLanes != 0; ++j) chunk[i * kDepth + j] = 0;
        }
        for (int64_t i = 0; i < rows; i += kTileRows) {
          const bf16* at[kTileRows];
          for (int64_t j = 0; j < kTileRows; ++j) at[j] = row_of(x, row + (i + j < rows ? i + j : i)) + k;
          float* place = sums + i * kGroup * Vec::kLanes;
          if (rows - i >= kTileRows) multiply_tile<kTileRows>(at, chunk, count, k == 0, place);
          else if (rows - i == 2) multiply_tile<2>(at, chunk, count, k == 0, place);
          else multiply_tile<1>(at, chunk, count, k == 0, place);
        }
      }
      for (int64_t i = 0; i < rows; ++i) {
        float* y = out.y + (row + i) * out.ldy + n;
        for (int64_t j = 0; j < outputs; ++j) {
          const float sum = Vec::sum(Vec::load(sums + (i * kGroup + j) * Vec::kLanes));
          float rounded[Vec::kLanes];
          Vec::store(rounded, Vec::round_bf16(Vec::set1(sum)));
          y[j] = out.round ? rounded[0] : sum;
        }
      }
    }
  }
}

constexpr cpu::BlockLinearKernels kBlockLinear{multiply<Fp8Matrix>, multiply<Fp4Matrix>, multiply<Bf16Matrix>};

}  // namespace
}  // namespace deepinfer
