// Manifold-constrained hyper-connections (mHC): a token's residual is four streams that each sublayer reads as a weighted sum and
// writes through a doubly stochastic mix (model.md 2.1, 2.4). Coefficients stay in f32; streams and sums are rounded to bf16.
// All threads of the team call together; rows are split over the team; no barrier at the end.
#pragma once

#include <cstdint>

#include "kernels/team.h"

namespace deepinfer {

constexpr int32_t kHyperStreams = 4;

struct HyperCoefficients {
  float pre[kHyperStreams];
  float post[kHyperStreams];
  float comb[kHyperStreams][kHyperStreams];  // comb[j][k]: how much of stream j goes into stream k
};

struct HyperWeights {
  const float* fn;     // [24, 4 * hidden]: rows 0..3 pre, 4..7 post, 8 + 4j + k comb
  const float* base;   // [24]
  const float* scale;  // [3]: pre, post, comb
};

struct HyperParams {
  int64_t num_rows, hidden;
  float norm_eps;  // of the RMS over the 4 * hidden numbers of a token
  float hc_eps;    // added to pre, and in every Sinkhorn step
  int32_t sinkhorn_iters;
};

// streams: [num_rows, 4, hidden]; out: [num_rows].
void hyper_coefficients(const HyperParams& p, const HyperWeights& w, const float* streams, HyperCoefficients* out, Team& team);

// The coefficients of one token from the 24 products m = fn v / rms(v).
void hyper_coefficients_of(const float* m, const HyperWeights& w, float hc_eps, int32_t sinkhorn_iters, HyperCoefficients& out);

// mHC-in: u[t] = bf16(sum_i pre[t][i] * streams[t][i]). pre: [num_rows, 4] with row stride pre_stride floats.
void hyper_collapse(const HyperParams& p, const float* pre, int64_t pre_stride, const float* streams, float* u, Team& team);

// mHC-out, in place: streams'[t][k] = bf16(post_k * y[t] + sum_j comb[j][k] * streams[t][j]).
void hyper_expand(const HyperParams& p, const HyperCoefficients* c, const float* y, float* streams, Team& team);

}  // namespace deepinfer
