#include "kernels/hyper_connection.h"

#include <algorithm>
#include <cmath>

#include "base/half.h"
#include "kernels/lane_dot.h"

namespace deepinfer {
namespace {

constexpr int kNumCoefficients = 24;

float sigmoid(float x) { return 1.0f / (1.0f + std::exp(-x)); }
float round_bf16(float x) { return to_f32(to_bf16(x)); }

void normalise_rows(float (&c)[4][4], float eps) {
  for (auto& row : c) {
    const float sum = row[0] + row[1] + row[2] + row[3] + eps;
    for (float& x : row) x /= sum;
  }
}

void normalise_columns(float (&c)[4][4], float eps) {
  for (int k = 0; k < 4; ++k) {
    const float sum = c[0][k] + c[1][k] + c[2][k] + c[3][k] + eps;
    for (auto& row : c) row[k] /= sum;
  }
}

// Row softmax, + eps, then columns and rows in turn, ending on columns.
void sinkhorn(float (&c)[4][4], float eps, int32_t iters) {
  for (auto& row : c) {
    const float top = std::max(std::max(row[0], row[1]), std::max(row[2], row[3]));
    float sum = 0;
    for (float& x : row) sum += x = std::exp(x - top);
    for (float& x : row) x = x / sum + eps;
  }
  normalise_columns(c, eps);
  for (int32_t i = 1; i < iters; ++i) {
    normalise_rows(c, eps);
    normalise_columns(c, eps);
  }
}

}  // namespace

void hyper_coefficients_of(const float* m, const HyperWeights& w, float hc_eps, int32_t sinkhorn_iters, HyperCoefficients& out) {
  for (int i = 0; i < 4; ++i) {
    out.pre[i] = sigmoid(m[i] * w.scale[0] + w.base[i]) + hc_eps;
    out.post[i] = 2.0f * sigmoid(m[4 + i] * w.scale[1] + w.base[4 + i]);
    for (int k = 0; k < 4; ++k) out.comb[i][k] = m[8 + 4 * i + k] * w.scale[2] + w.base[8 + 4 * i + k];
  }
  sinkhorn(out.comb, hc_eps, sinkhorn_iters);
}

void hyper_coefficients(const HyperParams& p, const HyperWeights& w, const float* streams, HyperCoefficients* out, Team& team) {
  const int64_t width = kHyperStreams * p.hidden;
  const auto [begin, end] = team.range(p.num_rows);
  for (int64_t t = begin; t < end; ++t) {
    const float* v = streams + t * width;
    const float g = 1.0f / std::sqrt(lane_dot(v, v, width) / static_cast<float>(width) + p.norm_eps);
    float m[kNumCoefficients];
    for (int i = 0; i < kNumCoefficients; ++i) m[i] = lane_dot(w.fn + i * width, v, width) * g;
    hyper_coefficients_of(m, w, p.hc_eps, p.sinkhorn_iters, out[t]);
  }
}

void hyper_collapse(const HyperParams& p, const float* pre, int64_t pre_stride, const float* streams, float* u, Team& team) {
  const auto [begin, end] = team.range(p.num_rows);
  for (int64_t t = begin; t < end; ++t) {
    const float* a = pre + t * pre_stride;
    const float* x = streams + t * kHyperStreams * p.hidden;
    for (int64_t i = 0; i < p.hidden; ++i)
      u[t * p.hidden + i] = round_bf16(a[0] * x[i] + a[1] * x[p.hidden + i] + a[2] * x[2 * p.hidden + i] + a[3] * x[3 * p.hidden + i]);
  }
}

void hyper_expand(const HyperParams& p, const HyperCoefficients* c, const float* y, float* streams, Team& team) {
  const auto [begin, end] = team.range(p.num_rows);
  for (int64_t t = begin; t < end; ++t) {
    const auto& [pre, post, comb] = c[t];
    float* x = streams + t * kHyperStreams * p.hidden;
    for (int64_t i = 0; i < p.hidden; ++i) {
      const float in[4] = {x[i], x[p.hidden + i], x[2 * p.hidden + i], x[3 * p.hidden + i]};
      for (int k = 0; k < kHyperStreams; ++k) {
        const float mixed = comb[0][k] * in[0] + comb[1][k] * in[1] + comb[2][k] * in[2] + comb[3][k] * in[3];
        x[k * p.hidden + i] = round_bf16(post[k] * y[t * p.hidden + i] + mixed);
      }
    }
  }
}

}  // namespace deepinfer
