// The mixture-of-experts sublayer of a step, in three regions between barriers: the router; hidden activations of every chosen expert; their
// second products, whose threads each own some columns of the stream and add the experts in the order of the official code: routed ones
// by ascending number, the shared one last. Hidden activations are computed in any order.
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
    if (first > 0) {
      if (team.index() == 0) want_experts(layer, first);
      team.barrier();
    }
    if (bounds_experts()) hidden_units_as_read(layer, end, team);
    else hidden_units(layer, team);
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
  for (int32_t room = p_.memory->experts()->experts_at_a_time(); end < num_experts; ++end)
    if (choices_of(static_cast<size_t>(end)) > 0 && room-- == 0) break;
  return end;
}

// Asks for the chosen experts from one on, and puts those of the turn in the order in which they will be there; on one thread.
void V41Step::want_experts(int32_t layer, int32_t first_expert) {
  V41ExpertSlots& slots = *p_.memory->experts();
  int32_t* out = b_.wanted_experts.data();
  for (size_t e = static_cast<size_t>(first_expert); e + 1 < b_.expert_first.size(); ++e)
    if (choices_of(e) > 0) *out++ = static_cast<int32_t>(e);
  const std::span<const int32_t> wanted(b_.wanted_experts.data(), out);
  slots.want(layer, wanted);
  const auto turn = wanted.first(std::min(wanted.size(), static_cast<size_t>(slots.experts_at_a_time())));
  b_.turn_experts.resize(turn.size());
  auto front = b_.turn_experts.begin(), back = b_.turn_experts.end();
  for (const int32_t e : turn) {
    if (slots.is_read(layer, e)) *front++ = e;  // asked once: meanwhile others come
    else *--back = e;
  }
  std::reverse(back, b_.turn_experts.end());
}

V41Expert V41Step::expert_of(int32_t layer, size_t e) const {
  return bounds_experts() ? p_.memory->experts()->await(layer, static_cast<int32_t>(e)) : block(layer).experts[e];
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

// Of a routed expert, and of the shared one.
void V41Step::hidden_unit_of(size_t e, const V41Expert& w, int64_t unit, Team& team) {
  const int64_t d = p_.config.hidden_size, first = b_.expert_first[e];
  const Bf16Rows x{b_.x8.data(), d, choices_of(e), b_.expert_rows.data() + first};
  hidden_unit(x, w.w1, w.w3, unit, b_.route_weights.data(), b_.expert_choices.data() + first, p_.config.swiglu_limit, kUnitRows, scratch_of(team).unit.data(),
              b_.hidden8.data() + first * p_.config.moe_intermediate_size, p_.isa);
}

void V41Step::shared_hidden_unit(int32_t layer, int64_t unit, Team& team) {
  const V41SharedExpert& w = block(layer).shared;
  const int64_t first = num_rows() * p_.config.num_experts_per_tok;
  hidden_unit(rows16(b_.x8, p_.config.hidden_size), w.w1, w.w3, unit, nullptr, nullptr, p_.config.swiglu_limit, kUnitRows, scratch_of(team).unit.data(),
              b_.hidden8.data() + first * p_.config.moe_intermediate_size, p_.isa);
}

// The threads share all units of all experts that were chosen, by weight: a unit costs its rows, and reading its weights.
void V41Step::hidden_units(int32_t layer, Team& team) {
  const V41Block& w = block(layer);
  const int64_t units = p_.config.moe_intermediate_size / kUnit;
  constexpr int64_t kReading = 8;  // rows' worth
  const auto cost = [](int64_t rows) { return rows == 0 ? 0 : rows + kReading; };
  int64_t total = cost(num_rows()) * units;
  for (size_t e = 0; e < w.experts.size(); ++e) total += cost(choices_of(e)) * units;
  const auto [begin, end] = team.range(total);
  int64_t at = 0;
  const auto share = [&](int64_t rows, const auto& run) {  // those units of an expert that begin in this thread's range
    for (int64_t unit = 0; unit < units; ++unit, at += cost(rows))
      if (at >= begin && at < end) run(unit);
  };
  for (size_t e = 0; e < w.experts.size(); ++e)
    if (choices_of(e) > 0) share(choices_of(e), [&](int64_t unit) { hidden_unit_of(e, w.experts[e], unit, team); });
  share(num_rows(), [&](int64_t unit) { shared_hidden_unit(layer, unit, team); });
}

// The same where experts are read as they are needed: what is there comes first, and each is shared by all threads, so that none computes alone what has
// come last. Units are dealt out in turn, through all experts.
void V41Step::hidden_units_as_read(int32_t layer, int32_t end_expert, Team& team) {
  const int64_t units = p_.config.moe_intermediate_size / kUnit;
  int64_t unit = team.index();
  const auto share = [&](const auto& run) {
    for (; unit < units; unit += team.size()) run(unit);
    unit -= units;
  };
  if (static_cast<size_t>(end_expert) == block(layer).experts.size()) share([&](int64_t u) { shared_hidden_unit(layer, u, team); });
  for (const int32_t e : b_.turn_experts) {
    const V41Expert w = expert_of(layer, static_cast<size_t>(e));
    share([&](int64_t u) { hidden_unit_of(static_cast<size_t>(e), w, u, team); });
  }
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
    if (choices_of(e) > 0) add(expert_of(layer, e).w2, b_.expert_first[e], choices_of(e), b_.expert_rows.data() + b_.expert_first[e]);
  if (static_cast<size_t>(end_expert) < w.experts.size()) return;
  add(w.shared.w2, num_rows() * k, num_rows(), nullptr);
  for (int64_t r = 0; r < num_rows(); ++r) {
    float* y = b_.y.data() + r * d;
    for (int64_t i = begin; i < end; ++i) y[i] = round_bf16(y[i]);
  }
}

}  // namespace deepinfer::model
