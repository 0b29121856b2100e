// Float to the formats that tools write: F32, F16, BF16, Q8_0 and Q4_0, rounded as ggml's reference quantisers do (in float,
// product and sum rounded one after the other). Not for the hot path: activations are quantised by the kernels of linear.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/dtype.h"

namespace deepinfer {

constexpr bool can_quantize(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16 || dtype == DType::kQ8_0 || dtype == DType::kQ4_0;
}

// in: [n] finite floats, n a multiple of the block size; out: row_bytes(dtype, n) bytes, no alignment needed. CHECKs
// can_quantize.
void quantize(DType dtype, const float* in, std::byte* out, int64_t n);

}  // namespace deepinfer
