#include "kernels/kv_store.h"

#include <cmath>
#include <cstring>

#include "base/check.h"
#include "base/half.h"

namespace deepinfer {
namespace {

struct Bf16Number {
  static constexpr int kUnpack = 2;
  using Stored = uint16_t;
  Stored operator()(float x) const { return to_bf16(x).bits; }
};
struct F32Number {
  static constexpr int kUnpack = 1;
  using Stored = float;
  Stored operator()(float x) const { return x; }
};
struct Q8Number {
  static constexpr int kUnpack = 4;
  using Stored = int8_t;
  float inverse;
  Stored operator()(float x) const { return inverse == 0 ? int8_t{0} : static_cast<int8_t>(std::lrintf(x * inverse)); }
};

// Number i of token `slot` in a panel of n terms over tokens.
template <class Number>
void store_key(const float* key, int32_t head_dim, int32_t slot, Number number, std::byte* panel) {
  constexpr int u = Number::kUnpack;
  auto* out = reinterpret_cast<typename Number::Stored*>(panel);
  for (int32_t i = 0; i < head_dim; ++i) out[(i / u * 32 + slot) * u + i % u] = number(key[i]);
}
template <class Number>
void store_value(const float* value, int32_t head_dim, int32_t slot, Number number, std::byte* panels) {
  constexpr int u = Number::kUnpack;
  auto* out = reinterpret_cast<typename Number::Stored*>(panels) + slot / u * 32 * u + slot % u;
  for (int32_t i = 0; i < head_dim; ++i) out[i / 32 * 32 * kKvBlockTokens + i % 32 * u] = number(value[i]);
}

// A row's scale, and the number that quantises by it. What is not finite makes the scale NaN, so that it shows in the result.
Q8Number scale_row(const float* x, int32_t n, float* scale) {
  float largest = 0;
  bool finite = true;
  for (int32_t i = 0; i < n; ++i) {
    finite = finite && std::isfinite(x[i]);
    largest = std::fmax(largest, std::fabs(x[i]));
  }
  if (largest < 1e-30f) largest = 0;  // 127 / largest could overflow
  *scale = finite ? largest / 127 : NAN;
  return {finite && largest > 0 ? 127 / largest : 0};
}

}  // namespace

void kv_store(const KvShape& shape, const float* key, const float* value, int32_t slot, std::byte* head_block) {
  DCHECK(slot >= 0);
  DCHECK(slot < kKvBlockTokens);
  if (slot == 0) std::memset(head_block, 0, static_cast<size_t>(shape.head_block_bytes()));
  std::byte* values = head_block + shape.values_offset();
  switch (shape.format) {
    case KvFormat::kBf16:
      store_key(key, shape.head_dim, slot, Bf16Number{}, head_block);
      store_value(value, shape.head_dim, slot, Bf16Number{}, values);
      return;
    case KvFormat::kF32:
      store_key(key, shape.head_dim, slot, F32Number{}, head_block);
      store_value(value, shape.head_dim, slot, F32Number{}, values);
      return;
    case KvFormat::kQ8: {
      auto* key_scales = reinterpret_cast<float*>(head_block + shape.key_scales_offset());
      auto* value_scales = reinterpret_cast<float*>(head_block + shape.value_scales_offset());
      store_key(key, shape.head_dim, slot, scale_row(key, shape.head_dim, key_scales + slot), head_block);
      store_value(value, shape.head_dim, slot, scale_row(value, shape.head_dim, value_scales + slot), values);
      return;
    }
  }
}

void query_store(const float* query, int32_t head_dim, int32_t padded_dim, QueryFormat format, std::byte* out) {
  if (format == QueryFormat::kF32) {
    std::memcpy(out, query, sizeof(float) * static_cast<size_t>(head_dim));
    std::memset(out + sizeof(float) * static_cast<size_t>(head_dim), 0, sizeof(float) * static_cast<size_t>(padded_dim - head_dim));
    return;
  }
  auto* numbers = reinterpret_cast<uint16_t*>(out);
  for (int32_t i = 0; i < padded_dim; ++i) numbers[i] = i < head_dim ? to_bf16(query[i]).bits : uint16_t{0};
}

}  // namespace deepinfer
