#include "model/gguf_types.h"

#include "base/check.h"

namespace deepinfer::model {
namespace {

constexpr GgufTensorType own(uint32_t id, DType dtype) {
  const DTypeInfo info = dtype_info(dtype);
  return {id, info.name, info.block_size, info.block_bytes, dtype};
}
constexpr GgufTensorType foreign(uint32_t id, std::string_view name, int32_t block_size, int32_t block_bytes) {
  return {id, name, block_size, block_bytes, std::nullopt};
}
constexpr GgufTensorType removed(uint32_t id, std::string_view name) { return {id, name, 0, 0, std::nullopt}; }

// clang-format off
constexpr GgufTensorType kTypes[] = {
    own(0, DType::kF32), own(1, DType::kF16), own(2, DType::kQ4_0), own(3, DType::kQ4_1), removed(4, "Q4_2"), removed(5, "Q4_3"),
    own(6, DType::kQ5_0), own(7, DType::kQ5_1), own(8, DType::kQ8_0), foreign(9, "Q8_1", 32, 36), own(10, DType::kQ2_K),
    own(11, DType::kQ3_K), own(12, DType::kQ4_K), own(13, DType::kQ5_K), own(14, DType::kQ6_K), foreign(15, "Q8_K", 256, 292),
    foreign(16, "IQ2_XXS", 256, 66), foreign(17, "IQ2_XS", 256, 74), foreign(18, "IQ3_XXS", 256, 98), foreign(19, "IQ1_S", 256, 50),
    own(20, DType::kIQ4_NL), foreign(21, "IQ3_S", 256, 110), foreign(22, "IQ2_S", 256, 82), own(23, DType::kIQ4_XS),
    foreign(24, "I8", 1, 1), foreign(25, "I16", 1, 2), foreign(26, "I32", 1, 4), foreign(27, "I64", 1, 8), foreign(28, "F64", 1, 8),
    foreign(29, "IQ1_M", 256, 56), own(30, DType::kBF16), removed(31, "Q4_0_4_4"), removed(32, "Q4_0_4_8"), removed(33, "Q4_0_8_8"),
    foreign(34, "TQ1_0", 256, 54), foreign(35, "TQ2_0", 256, 66), removed(36, "IQ4_NL_4_4"), removed(37, "IQ4_NL_4_8"),
    removed(38, "IQ4_NL_8_8"), foreign(39, "MXFP4", 32, 17),
    foreign(40, "NVFP4", 64, 36), foreign(41, "Q1_0", 128, 18), foreign(42, "Q2_0", 64, 18),
};
// clang-format on

}  // namespace

const GgufTensorType* find_gguf_tensor_type(uint32_t id) {
  for (const GgufTensorType& type : kTypes) {
    if (type.id == id) return &type;
  }
  return nullptr;
}

uint32_t gguf_tensor_type_id(DType dtype) {
  for (const GgufTensorType& type : kTypes) {
    if (type.dtype == dtype) return type.id;
  }
  CHECK(!"every dtype has a type in GGUF");
}

}  // namespace deepinfer::model
