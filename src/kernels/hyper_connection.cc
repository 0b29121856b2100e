#include "kernels/hyper_connection.h"

#include <cmath>

#include "kernels/cpu/v41_kernels.h"

namespace deepinfer {
namespace {

float sigmoid(float x) { return 1.0f / (1.0f + std::exp(-x)); }

// Four numbers side by side: a row of the mix, so that a step of Sinkhorn is a handful of instructions.
using Row = float __attribute__((vector_size(16)));

float sum(Row x) { return x[0] + x[1] + x[2] + x[3]; }

// Row softmax, + eps, then columns and rows in turn, ending on columns.
void sinkhorn(Row (&c)[4], float eps, int32_t iters) {
  const auto normalise_columns = [&] {
    const Row sums = c[0] + c[1] + c[2] + c[3] + eps;
    for (Row& row : c) row /= sums;
  };
  for (Row& row : c) {
    const float top = std::fmax(std::fmax(row[0], row[1]), std::fmax(row[2], row[3]));
    for (int k = 0; k < 4; ++k) row[k] = std::exp(row[k] - top);
    row = row / sum(row) + eps;
  }
  normalise_columns();
  for (int32_t i = 1; i < iters; ++i) {
    for (Row& row : c) row /= sum(row) + eps;
    normalise_columns();
  }
}

}  // namespace

void hyper_coefficients_of(const float* m, const HyperWeights& w, float hc_eps, int32_t sinkhorn_iters, HyperCoefficients& out) {
  Row comb[4];
  for (int i = 0; i < 4; ++i) {
    out.pre[i] = sigmoid(m[i] * w.scale[0] + w.base[i]) + hc_eps;
    out.post[i] = 2.0f * sigmoid(m[4 + i] * w.scale[1] + w.base[4 + i]);
    for (int k = 0; k < 4; ++k) comb[i][k] = m[8 + 4 * i + k] * w.scale[2] + w.base[8 + 4 * i + k];
  }
  sinkhorn(comb, hc_eps, sinkhorn_iters);
  for (int i = 0; i < 4; ++i)
    for (int k = 0; k < 4; ++k) out.comb[i][k] = comb[i][k];
}

void hyper_dots(const HyperParams& p, const HyperWeights& w, const float* streams, int64_t num_tokens, int32_t begin, int32_t end, float* m, Isa isa) {
  cpu::v41_kernels(isa).hyper_dots(streams, w.fn, kHyperStreams * p.hidden, num_tokens, begin, end, m);
}

void hyper_coefficients(const HyperParams& p, const HyperWeights& w, const float* streams, const float* m, HyperCoefficients& out, Isa isa) {
  const int64_t width = kHyperStreams * p.hidden;
  const float mean = cpu::v41_kernels(isa).sum_of_squares(streams, width) / static_cast<float>(width);
  const float g = 1.0f / std::sqrt(mean + p.norm_eps);
  float scaled[kHyperDots];
  for (int i = 0; i < kHyperDots; ++i) scaled[i] = m[i] * g;
  hyper_coefficients_of(scaled, w, p.hc_eps, p.sinkhorn_iters, out);
}

void hyper_collapse(const HyperParams& p, const float* pre, const float* streams, float* u, Isa isa) {
  cpu::v41_kernels(isa).hyper_collapse_row(pre, streams, p.hidden, u);
}

void hyper_expand(const HyperParams& p, const HyperCoefficients& c, const float* y, int64_t begin, int64_t end, float* streams, Isa isa) {
  cpu::v41_kernels(isa).hyper_expand_row(c, y, p.hidden, begin, end, streams);
}

}  // namespace deepinfer
