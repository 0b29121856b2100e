// The products of block_linear.h with f32 arithmetic on the vectors that every compiler knows. Four rows of weights at a time become floats in
// the L1 cache, each times its scale, and serve all rows of activations.
#include "kernels/cpu/block_linear_kernels.h"
#include "kernels/cpu/float8_vec.h"

namespace deepinfer {
namespace {

constexpr int kGroup = 4;           // outputs taken together
constexpr int kTileRows = 2;
constexpr int64_t kDepth = 1024;    // inputs of a chunk: 16 KiB of decoded weights
constexpr int64_t kRowBlock = 48;   // rows whose partial sums wait while chunks pass

DI_INLINE void decode_fp4_block(const uint8_t* codes, float scale, float* out) {
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
          for (int64_t j = 0; j < kTileRows; ++j) at[j] = x.row(row + (i + j < rows ? i + j : i)) + k;
          float* place = sums + i * kGroup * Vec::kLanes;
          if (rows - i >= kTileRows) multiply_tile<kTileRows>(at, chunk, count, k == 0, place);
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

}  // namespace

const cpu::BlockLinearKernels& cpu::block_linear_portable() {
  static constexpr BlockLinearKernels kTable{multiply<Fp8Matrix>, multiply<Fp4Matrix>, multiply<Bf16Matrix>};
  return kTable;
}

}  // namespace deepinfer
