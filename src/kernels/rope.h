// Rotary position embedding (Su et al. 2021): pair i of a head at position p is rotated by the angle p * frequency[i].
// Angles are computed in float64: in float32 the position 2,499 alone costs 2e-4 of a logit. They are computed for the rows of a
// step, once for all layers and heads; the table over all positions that lost would be 64 MB at a context of 128k.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/linear.h"

namespace deepinfer {

// cos_sin: [2, frequencies.size()]: the cosines of position * frequencies[i], then the sines, both times magnitude.
void rope_angles(int64_t position, std::span<const double> frequencies, double magnitude, float* cos_sin);

struct RopeParams {
  float* x;              // [num_heads, head_dim], rotated in place
  const float* cos_sin;  // [2, head_dim / 2]
  int64_t num_heads, head_dim;  // head_dim even
  bool interleaved;      // pair i is (2i, 2i + 1); otherwise (i, i + head_dim / 2)
};
// (a, b) becomes (a cos - b sin, b cos + a sin). One row; runs on the calling thread alone.
void rope(const RopeParams& p, Isa isa);

namespace ref {
void rope(const RopeParams& p);
}
namespace cpu {
void rope_portable(const RopeParams& p);
void rope_avx2(const RopeParams& p);
void rope_avx512(const RopeParams& p);
}  // namespace cpu

}  // namespace deepinfer
