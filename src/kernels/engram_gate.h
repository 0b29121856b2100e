// How Engram's memory enters the residual streams (model.md 2.6): a gate per stream from the agreement of stream and key.
#pragma once

#include <cstdint>

#include "base/half.h"
#include "kernels/linear.h"

namespace deepinfer {

struct EngramGateParams {
  const float* key;        // [4, hidden], bf16 values
  const float* value;      // [hidden], bf16 values
  const bf16* q_weight;    // [4, hidden]
  const bf16* k_weight;    // [4, hidden]
  float* streams;          // [4, hidden], in place: X_i += gate_i * value, rounded to bf16
  int32_t hidden;
  float eps;               // of both norms
};

// dot_i = sum_c X_ic qw_ic kw_ic K_ic / (rms(X_i) rms(K_i) sqrt(hidden)); gate_i = sigmoid(sign(dot_i) sqrt(max(|dot_i|, 1e-6))).
// One token, on the calling thread.
void engram_gate(const EngramGateParams& p, Isa isa);

namespace ref {
void engram_gate(const EngramGateParams& p);  // sums in double
}

}  // namespace deepinfer
