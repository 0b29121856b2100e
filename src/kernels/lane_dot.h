// The dot product of the portable kernels: eight partial sums, which a compiler can keep in vector registers, added in one fixed order.
// Its bits depend on the numbers alone.
#pragma once

#include <cstdint>

#include "base/half.h"

namespace deepinfer {

inline float lane_value(float x) { return x; }
inline float lane_value(bf16 x) { return to_f32(x); }

// sum of a[i] * b[i], i < n, in f32.
template <class B>
inline float lane_dot(const float* a, const B* b, int64_t n) {
  float lanes[8] = {}, tail = 0;
  int64_t i = 0;
  for (; i + 8 <= n; i += 8)
    for (int k = 0; k < 8; ++k) lanes[k] += a[i + k] * lane_value(b[i + k]);
  for (; i < n; ++i) tail += a[i] * lane_value(b[i]);
  const float sum = ((lanes[0] + lanes[4]) + (lanes[1] + lanes[5])) + ((lanes[2] + lanes[6]) + (lanes[3] + lanes[7]));
  return n % 8 == 0 ? sum : tail + sum;
}

}  // namespace deepinfer
