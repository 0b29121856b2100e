// Manifold-constrained hyper-connections (mHC): a token's residual is four streams that each sublayer reads as a weighted sum and
// writes through a doubly stochastic mix (model.md 2.1, 2.4). Coefficients stay in f32; streams and sums are rounded to bf16.
// Everything else is for one token; all on the calling thread, with sums in one order that the width and the instruction set fix.
#pragma once

#include <cstdint>

#include "kernels/linear.h"

namespace deepinfer {

constexpr int32_t kHyperStreams = 4;
constexpr int32_t kHyperDots = 24;

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
  int64_t hidden;
  float norm_eps;  // of the RMS over the 4 * hidden numbers of a token
  float hc_eps;    // added to pre, and in every Sinkhorn step
  int32_t sinkhorn_iters;
};

// streams: [num_tokens, 4, hidden]. Products [begin, end) of the 24 of every token: m[t, i] = fn[i] . streams[t]; m: [num_tokens, 24].
// Threads may share a token's. Summed in double: much of a sum cancels, what is left goes through 20 rounds of division, and the noise
// of f32 sums would be the largest in the network.
void hyper_dots(const HyperParams& p, const HyperWeights& w, const float* streams, int64_t num_tokens, int32_t begin, int32_t end, float* m, Isa isa);
// The coefficients of a token from all 24.
void hyper_coefficients(const HyperParams& p, const HyperWeights& w, const float* streams, const float* m, HyperCoefficients& out, Isa isa);
// The same from products already divided by the RMS.
void hyper_coefficients_of(const float* m, const HyperWeights& w, float hc_eps, int32_t sinkhorn_iters, HyperCoefficients& out);

// mHC-in: u = bf16(sum_i pre[i] * streams[i]). u: [hidden].
void hyper_collapse(const HyperParams& p, const float* pre, const float* streams, float* u, Isa isa);

// mHC-out, in place, of numbers [begin, end) of each stream: streams'[k] = bf16(post_k * y + sum_j comb[j][k] * streams[j]). y: [hidden].
void hyper_expand(const HyperParams& p, const HyperCoefficients& c, const float* y, int64_t begin, int64_t end, float* streams, Isa isa);

}  // namespace deepinfer
