// The mixture-of-experts sublayer of a step, in three regions between barriers: the router; hidden activations of every chosen expert; their
// second products, whose threads each own some columns of the stream and add the experts in the order of the official code: routed ones
// by ascending number, the shared one last.
#include <algorithm>
#include <cmath>

#include "kernels/block_quantize.h"
#include "kernels/expert_gate.h"
#include "kernels/v41_rows.h"
#include "model/v41_step.h"

namespace deepinfer::model {

void V41Step::experts(int32_t layer, Team& team) {
  route(layer, team);
  const auto num_experts = static_cast<int32_t>(block(layer).experts.size());
  for (int32_t first = 0, end = 0; first < num_experts; first = end) {
    end = end_of_turn(first);
    if (first > 0 && team.index() == 0) want_experts(layer, first);
    hidden_units(layer, first, end, team);
    team.barrier();
    output_units(layer, first, end, team);
    team.barrier();
  }
}

// All experts are computed in one turn, unless memory holds fewer than were chosen.
int32_t V41Step::end_of_turn(int32_t first_expert) const {
  const auto num_experts = static_cast<int32_t>(b_.expert_first.size()) - 1;
  if (!bounds_experts()) return num_experts;
  int32_t end = first_expert;
  for (int32_t room = p_.memory->experts_at_a_time(); end < num_experts; ++end)
    if (choices_of(static_cast<size_t>(end)) > 0 && room-- == 0) break;
  return end;
}

// Asks for the chosen experts from one on; on one thread.
void V41Step::want_experts(int32_t layer, int32_t first_expert) {
  int32_t* out = b_.wanted_experts.data();
  for (size_t e = static_cast<size_t>(first_expert); e + 1 < b_.expert_first.size(); ++e)
    if (choices_of(e) > 0) *out++ = static_cast<int32_t>(e);
  p_.memory->want_experts(layer, {b_.wanted_experts.data(), out});
}

void V41Step::route(int32_t layer, Team& team) {
  const V41Config& c = p_.config;
  const V41Block& w = block(layer);
  const int32_t num_experts = static_cast<int32_t>(w.gate.rows), k = c.num_experts_per_tok;
  linear(rows16(b_.x16, c.hidden_size), w.gate, {b_.gate_logits.data(), num_experts, false}, p_.isa, team);
  team.barrier();
  weigh_shared_row(w.hc_ffn, team.size() - 1 - team.index(), team);  // the last threads wait here for the first
  float* scratch = scratch_of(team).floats.data();
  if (num_rows() > team.size()) {
    const auto [begin, end] = team.range(num_rows());
    for (int64_t r = begin; r < end; ++r) route_row(layer, r, scratch);
    team.barrier();
  } else if (team.index() == 0) {  // cheaper than the barrier
    for (int64_t r = 0; r < num_rows(); ++r) route_row(layer, r, scratch);
  }
  if (team.index() == 0) {
    group_choices(num_experts);
    if (bounds_experts()) want_experts(layer, 0);  // while the others wait
  }
  team.barrier();
  observe("router_idx", layer, k, b_.routes.data(), team);
  observe("router_w", layer, k, b_.route_weights.data(), team);
}

void V41Step::route_row(int32_t layer, int64_t r, float* scratch) {
  const V41Config& c = p_.config;
  const V41Block& w = block(layer);
  const int32_t num_experts = static_cast<int32_t>(w.gate.rows), k = c.num_experts_per_tok;
  expert_gate({.logits = b_.gate_logits.data() + r * num_experts, .bias = rows_[static_cast<size_t>(r)].image ? w.gate_bias_vl : w.gate_bias,
               .experts = b_.routes.data() + r * k, .weights = b_.route_weights.data() + r * k, .scratch = scratch, .num_experts = num_experts,
               .k = k, .temperature = c.gate_temp, .scale = c.routed_scaling_factor, .normalise = c.norm_topk_prob});
}

// Sorts the rows' choices by expert.
void V41Step::group_choices(int32_t num_experts) {
  const int32_t k = p_.config.num_experts_per_tok, num_choices = static_cast<int32_t>(num_rows()) * k;
  const auto first = [&](int32_t expert) -> int32_t& { return b_.expert_first[static_cast<size_t>(expert)]; };
  std::fill_n(b_.expert_first.begin(), num_experts + 1, 0);
  for (int32_t i = 0; i < num_choices; ++i) first(b_.routes[static_cast<size_t>(i)] + 1) += 1;
  for (int32_t e = 0; e < num_experts; ++e) first(e + 1) += first(e);
  // Filling moves each beginning to its end, which is the next one's beginning: one step back puts it right.
  for (int32_t i = 0; i < num_choices; ++i) {
    const auto place = static_cast<size_t>(first(b_.routes[static_cast<size_t>(i)])++);
    b_.expert_choices[place] = i;
    b_.expert_rows[place] = i / k;
  }
  for (int32_t e = num_experts; e > 0; --e) first(e) = first(e - 1);
  first(0) = 0;
}

namespace {

// Hidden activations of one expert: unit `unit` of its 32 outputs for all rows of x.
template <class Matrix>
void hidden_unit(const Bf16Rows& x, const Matrix& w1, const Matrix& w3, int64_t unit, const float* weights, const int32_t* choices, float limit,
                 int64_t unit_rows, float* scratch, bf16* hidden, Isa isa) {
  constexpr int64_t kUnit = 32;
  const Matrix gate_rows = rows_of(w1, unit * kUnit, kUnit), up_rows = rows_of(w3, unit * kUnit, kUnit);
  float *gate = scratch, *up = scratch + unit_rows * kUnit;
  for (int64_t first = 0; first < x.num_rows; first += unit_rows) {
    Bf16Rows part = x;
    part.num_rows = std::min(unit_rows, x.num_rows - first);
    if (x.ids != nullptr) part.ids = x.ids + first;
    else part.values = x.row(first);
    linear(part, gate_rows, 0, kUnit, {gate, kUnit, true}, isa);
    linear(part, up_rows, 0, kUnit, {up, kUnit, true}, isa);
    for (int64_t j = 0; j < part.num_rows; ++j)
      v41_swiglu({.gate = gate + j * kUnit, .up = up + j * kUnit, .weight = weights != nullptr ? weights[choices[first + j]] : 1.0f, .limit = limit,
                  .n = kUnit, .out = hidden + (first + j) * w1.rows + unit * kUnit},
                 isa);
  }
}

}  // namespace

// The threads share all units of all experts that were chosen, by weight: a unit costs its rows, and reading its weights.
void V41Step::hidden_units(int32_t layer, int32_t first_expert, int32_t end_expert, Team& team) {
  const V41Config& c = p_.config;
  const V41Block& w = block(layer);
  const int64_t d = c.hidden_size, inter = c.moe_intermediate_size, units = inter / kUnit, k = c.num_experts_per_tok;
  constexpr int64_t kReading = 8;  // rows' worth
  const auto cost = [](int64_t rows) { return rows == 0 ? 0 : rows + kReading; };
  const auto from = static_cast<size_t>(first_expert), to = static_cast<size_t>(end_expert);
  const int64_t shared_rows = to == w.experts.size() ? num_rows() : 0;  // the shared expert is the last
  int64_t total = cost(shared_rows) * units;
  for (size_t e = from; e < to; ++e) total += cost(choices_of(e)) * units;
  const auto [begin, end] = team.range(total);
  float* scratch = scratch_of(team).unit.data();
  int64_t at = 0;
  const auto share = [&](int64_t rows, const auto& run) {  // those units of an expert that begin in this thread's range
    for (int64_t unit = 0; unit < units; ++unit, at += cost(rows))
      if (at >= begin && at < end) run(unit);
  };
  for (size_t e = from; e < to; ++e) {
    const int64_t first = b_.expert_first[e], rows = choices_of(e);
    if (rows == 0) continue;
    const Bf16Rows x{b_.x8.data(), d, rows, b_.expert_rows.data() + first};
    share(rows, [&](int64_t unit) {
      hidden_unit(x, w.experts[e].w1, w.experts[e].w3, unit, b_.route_weights.data(), b_.expert_choices.data() + first, c.swiglu_limit, kUnitRows,
                  scratch, b_.hidden8.data() + first * inter, p_.isa);
    });
  }
  if (shared_rows == 0) return;
  share(shared_rows, [&](int64_t unit) {
    hidden_unit(rows16(b_.x8, d), w.shared.w1, w.shared.w3, unit, nullptr, nullptr, c.swiglu_limit, kUnitRows, scratch,
                b_.hidden8.data() + num_rows() * k * inter, p_.isa);
  });
}

// y = bf16(the experts' outputs, each a bf16 number, added in order); rounded once the last is in.
void V41Step::output_units(int32_t layer, int32_t first_expert, int32_t end_expert, Team& team) {
  const V41Config& c = p_.config;
  const V41Block& w = block(layer);
  const int64_t d = c.hidden_size, inter = c.moe_intermediate_size, k = c.num_experts_per_tok;
  const auto [first_unit, end_unit] = team.range(d / kUnit);
  const int64_t begin = first_unit * kUnit, end = end_unit * kUnit;
  float* out = scratch_of(team).unit.data();
  if (first_expert == 0)
    for (int64_t r = 0; r < num_rows(); ++r) std::fill(b_.y.begin() + r * d + begin, b_.y.begin() + r * d + end, 0.0f);
  // An expert's hidden rows stay in the cache while its columns pass.
  const auto add = [&](const auto& matrix, int64_t first_hidden, int64_t rows, const int32_t* ids) {
    for (int64_t first = 0; first < rows; first += kUnitRows) {
      const Bf16Rows hidden{b_.hidden8.data() + (first_hidden + first) * inter, inter, std::min(kUnitRows, rows - first)};
      for (int64_t column = begin; column < end; column += kUnitColumns) {
        const int64_t columns = std::min(kUnitColumns, end - column);
        linear(hidden, rows_of(matrix, column, columns), 0, columns, {out, columns, true}, p_.isa);
        for (int64_t j = 0; j < hidden.num_rows; ++j) {
          float* y = b_.y.data() + (ids != nullptr ? ids[first + j] : first + j) * d + column;
          for (int64_t i = 0; i < columns; ++i) y[i] += out[j * columns + i];
        }
      }
    }
  };
  for (size_t e = static_cast<size_t>(first_expert); e < static_cast<size_t>(end_expert); ++e)
    if (choices_of(e) > 0) add(w.experts[e].w2, b_.expert_first[e], choices_of(e), b_.expert_rows.data() + b_.expert_first[e]);
  if (static_cast<size_t>(end_expert) < w.experts.size()) return;
  add(w.shared.w2, num_rows() * k, num_rows(), nullptr);
  for (int64_t r = 0; r < num_rows(); ++r) {
    float* y = b_.y.data() + r * d;
    for (int64_t i = begin; i < end; ++i) y[i] = round_bf16(y[i]);
  }
}

}  // namespace deepinfer::model
