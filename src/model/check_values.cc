#include "model/check_values.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>

#include "base/float8.h"
#include "kernels/dequantize.h"

namespace deepinfer::model {
namespace {

constexpr int64_t kChunkBytes = 16 << 20;

// The first of n numbers that is not finite; n: all are.
int64_t first_bad(DType dtype, const std::byte* data, int64_t n, std::vector<float>& numbers) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(data);
  if (dtype == DType::kF8_E8M0) return std::find(bytes, bytes + n, 0xff) - bytes;
  if (dtype == DType::kF8_E4M3) return std::find_if(bytes, bytes + n, [](uint8_t b) { return (b & 0x7f) == 0x7f; }) - bytes;
  if (dtype == DType::kI8) return n;  // packed e2m1 has none
  numbers.resize(static_cast<size_t>(n));
  dequantize(dtype, data, numbers.data(), n);
  return std::find_if(numbers.begin(), numbers.end(), [](float x) { return !std::isfinite(x); }) - numbers.begin();
}

}  // namespace

Result<> check_values(const Checkpoint& checkpoint, const TensorView& tensor) {
  std::vector<float> numbers;
  const DTypeInfo info = dtype_info(tensor.dtype);
  const int64_t blocks = tensor.num_elements() / info.block_size, step = std::max<int64_t>(1, kChunkBytes / (4 * info.block_size));
  for (int64_t block = 0; block < blocks; block += step) {
    const int64_t count = std::min(step, blocks - block);
    TensorView chunk = tensor;
    chunk.data = tensor.data.subspan(static_cast<size_t>(block * info.block_bytes), static_cast<size_t>(count * info.block_bytes));
    const int64_t bad = first_bad(tensor.dtype, chunk.data.data(), count * info.block_size, numbers);
    checkpoint.release(chunk);
    if (bad < count * info.block_size)
      return Error{Code::kCorruption, fmt::format("{}: tensor {} is not finite at element {}", checkpoint.path(), tensor.name, block * info.block_size + bad)};
  }
  return {};
}

Result<> check_values(const Checkpoint& checkpoint) {
  for (const TensorView& tensor : checkpoint.tensors()) DI_TRY(check_values(checkpoint, tensor));
  return {};
}

}  // namespace deepinfer::model
