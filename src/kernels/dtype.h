// The number formats that weights come in. Block formats are those of GGUF (ggml): a row is a whole number of blocks, a block is
// `block_size` numbers in `block_bytes` bytes.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace deepinfer {

enum class DType : uint8_t {
  kF32, kF16, kBF16,
  kQ4_0, kQ4_1, kQ5_0, kQ5_1, kQ8_0,
  kQ2_K, kQ3_K, kQ4_K, kQ5_K, kQ6_K,
  kIQ4_NL, kIQ4_XS,
  // DeepSeek's native checkpoints: parts of a matrix whose scales are a tensor of their own (kernels/block_linear.h). kI8 holds two
  // packed e2m1. Neither dequantize() nor Linear knows them.
  kF8_E4M3, kF8_E8M0, kI8,
};

struct DTypeInfo {
  std::string_view name;  // as GGUF tools print it: "Q4_K"
  int32_t block_size;     // numbers
  int32_t block_bytes;
};

constexpr DTypeInfo dtype_info(DType dtype) {
  switch (dtype) {
    case DType::kF32: return {"F32", 1, 4};
    case DType::kF16: return {"F16", 1, 2};
    case DType::kBF16: return {"BF16", 1, 2};
    case DType::kQ4_0: return {"Q4_0", 32, 18};
    case DType::kQ4_1: return {"Q4_1", 32, 20};
    case DType::kQ5_0: return {"Q5_0", 32, 22};
    case DType::kQ5_1: return {"Q5_1", 32, 24};
    case DType::kQ8_0: return {"Q8_0", 32, 34};
    case DType::kQ2_K: return {"Q2_K", 256, 84};
    case DType::kQ3_K: return {"Q3_K", 256, 110};
    case DType::kQ4_K: return {"Q4_K", 256, 144};
    case DType::kQ5_K: return {"Q5_K", 256, 176};
    case DType::kQ6_K: return {"Q6_K", 256, 210};
    case DType::kIQ4_NL: return {"IQ4_NL", 32, 18};
    case DType::kIQ4_XS: return {"IQ4_XS", 256, 136};
    case DType::kF8_E4M3: return {"F8_E4M3", 1, 1};
    case DType::kF8_E8M0: return {"F8_E8M0", 1, 1};
    case DType::kI8: return {"I8", 1, 1};
  }
  return {"?", 1, 1};
}

// Whether the format stands for numbers by itself, so that dequantize() and Linear take it.
constexpr bool is_self_contained(DType dtype) { return dtype < DType::kF8_E4M3; }

// Bytes of a row of `cols` numbers; cols is a multiple of the block size.
constexpr int64_t row_bytes(DType dtype, int64_t cols) {
  return cols / dtype_info(dtype).block_size * dtype_info(dtype).block_bytes;
}

}  // namespace deepinfer
