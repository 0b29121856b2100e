// The mixture-of-experts sublayer of a step. Experts run in order of their number over the rows that chose them, so that a row's sum has
// the order of the official code: routed experts ascending, the shared one last.
#include <algorithm>
#include <cmath>

#include "kernels/expert_gate.h"
#include "model/v41_step.h"

namespace deepinfer::model {
namespace {

// hidden = bf16(weight * silu(min(gate, limit)) * clamp(up, limit)).
void gated(const float* gate, const float* up, float weight, float limit, int64_t n, float* out) {
  for (int64_t i = 0; i < n; ++i) {
    const float g = std::min(gate[i], limit), u = std::min(std::max(up[i], -limit), limit);
    out[i] = round_bf16(g / (1.0f + std::exp(-g)) * u * weight);
  }
}

}  // namespace

void V41Step::experts(int32_t layer, Team& team) {
  const V41Block& w = block(layer);
  const int64_t d = p_.config.hidden_size;
  route(layer, team);
  const auto [begin, end] = team.range(num_rows());
  std::fill(b_.expert_sum.begin() + begin * d, b_.expert_sum.begin() + end * d, 0.0f);
  for (size_t e = 0; e < w.experts.size(); ++e) run_expert(w.experts[e], static_cast<int32_t>(e), team);
  run_shared(w.shared, team);
}

void V41Step::route(int32_t layer, Team& team) {
  const V41Config& c = p_.config;
  const V41Block& w = block(layer);
  const int32_t num_experts = static_cast<int32_t>(w.gate.rows), k = c.num_experts_per_tok;
  linear_bf16(b_.x.data(), c.hidden_size, num_rows(), w.gate, false, b_.gate_logits.data(), num_experts, team);
  team.barrier();
  const auto [begin, end] = team.range(num_rows());
  for (int64_t r = begin; r < end; ++r)
    expert_gate({.logits = b_.gate_logits.data() + r * num_experts,
                 .bias = rows_[static_cast<size_t>(r)].image ? w.gate_bias_vl : w.gate_bias,
                 .experts = b_.routes.data() + r * k, .weights = b_.route_weights.data() + r * k,
                 .scratch = b_.scratch[static_cast<size_t>(team.index())].data(), .num_experts = num_experts, .k = k,
                 .temperature = c.gate_temp, .scale = c.routed_scaling_factor, .normalise = c.norm_topk_prob});
  team.barrier();
  if (team.index() == 0) group_choices(num_experts);
  team.barrier();
  observe("router_idx", layer, k, b_.routes.data(), team);
  observe("router_w", layer, k, b_.route_weights.data(), team);
}

// Sorts the rows' choices by expert.
void V41Step::group_choices(int32_t num_experts) {
  const int32_t num_choices = static_cast<int32_t>(num_rows()) * p_.config.num_experts_per_tok;
  const auto first = [&](int32_t expert) -> int32_t& { return b_.expert_first[static_cast<size_t>(expert)]; };
  std::fill_n(b_.expert_first.begin(), num_experts + 1, 0);
  for (int32_t i = 0; i < num_choices; ++i) first(b_.routes[static_cast<size_t>(i)] + 1) += 1;
  for (int32_t e = 0; e < num_experts; ++e) first(e + 1) += first(e);
  // Filling moves each beginning to its end, which is the next one's beginning: one step back puts it right.
  for (int32_t i = 0; i < num_choices; ++i) b_.expert_choices[static_cast<size_t>(first(b_.routes[static_cast<size_t>(i)])++)] = i;
  for (int32_t e = num_experts; e > 0; --e) first(e) = first(e - 1);
  first(0) = 0;
}

// The rows that chose an expert, gathered, through it, and added to their sums.
void V41Step::run_expert(const V41Expert& expert, int32_t number, Team& team) {
  const V41Config& c = p_.config;
  const int64_t d = c.hidden_size, inter = c.moe_intermediate_size, k = c.num_experts_per_tok;
  const int32_t* mine = b_.expert_choices.data() + b_.expert_first[static_cast<size_t>(number)];
  const int64_t count = b_.expert_first[static_cast<size_t>(number) + 1] - b_.expert_first[static_cast<size_t>(number)];
  if (count == 0) return;
  const auto [begin, end] = team.range(count);
  for (int64_t j = begin; j < end; ++j) {
    const int64_t r = mine[j] / k;
    std::copy_n(b_.packed_x.codes.begin() + r * d, d, b_.packed_wide.codes.begin() + j * d);
    std::copy_n(b_.packed_x.scales.begin() + r * d / 32, d / 32, b_.packed_wide.scales.begin() + j * d / 32);
  }
  team.barrier();
  const Fp8Rows x = b_.packed_wide.rows(count);
  linear_fp4(x, expert.w1, b_.expert_in1.data(), inter, team);
  linear_fp4(x, expert.w3, b_.expert_in3.data(), inter, team);
  team.barrier();
  for (int64_t j = begin; j < end; ++j) {
    float* hidden = b_.expert_in1.data() + j * inter;
    gated(hidden, b_.expert_in3.data() + j * inter, b_.route_weights[static_cast<size_t>(mine[j])], c.swiglu_limit, inter, hidden);
    b_.packed_o.pack(hidden, j, inter);
  }
  team.barrier();
  linear_fp4(b_.packed_o.rows(count), expert.w2, b_.expert_out.data(), d, team);
  team.barrier();
  for (int64_t j = begin; j < end; ++j) {
    float* sum = b_.expert_sum.data() + mine[j] / k * d;
    const float* out = b_.expert_out.data() + j * d;
    for (int64_t i = 0; i < d; ++i) sum[i] += out[i];
  }
  team.barrier();
}

void V41Step::run_shared(const V41SharedExpert& shared, Team& team) {
  const V41Config& c = p_.config;
  const int64_t d = c.hidden_size, inter = c.moe_intermediate_size;
  const Fp8Rows x = b_.packed_x.rows(num_rows());
  linear_fp8(x, shared.w1, b_.expert_in1.data(), inter, team);
  linear_fp8(x, shared.w3, b_.expert_in3.data(), inter, team);
  team.barrier();
  const auto [begin, end] = team.range(num_rows());
  for (int64_t r = begin; r < end; ++r) {
    float* hidden = b_.expert_in1.data() + r * inter;
    gated(hidden, b_.expert_in3.data() + r * inter, 1.0f, c.swiglu_limit, inter, hidden);
    b_.packed_o.pack(hidden, r, inter);
  }
  team.barrier();
  linear_fp8(b_.packed_o.rows(num_rows()), shared.w2, b_.expert_out.data(), d, team);
  team.barrier();
  for (int64_t r = begin; r < end; ++r)
    for (int64_t i = 0; i < d; ++i) {
      const size_t at = static_cast<size_t>(r * d + i);
      b_.y[at] = round_bf16(b_.expert_sum[at] + b_.expert_out[at]);
    }
  team.barrier();
}

}  // namespace deepinfer::model
