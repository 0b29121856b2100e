// How keys and values lie in the cache. A block covers kKvBlockTokens tokens of one sequence; in it every layer and KV head has a
// *head block*: a panel of keys, a panel of values for each 32 dimensions, and for kQ8 the scales. A panel is the right operand
// of a product of n terms and 32 results, stored [n / u][32][u] with u numbers to 32 bits (1 float, 2 bf16, 4 int8):
//   keys    [padded_dim / u][32 tokens][u]              q · k of 32 tokens at once
//   values  padded_dim / 32 times [32 / u tokens][32 dimensions][u]   p · v of 32 dimensions at once
//   scales  float [32 tokens] of the keys, float [32] of the values (kQ8 only)
// The layout does not depend on the instruction set, so blocks can be shared, stored and sent. Dimensions from head_dim to padded_dim
// and tokens not yet written are zero or leftovers that are finite.
#pragma once

#include <cstdint>
#include <string_view>

namespace deepinfer {

enum class KvFormat : uint8_t { kBf16, kQ8, kF32 };
constexpr std::string_view kv_format_name(KvFormat format) {
  switch (format) {
    case KvFormat::kBf16: return "bf16";
    case KvFormat::kQ8: return "q8";
    case KvFormat::kF32: return "f32";
  }
  return "?";
}

constexpr int32_t kKvBlockTokens = 32;

struct KvShape {
  KvFormat format = KvFormat::kBf16;
  int32_t num_kv_heads = 0, head_dim = 0;

  constexpr int32_t padded_dim() const { return (head_dim + 31) / 32 * 32; }
  constexpr int64_t number_bytes() const { return format == KvFormat::kF32 ? 4 : format == KvFormat::kBf16 ? 2 : 1; }
  constexpr int64_t value_panel_bytes() const { return number_bytes() * 32 * kKvBlockTokens; }
  // Offsets in a head block.
  constexpr int64_t values_offset() const { return number_bytes() * padded_dim() * kKvBlockTokens; }
  constexpr int64_t key_scales_offset() const { return 2 * values_offset(); }
  constexpr int64_t value_scales_offset() const { return key_scales_offset() + int64_t{4} * kKvBlockTokens; }
  constexpr int64_t head_block_bytes() const {  // a multiple of 64
    return key_scales_offset() + (format == KvFormat::kQ8 ? int64_t{8} * kKvBlockTokens : 0);
  }
  constexpr int64_t layer_bytes() const { return num_kv_heads * head_block_bytes(); }
};

}  // namespace deepinfer
