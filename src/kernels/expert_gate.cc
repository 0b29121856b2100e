#include "kernels/expert_gate.h"

#include <cmath>
#include <limits>

namespace deepinfer {

void expert_gate(const ExpertGateParams& p) {
  for (int32_t e = 0; e < p.num_experts; ++e) {
    const float x = p.logits[e] / p.temperature;
    const float softplus = x > 20.0f ? x : std::log1p(std::exp(x));  // above 20 the difference is below a float's resolution
    p.scratch[e] = std::sqrt(softplus);
  }
  float sum = 0;
  for (int32_t i = 0; i < p.k; ++i) {
    int32_t best = -1;
    float best_score = -std::numeric_limits<float>::infinity();
    for (int32_t e = 0; e < p.num_experts; ++e) {
      bool taken = false;
      for (int32_t j = 0; j < i; ++j) taken |= p.experts[j] == e;
      const float score = p.scratch[e] + p.bias[e];
      if (!taken && (best < 0 || score > best_score)) {
        best = e;
        best_score = score;
      }
    }
    p.experts[i] = best;
    p.weights[i] = p.scratch[best];
    sum += p.weights[i];
  }
  if (p.normalise && p.k > 1)
    for (int32_t i = 0; i < p.k; ++i) p.weights[i] /= sum + 1e-20f;
  for (int32_t i = 0; i < p.k; ++i) p.weights[i] *= p.scale;
}

}  // namespace deepinfer
