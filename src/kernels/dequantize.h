// Block formats to float, exactly as ggml defines them (bit for bit): the reference that every packed kernel is tested against,
// and the way embedding rows are read.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/dtype.h"

namespace deepinfer {

// in: row_bytes(dtype, n) bytes, no alignment needed; out: [n] floats. n is a multiple of the block size.
void dequantize(DType dtype, const std::byte* in, float* out, int64_t n);

}  // namespace deepinfer
