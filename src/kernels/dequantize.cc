#include "kernels/dequantize.h"

#include <cstring>

#include "base/check.h"
#include "base/half.h"

namespace deepinfer {
namespace {

// Each function decodes one block; `b` is read in place. The order of operations (scale times quant, then minus) is ggml's and
// decides the last bit, so it stays as it is. Nibble formats keep the first half of a block in the low nibbles, the second in the
// high ones.
float half_at(const uint8_t* b) {
  f16 x;
  std::memcpy(&x, b, sizeof(x));
  return to_f32(x);
}
uint32_t u32_at(const uint8_t* b) {
  uint32_t x;
  std::memcpy(&x, b, sizeof(x));
  return x;
}
int8_t i8_at(const uint8_t* b) { return static_cast<int8_t>(*b); }

// d f16 | q [16]
void q4_0(const uint8_t* b, float* y) {
  const float d = half_at(b);
  for (int j = 0; j < 16; ++j) {
    y[j] = static_cast<float>((b[2 + j] & 15) - 8) * d;
    y[j + 16] = static_cast<float>((b[2 + j] >> 4) - 8) * d;
  }
}

// d f16 | m f16 | q [16]
void q4_1(const uint8_t* b, float* y) {
  const float d = half_at(b), m = half_at(b + 2);
  for (int j = 0; j < 16; ++j) {
    y[j] = static_cast<float>(b[4 + j] & 15) * d + m;
    y[j + 16] = static_cast<float>(b[4 + j] >> 4) * d + m;
  }
}

// The fifth bits of the 5-bit formats lie in one u32: bit j for number j.
int fifth_bit(uint32_t high, int j) { return static_cast<int>(high >> j & 1) << 4; }

// d f16 | high u32 | q [16]
void q5_0(const uint8_t* b, float* y) {
  const float d = half_at(b);
  const uint32_t high = u32_at(b + 2);
  for (int j = 0; j < 16; ++j) {
    y[j] = static_cast<float>(((b[6 + j] & 15) | fifth_bit(high, j)) - 16) * d;
    y[j + 16] = static_cast<float>((b[6 + j] >> 4 | fifth_bit(high, j + 16)) - 16) * d;
  }
}

// d f16 | m f16 | high u32 | q [16]
void q5_1(const uint8_t* b, float* y) {
  const float d = half_at(b), m = half_at(b + 2);
  const uint32_t high = u32_at(b + 4);
  for (int j = 0; j < 16; ++j) {
    y[j] = static_cast<float>((b[8 + j] & 15) | fifth_bit(high, j)) * d + m;
    y[j + 16] = static_cast<float>(b[8 + j] >> 4 | fifth_bit(high, j + 16)) * d + m;
  }
}

// d f16 | q i8 [32]
void q8_0(const uint8_t* b, float* y) {
  const float d = half_at(b);
  for (int j = 0; j < 32; ++j) y[j] = static_cast<float>(i8_at(b + 2 + j)) * d;
}

// scales u4 + mins u4 [16] | q 2 bits [64] | d f16 | dmin f16. 16 groups of 16 numbers; a byte of q holds the same place of four
// runs of 32 numbers.
void q2_k(const uint8_t* b, float* y) {
  const uint8_t *scales = b, *q = b + 16;
  const float d = half_at(b + 80), dmin = half_at(b + 82);
  for (int group = 0; group < 16; ++group) {
    const uint8_t* run = q + group / 8 * 32 + group % 2 * 16;
    const int shift = group % 8 / 2 * 2;
    const float dl = d * static_cast<float>(scales[group] & 15), ml = dmin * static_cast<float>(scales[group] >> 4);
    for (int l = 0; l < 16; ++l) y[group * 16 + l] = dl * static_cast<float>(run[l] >> shift & 3) - ml;
  }
}

// high bits [32] | q 2 bits [64] | scales 6 bits [12] | d f16. Laid out as Q2_K; a set high bit means "do not subtract 4".
// Scale i of 16: its low 4 bits in byte i % 8 (low nibble for i < 8), its high 2 bits in byte 8 + i % 4 at bit i / 4 * 2.
void q3_k(const uint8_t* b, float* y) {
  const uint8_t *high = b, *q = b + 32, *scales = b + 96;
  const float d = half_at(b + 108);
  for (int group = 0; group < 16; ++group) {
    const int low4 = scales[group % 8] >> group / 8 * 4 & 15, high2 = scales[8 + group % 4] >> group / 4 * 2 & 3;
    const float dl = d * static_cast<float>((low4 | high2 << 4) - 32);
    const int half = group % 2 * 16;
    const uint8_t* run = q + group / 8 * 32 + half;
    const int shift = group % 8 / 2 * 2, high_bit = group / 2;
    for (int l = 0; l < 16; ++l) {
      const int quant = (run[l] >> shift & 3) - ((high[half + l] >> high_bit & 1) != 0 ? 0 : 4);
      y[group * 16 + l] = dl * static_cast<float>(quant);
    }
  }
}

// 6-bit scale and min number i of 8 of Q4_K and Q5_K, from 12 bytes: 0-3 lie in the low 6 bits of bytes 0-3 (mins: 4-7); of 4-7
// the low 4 bits lie in bytes 8-11 (mins: high nibble) and the high 2 bits in the top of bytes 0-3 (mins: 4-7).
struct ScaleMin {
  int scale, min;
};
ScaleMin scale_min(const uint8_t* s, int i) {
  if (i < 4) return {s[i] & 63, s[i + 4] & 63};
  return {(s[i + 4] & 15) | (s[i - 4] >> 6) << 4, s[i + 4] >> 4 | (s[i] >> 6) << 4};
}

// d f16 | dmin f16 | scales, mins [12] | q [128]. Eight groups of 32; a pair of groups shares 32 bytes, low and high nibbles.
void q4_k(const uint8_t* b, float* y) {
  const float d = half_at(b), dmin = half_at(b + 2);
  for (int group = 0; group < 8; ++group) {
    const auto [scale, min] = scale_min(b + 4, group);
    const float dl = d * static_cast<float>(scale), ml = dmin * static_cast<float>(min);
    const uint8_t* q = b + 16 + group / 2 * 32;
    const int shift = group % 2 * 4;
    for (int l = 0; l < 32; ++l) y[group * 32 + l] = dl * static_cast<float>(q[l] >> shift & 15) - ml;
  }
}

// d f16 | dmin f16 | scales, mins [12] | fifth bits [32] | q [128]. As Q4_K; bit g of byte l belongs to number l of group g.
void q5_k(const uint8_t* b, float* y) {
  const float d = half_at(b), dmin = half_at(b + 2);
  const uint8_t* high = b + 16;
  for (int group = 0; group < 8; ++group) {
    const auto [scale, min] = scale_min(b + 4, group);
    const float dl = d * static_cast<float>(scale), ml = dmin * static_cast<float>(min);
    const uint8_t* q = b + 48 + group / 2 * 32;
    const int shift = group % 2 * 4;
    for (int l = 0; l < 32; ++l) {
      const int quant = (q[l] >> shift & 15) + (high[l] >> group & 1) * 16;
      y[group * 32 + l] = dl * static_cast<float>(quant) - ml;
    }
  }
}

// low 4 bits [128] | high 2 bits [64] | scales i8 [16] | d f16. Two halves of 128; in each, four runs of 32: runs 0 and 1 in the
// low nibbles of 64 bytes, 2 and 3 in the high ones; run r's high bits at bit 2r of 32 bytes.
void q6_k(const uint8_t* b, float* y) {
  const float d = half_at(b + 208);
  for (int run = 0; run < 8; ++run) {
    const int half = run / 4, r = run % 4;
    const uint8_t *low = b + half * 64 + r % 2 * 32, *high = b + 128 + half * 32, *scales = b + 192 + run * 2;
    for (int l = 0; l < 32; ++l) {
      const int quant = ((low[l] >> r / 2 * 4 & 15) | (high[l] >> r * 2 & 3) << 4) - 32;
      y[run * 32 + l] = d * static_cast<float>(i8_at(scales + l / 16)) * static_cast<float>(quant);
    }
  }
}

constexpr int8_t kIq4Values[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

// d f16 | index [16]
void iq4_nl(const uint8_t* b, float* y) {
  const float d = half_at(b);
  for (int j = 0; j < 16; ++j) {
    y[j] = d * static_cast<float>(kIq4Values[b[2 + j] & 15]);
    y[j + 16] = d * static_cast<float>(kIq4Values[b[2 + j] >> 4]);
  }
}

// d f16 | high 2 bits of 8 scales u16 | low 4 bits [4] | index [128]. Eight groups of 32, each as in IQ4_NL.
void iq4_xs(const uint8_t* b, float* y) {
  const float d = half_at(b);
  const int scales_high = b[2] | b[3] << 8;
  for (int group = 0; group < 8; ++group) {
    const int low4 = b[4 + group / 2] >> group % 2 * 4 & 15, high2 = scales_high >> group * 2 & 3;
    const float dl = d * static_cast<float>((low4 | high2 << 4) - 32);
    const uint8_t* q = b + 8 + group * 16;
    for (int j = 0; j < 16; ++j) {
      y[group * 32 + j] = dl * static_cast<float>(kIq4Values[q[j] & 15]);
      y[group * 32 + j + 16] = dl * static_cast<float>(kIq4Values[q[j] >> 4]);
    }
  }
}

template <class Half>
void halves(const std::byte* in, float* out, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    Half x;
    std::memcpy(&x, in + i * 2, sizeof(x));
    out[i] = to_f32(x);
  }
}

template <void (*decode)(const uint8_t*, float*)>
void blocks(DTypeInfo info, const std::byte* in, float* out, int64_t n) {
  const auto* b = reinterpret_cast<const uint8_t*>(in);
  for (int64_t i = 0; i < n; i += info.block_size, b += info.block_bytes) decode(b, out + i);
}

}  // namespace

void dequantize(DType dtype, const std::byte* in, float* out, int64_t n) {
  const DTypeInfo info = dtype_info(dtype);
  CHECK(n % info.block_size == 0);
  switch (dtype) {
    case DType::kF32:
      if (n > 0) std::memcpy(out, in, static_cast<size_t>(n) * 4);
      return;
    case DType::kF16: return halves<f16>(in, out, n);
    case DType::kBF16: return halves<bf16>(in, out, n);
    case DType::kQ4_0: return blocks<q4_0>(info, in, out, n);
    case DType::kQ4_1: return blocks<q4_1>(info, in, out, n);
    case DType::kQ5_0: return blocks<q5_0>(info, in, out, n);
    case DType::kQ5_1: return blocks<q5_1>(info, in, out, n);
    case DType::kQ8_0: return blocks<q8_0>(info, in, out, n);
    case DType::kQ2_K: return blocks<q2_k>(info, in, out, n);
    case DType::kQ3_K: return blocks<q3_k>(info, in, out, n);
    case DType::kQ4_K: return blocks<q4_k>(info, in, out, n);
    case DType::kQ5_K: return blocks<q5_k>(info, in, out, n);
    case DType::kQ6_K: return blocks<q6_k>(info, in, out, n);
    case DType::kIQ4_NL: return blocks<iq4_nl>(info, in, out, n);
    case DType::kIQ4_XS: return blocks<iq4_xs>(info, in, out, n);
    case DType::kF8_E4M3:
    case DType::kF8_E8M0:
    case DType::kI8: break;
  }
  CHECK(is_self_contained(dtype));
}

}  // namespace deepinfer
