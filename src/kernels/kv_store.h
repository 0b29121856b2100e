// Writing keys and values into their blocks, and queries into the form that attention reads. Scalar code: a token costs head_dim
// scattered numbers, far less than the products that made it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/kv_format.h"

namespace deepinfer {

// key, value: [head_dim]. slot: the token's place in the block, 0..31. The token at slot 0 clears the head block first, so that no
// leftover of another sequence (which may be NaN) meets a masked weight of zero. A block is written by one thread at a time.
void kv_store(const KvShape& shape, const float* key, const float* value, int32_t slot, std::byte* head_block);

// query: [head_dim] to [padded_dim] floats or bf16.
enum class QueryFormat : uint8_t { kF32, kBf16 };
void query_store(const float* query, int32_t head_dim, int32_t padded_dim, QueryFormat format, std::byte* out);

namespace ref {
// The token's key and value as the cache holds them.
void kv_load(const KvShape& shape, const std::byte* head_block, int32_t slot, float* key, float* value);
}

}  // namespace deepinfer
