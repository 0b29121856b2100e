#include "kernels/quantize.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "base/half.h"

namespace deepinfer {
namespace {

constexpr int kBlock = 32;

void put_half(uint8_t* out, float x) {
  const f16 half = to_f16(x);
  std::memcpy(out, &half, sizeof(half));
}

// d f16 | q i8 [32]: d = max |x| / 127, q = x / d to nearest, halves away from zero.
void q8_0(const float* x, uint8_t* out) {
  float max = 0;
  for (int j = 0; j < kBlock; ++j) max = std::max(max, std::fabs(x[j]));
  const float d = max / 127, inverse = d != 0 ? 1 / d : 0;
  put_half(out, d);
  for (int j = 0; j < kBlock; ++j) out[2 + j] = static_cast<uint8_t>(static_cast<int8_t>(std::round(x[j] * inverse)));
}

// d f16 | q [16]: the number of largest magnitude becomes nibble 0 (-8 d), so d has the other sign.
void q4_0(const float* x, uint8_t* out) {
  float largest = 0;
  for (int j = 0; j < kBlock; ++j) {
    if (std::fabs(x[j]) > std::fabs(largest)) largest = x[j];
  }
  const float d = largest / -8, inverse = d != 0 ? 1 / d : 0;
  put_half(out, d);
  const auto nibble = [&](float value) { return std::min(15, static_cast<int>(value * inverse + 8.5f)); };
  for (int j = 0; j < kBlock / 2; ++j) out[2 + j] = static_cast<uint8_t>(nibble(x[j]) | nibble(x[j + kBlock / 2]) << 4);
}

template <void (*encode)(const float*, uint8_t*)>
void blocks(DType dtype, const float* in, std::byte* out, int64_t n) {
  auto* to = reinterpret_cast<uint8_t*>(out);
  for (int64_t i = 0; i < n; i += kBlock, to += dtype_info(dtype).block_bytes) encode(in + i, to);
}

template <auto convert>
void halves(const float* in, std::byte* out, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    const auto half = convert(in[i]);
    std::memcpy(out + i * 2, &half, sizeof(half));
  }
}

}  // namespace

void quantize(DType dtype, const float* in, std::byte* out, int64_t n) {
  CHECK(can_quantize(dtype));
  CHECK(n % dtype_info(dtype).block_size == 0);
  switch (dtype) {
    case DType::kF32:
      if (n > 0) std::memcpy(out, in, static_cast<size_t>(n) * 4);
      return;
    case DType::kF16: return halves<to_f16>(in, out, n);
    case DType::kBF16: return halves<to_bf16>(in, out, n);
    case DType::kQ8_0: return blocks<q8_0>(dtype, in, out, n);
    default: return blocks<q4_0>(dtype, in, out, n);
  }
}

}  // namespace deepinfer
