#include <cmath>
#include <vector>

#include "base/half.h"
#include "kernels/attention.h"
#include "kernels/kv_store.h"

namespace deepinfer::ref {

void attention_row(const AttentionRowParams& p) {
  std::vector<double> weight(static_cast<size_t>(p.num_keys));
  double max = -INFINITY, sum = 0;
  for (int64_t j = p.first_key; j < p.num_keys; ++j) {
    double dot = 0;
    for (int64_t i = 0; i < p.head_dim; ++i) dot += static_cast<double>(p.query[i]) * p.keys[j * p.head_dim + i];
    weight[static_cast<size_t>(j)] = dot * p.scale;
    max = std::max(max, dot * p.scale);
  }
  for (int64_t j = p.first_key; j < p.num_keys; ++j) sum += weight[static_cast<size_t>(j)] = std::exp(weight[static_cast<size_t>(j)] - max);
  for (int64_t i = 0; i < p.head_dim; ++i) {
    double value = 0;
    for (int64_t j = p.first_key; j < p.num_keys; ++j) value += weight[static_cast<size_t>(j)] * p.values[j * p.head_dim + i];
    p.out[i] = static_cast<float>(value / sum);
  }
}

void kv_load(const KvShape& shape, const std::byte* head_block, int32_t slot, float* key, float* value) {
  const int64_t u = 4 / shape.number_bytes();
  const auto number = [&](const std::byte* panel, int64_t index) -> float {
    switch (shape.format) {
      case KvFormat::kF32: return reinterpret_cast<const float*>(panel)[index];
      case KvFormat::kBf16: return to_f32(reinterpret_cast<const bf16*>(panel)[index]);
      case KvFormat::kQ8: return reinterpret_cast<const int8_t*>(panel)[index];
    }
    return 0;
  };
  const bool scaled = shape.format == KvFormat::kQ8;
  const float key_scale = scaled ? reinterpret_cast<const float*>(head_block + shape.key_scales_offset())[slot] : 1;
  const float value_scale = scaled ? reinterpret_cast<const float*>(head_block + shape.value_scales_offset())[slot] : 1;
  for (int64_t i = 0; i < shape.head_dim; ++i) {
    key[i] = key_scale * number(head_block, (i / u * 32 + slot) * u + i % u);
    const std::byte* panel = head_block + shape.values_offset() + i / 32 * shape.value_panel_bytes();
    value[i] = value_scale * number(panel, (slot / u * 32 + i % 32) * u + slot % u);
  }
}

}  // namespace deepinfer::ref
