// The numbers of the GGUF format, shared by its reader and its writer.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "kernels/dtype.h"

namespace deepinfer::model {

constexpr uint32_t kGgufMagic = 0x46554747;  // "GGUF"
constexpr uint64_t kGgufDefaultAlignment = 32;

enum class GgufValueType : uint32_t {
  kU8 = 0,
  kI8 = 1,
  kU16 = 2,
  kI16 = 3,
  kU32 = 4,
  kI32 = 5,
  kF32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kU64 = 10,
  kI64 = 11,
  kF64 = 12,
};

// Bytes of a value; 0 for strings, arrays and unknown types.
// clang-format off
constexpr uint64_t gguf_value_bytes(uint32_t type) {
  switch (static_cast<GgufValueType>(type)) {
    case GgufValueType::kU8: case GgufValueType::kI8: case GgufValueType::kBool: return 1;
    case GgufValueType::kU16: case GgufValueType::kI16: return 2;
    case GgufValueType::kU32: case GgufValueType::kI32: case GgufValueType::kF32: return 4;
    case GgufValueType::kU64: case GgufValueType::kI64: case GgufValueType::kF64: return 8;
    case GgufValueType::kString: case GgufValueType::kArray: return 0;
  }
  return 0;
}
// clang-format on

// A tensor type of the format. Types without a dtype are well formed but not computed with here.
struct GgufTensorType {
  uint32_t id;
  std::string_view name;
  int32_t block_size, block_bytes;
  std::optional<DType> dtype;
};

// Null: never assigned. `block_size` 0: assigned once and removed from the format since.
const GgufTensorType* find_gguf_tensor_type(uint32_t id);
uint32_t gguf_tensor_type_id(DType dtype);

}  // namespace deepinfer::model
