// Routing of DeepSeek-V4.1's mixture of experts (model.md 2.7): scores sqrt(softplus(logit / temperature)); the top k by score + bias are
// chosen, the bias choosing only; weights are the chosen scores, divided by their sum + 1e-20 (if normalised), times the scale.
#pragma once

#include <cstdint>

namespace deepinfer {

struct ExpertGateParams {
  const float* logits;  // [num_experts]: gate weight times input, f32
  const float* bias;    // [num_experts]
  int32_t* experts;     // [k]: out, highest biased score first, lower number first among equals
  float* weights;       // [k]: out
  float* scratch;       // [num_experts]
  int32_t num_experts, k;
  float temperature, scale;
  bool normalise;       // only with k > 1
};

// One token, on the calling thread.
void expert_gate(const ExpertGateParams& p);

}  // namespace deepinfer
