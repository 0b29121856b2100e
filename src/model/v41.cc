#include "model/v41.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>

#include "base/check.h"
#include "kernels/block_quantize.h"
#include "kernels/engram_gate.h"
#include "kernels/index_select.h"
#include "kernels/v41_rows.h"
#include "model/v41_image_encoder.h"
#include "model/v41_info.h"
#include "model/v41_step.h"

namespace deepinfer::model {
namespace {

template <class Array>
void resize(Array& v, int64_t rows, int64_t cols) {
  v.resize(static_cast<size_t>(rows * cols));
}

}  // namespace

void V41Step::reserve(const ModelLimits& limits, int num_threads) {
  const V41Config& c = p_.config;
  V41Buffers& b = b_;
  const int64_t rows = limits.max_rows, d = c.hidden_size, width = int64_t{c.num_attention_heads} * c.head_dim;
  const int64_t context = limits.max_context > 0 ? limits.max_context : c.max_position_embeddings;
  const int64_t columns = int64_t{std::max(0, c.engram_max_ngram_size - 1)} * c.engram_n_heads * c.engram_head_dim;
  const int64_t low = int64_t{c.o_groups} * c.o_lora_rank;
  const int64_t index_width = int64_t{c.index_n_heads} * c.index_head_dim, k = c.num_experts_per_tok;
  rows_.reserve(static_cast<size_t>(rows));
  step_row_.reserve(static_cast<size_t>(rows));
  kept_.reserve(static_cast<size_t>(rows));
  for (auto& groups : groups_) groups.reserve(static_cast<size_t>(rows));
  sequence_first_.reserve(static_cast<size_t>(limits.max_sequences));
  resize(b.streams, rows, kHyperStreams * d);
  resize(b.pre, rows, kHyperStreams);
  resize(b.hyper_dots, rows, kHyperDots);
  for (auto* v : {&b.u, &b.x, &b.y}) resize(*v, rows, d);
  for (auto* v : {&b.x16, &b.x8}) resize(*v, rows, d);
  b.coefficients.resize(static_cast<size_t>(rows));
  resize(b.qr, rows, c.q_lora_rank);
  resize(b.qr8, rows, c.q_lora_rank);
  for (auto* v : {&b.q, &b.attention}) resize(*v, rows, width);
  for (auto* v : {&b.q16, &b.attention16}) resize(*v, rows, width);
  resize(b.kv, rows, c.head_dim);
  resize(b.kv16, rows, c.head_dim);
  resize(b.o_low8, rows, low);
  b.window_codes.resize(static_cast<size_t>(rows * c.head_dim));
  b.window_scales.resize(static_cast<size_t>(rows * c.head_dim / 32));
  for (auto* v : {&b.compressor_kv, &b.compressor_gate, &b.latent}) resize(*v, rows, c.head_dim);
  resize(b.latent16, rows, c.head_dim);
  resize(b.index_key, rows, c.index_head_dim);
  resize(b.index_q, rows, index_width);
  resize(b.index_weights, rows, c.index_n_heads);
  b.selected.resize(static_cast<size_t>(rows * c.index_topk));
  b.num_selected.resize(static_cast<size_t>(rows));
  b.max_blocks = c.candidate_source_layer_id >= 0 ? (context + c.candidate_block_size - 1) / c.candidate_block_size : 0;
  b.candidates.resize(static_cast<size_t>(rows * b.max_blocks));
  resize(b.plain_angles, rows, c.qk_rope_head_dim);
  resize(b.compressed_angles, rows, c.qk_rope_head_dim);
  resize(b.gate_logits, rows, c.n_routed_experts);
  resize(b.route_weights, rows, k);
  for (auto* v : {&b.routes, &b.expert_choices, &b.expert_rows}) resize(*v, rows, k);
  b.expert_first.resize(static_cast<size_t>(c.n_routed_experts) + 1);
  resize(b.hidden8, rows * (k + 1), c.moe_intermediate_size);
  resize(b.engram8, rows, columns);
  if (p_.memory != nullptr) {
    resize(b.engram_ids, rows, p_.engram.num_columns());
    resize(b.wanted_experts, c.n_routed_experts, 1);
    b.turn_experts.reserve(static_cast<size_t>(c.n_routed_experts));
  }
  resize(b.engram_out, rows, (kHyperStreams + 1) * d);
  resize(b.final16, limits.max_logit_rows, d);
  // floats, one at a time: scores of a context's rows and blocks; expert scores; angles.
  const int64_t floats = std::max({2 * context, int64_t{c.n_routed_experts}, int64_t{c.qk_rope_head_dim}});
  b.scratch.resize(static_cast<size_t>(num_threads));
  for (V41Buffers::Scratch& scratch : b.scratch) {
    resize(scratch.floats, floats, 1);
    resize(scratch.unit, kUnitRows, kUnitColumns);
    resize(scratch.index_q, 1, index_width);
    resize(scratch.index_weights, 1, c.index_n_heads);
    resize(scratch.index_query, 1, index_scratch(c.index_n_heads, c.index_head_dim));
    scratch.ints.resize(static_cast<size_t>(std::max(c.candidate_topk_blocks, 0)));
    resize(scratch.rows16, kSinkBlock + 1, c.head_dim);
    scratch.list.resize(static_cast<size_t>(c.sliding_window + c.index_topk));
  }
}

void V41Step::plan(const StepBatch& batch, std::byte* arena, float* logits, V41Observer* observer) {
  batch_ = batch;
  arena_ = arena;
  logits_ = logits;
  observer_ = observer;
  plan_rows();
  plan_groups();
  // Reading of table rows begins before the first layer: which they are follows from the tokens.
  if (p_.memory != nullptr && p_.memory->reads_tables())
    for (size_t table = 0; table < p_.weights.engrams.size(); ++table)
      want_engram_rows(static_cast<int32_t>(table), 0, p_.memory->positions_at_a_time(num_rows()));
}

void V41Step::plan_rows() {
  const V41Config& c = p_.config;
  rows_.clear();
  kept_.clear();
  step_row_.clear();
  sequence_first_.clear();
  for (size_t s = 0; s < batch_.sequences.size(); ++s) {
    const SequenceRows& sequence = batch_.sequences[s];
    sequence_first_.push_back(static_cast<int32_t>(rows_.size()));
    for (int32_t i = 0; i < sequence.num_rows; ++i) {
      const TokenId token = batch_.tokens[static_cast<size_t>(sequence.first_row + i)];
      if (sequence.start + i >= sequence.decoder_start) kept_.push_back(static_cast<int32_t>(rows_.size()));
      step_row_.push_back(sequence.first_row + i);
      rows_.push_back({static_cast<int32_t>(s), sequence.start + i, token, token == c.image_token_id});
    }
  }
}

// The compressed rows that the step completes and that their blocks do not hold yet. They are of all its rows: narrowing comes later.
void V41Step::plan_groups() {
  for (int32_t ratio : {1, 2}) {
    std::vector<V41Group>& groups = groups_[ratio - 1];
    groups.clear();
    for (size_t i = 0; i < rows_.size(); ++i) {
      const V41Row& row = rows_[i];
      if (row.position < sequence(row).global_start || (row.position + 1) % ratio != 0) continue;
      const bool together = ratio == 1 || row.position > sequence(row).start;
      groups.push_back({row.sequence, row.position / ratio, static_cast<int32_t>(i), together ? static_cast<int32_t>(i) - (ratio - 1) : -1});
    }
  }
}

int32_t V41Step::source_number(int32_t layer) const {
  const auto& sources = p_.config.kv_source_layer_ids;
  return static_cast<int32_t>(std::upper_bound(sources.begin(), sources.end(), layer) - sources.begin()) - 1;
}

void V41Step::run(Team& team) {
  const V41Config& c = p_.config;
  embed(team);
  for (int32_t layer = 0; layer < c.num_hidden_layers; ++layer) {
    if (c.engram_index(layer) >= 0) engram(layer, team);
    enter_sublayer("attn_in", layer, block(layer).hc_attn, block(layer).attn_norm, team);
    attention(layer, team);
    observe("attn_out", layer, c.hidden_size, b_.y.data(), team);
    leave_sublayer(team);
    enter_sublayer("ffn_in", layer, block(layer).hc_ffn, block(layer).ffn_norm, team);
    experts(layer, team);
    observe("ffn_out", layer, c.hidden_size, b_.y.data(), team);
    leave_sublayer(team);
    observe("X", layer, kHyperStreams * c.hidden_size, b_.streams.data(), team);
    observe("pre", layer, kHyperStreams, b_.pre.data(), team);
  }
  head(team);
}

const bf16* V41Step::embedding(const V41Row& row) const {
  const int64_t d = p_.config.hidden_size;
  if (row.image) {
    for (const ImageRows& image : sequence(row).images) {
      const int32_t at = row.position - image.start;
      if (at >= 0 && at < image.num_rows) return image.rows + at * d;
    }
  }
  return p_.weights.embed.values + int64_t{row.token} * d;  // an image position without a picture is a token like any other
}

void V41Step::embed(Team& team) {
  const int64_t d = p_.config.hidden_size, rope = p_.config.qk_rope_head_dim;
  const auto [begin, end] = team.range(num_rows());
  for (int64_t r = begin; r < end; ++r) {
    const V41Row& row = rows_[static_cast<size_t>(r)];
    const bf16* in = embedding(row);
    float* streams = b_.streams.data() + r * kHyperStreams * d;
    for (int64_t i = 0; i < d; ++i) streams[i] = to_f32(in[i]);
    if (observer_ != nullptr) std::copy_n(streams, d, b_.u.data() + r * d);
    for (int32_t k = 1; k < kHyperStreams; ++k) std::copy_n(streams, d, streams + k * d);
    const float first[kHyperStreams] = {1, 0, 0, 0};
    std::copy_n(first, kHyperStreams, b_.pre.data() + r * kHyperStreams);
    p_.plain_rope.angles(row.position, b_.plain_angles.data() + r * rope);
    p_.compressed_rope.angles(row.position, b_.compressed_angles.data() + r * rope);
  }
  team.barrier();
  observe("embed", -1, d, b_.u.data(), team);
}

// The rows of a table that one position reads.
void V41Step::engram_ids(int32_t table, int64_t r, int64_t* ids) const {
  const V41Config& c = p_.config;
  const V41Row& row = rows_[static_cast<size_t>(r)];
  const SequenceRows& seq = sequence(row);
  std::array<int32_t, EngramHash::kMaxNgram> recent;
  for (int32_t k = 0; k < c.engram_max_ngram_size; ++k) {
    const int32_t position = row.position - k, before = seq.start - position;  // before > 0: not in this step
    TokenId token = c.image_token_id;  // no token: counts as an image does
    if (position >= 0 && before <= 0) token = batch_.tokens[static_cast<size_t>(seq.first_row - before)];
    if (position >= 0 && before > 0) token = seq.previous[seq.previous.size() - static_cast<size_t>(before)];
    const bool dead = position < 0 || token == c.image_token_id;
    recent[static_cast<size_t>(k)] = dead ? EngramHash::kDead : p_.engram.compress(token);
  }
  p_.engram.rows(table, std::span(recent).first(static_cast<size_t>(c.engram_max_ngram_size)), ids);
}

// The dequantised table rows of one position, one after the other. (They are fp8 numbers with a scale for each 32: another round trip
// would change nothing.)
void V41Step::engram_row(int32_t table, int64_t r, bf16* out) const {
  const V41Engram& engram = p_.weights.engrams[static_cast<size_t>(table)];
  std::array<int64_t, 64 * EngramHash::kMaxNgram> ids;
  engram_ids(table, r, ids.data());
  const int64_t dim = p_.config.engram_head_dim;
  for (int32_t column = 0; column < p_.engram.num_columns(); ++column) {
    const int64_t id = ids[static_cast<size_t>(column)];
    DCHECK(id >= 0 && id < engram.num_rows);
    dequantize_fp8(engram.codes + id * dim, engram.scales + id * dim / 32, dim, out + column * dim, p_.isa);
  }
}

// Asks for the table rows of `count` positions from active row `first` on; on one thread.
void V41Step::want_engram_rows(int32_t table, int64_t first, int64_t count) {
  const int64_t columns = p_.engram.num_columns();
  for (int64_t i = 0; i < count; ++i) engram_ids(table, first + i, b_.engram_ids.data() + i * columns);
  p_.memory->want_rows(table, std::span(b_.engram_ids).first(static_cast<size_t>(count * columns)));
}

// Table rows of all active rows, in pieces that the bound of the tables holds. No barrier at the end.
void V41Step::gather_engram_rows(int32_t table, Team& team) {
  const int64_t cols = p_.weights.engrams[static_cast<size_t>(table)].wkv.cols;
  const bool bounded = p_.memory != nullptr && p_.memory->bounds_tables();
  const int64_t piece = bounded ? p_.memory->positions_at_a_time(num_rows()) : num_rows();
  for (int64_t first = 0; first < num_rows(); first += piece) {
    const int64_t count = std::min(piece, num_rows() - first);
    if (bounded) {
      team.barrier();  // nobody reads the piece before any more
      if (team.index() == 0) want_engram_rows(table, first, count);
      team.barrier();
    }
    const auto [begin, end] = team.range(count);
    for (int64_t r = first + begin; r < first + end; ++r) engram_row(table, r, b_.engram8.data() + r * cols);
  }
}

void V41Step::engram(int32_t layer, Team& team) {
  const V41Config& c = p_.config;
  const int32_t table = c.engram_index(layer);
  const V41Engram& weights = p_.weights.engrams[static_cast<size_t>(table)];
  const int64_t d = c.hidden_size, cols = weights.wkv.cols;
  observe_engram_ids(layer, team);
  gather_engram_rows(table, team);
  team.barrier();
  linear(rows16(b_.engram8, cols), weights.wkv, {b_.engram_out.data(), (kHyperStreams + 1) * d, true}, p_.isa, team);
  team.barrier();
  const auto [begin, end] = team.range(num_rows());
  for (int64_t r = begin; r < end; ++r) {
    if (rows_[static_cast<size_t>(r)].image) continue;  // gate 0
    const float* out = b_.engram_out.data() + r * (kHyperStreams + 1) * d;
    engram_gate({.key = out, .value = out + kHyperStreams * d, .q_weight = weights.q_weight, .k_weight = weights.k_weight,
                 .streams = b_.streams.data() + r * kHyperStreams * d, .hidden = c.hidden_size, .eps = c.rms_norm_eps}, p_.isa);
  }
  observe("X_engram", layer, kHyperStreams * d, b_.streams.data(), team);
}

// Coefficients of the streams, their mix by the coefficients of the sublayer before (the shift of V4.1), norm, rounding. Every thread has
// finished the streams of its own rows (Team::range) and no others; where threads share rows, some columns of all.
void V41Step::enter_sublayer(std::string_view name, int32_t layer, const HyperWeights& hyper, const bf16* norm, Team& team) {
  const int64_t d = p_.config.hidden_size;
  if (shares_rows(team) && observer_ == nullptr) return enter_shared_rows(hyper, norm, team);
  if (shares_rows(team)) team.barrier();
  const auto [begin, end] = team.range(num_rows());
  hyper_dots(hyper_params(), hyper, b_.streams.data() + begin * kHyperStreams * d, end - begin, 0, kHyperDots, b_.hyper_dots.data() + begin * kHyperDots, p_.isa);
  for (int64_t r = begin; r < end; ++r) enter_row(r, norm);
  weigh_streams(hyper, begin, end);
  observe(name == "attn_in" ? "hc.attn" : "hc.ffn", layer, sizeof(HyperCoefficients) / sizeof(float), reinterpret_cast<float*>(b_.coefficients.data()), team);
  pass_mix_on(begin, end);
  observe(name, layer, d, b_.x.data(), team);
  round_rows(begin, end);
  team.barrier();
}

// What the sublayer reads of a row.
void V41Step::enter_row(int64_t r, const bf16* norm) {
  const int64_t d = p_.config.hidden_size;
  float* x = b_.x.data() + r * d;
  hyper_collapse(hyper_params(), b_.pre.data() + r * kHyperStreams, b_.streams.data() + r * kHyperStreams * d, b_.u.data() + r * d, p_.isa);
  v41_norm(b_.u.data() + r * d, norm, d, p_.config.rms_norm_eps, x, p_.isa);
}

void V41Step::round_rows(int64_t begin, int64_t end) {
  const int64_t d = p_.config.hidden_size;
  for (int64_t r = begin; r < end; ++r) {
    round_to_bf16(b_.x.data() + r * d, d, b_.x16.data() + r * d, p_.isa);
    round_to_fp8(b_.x.data() + r * d, d, b_.x8.data() + r * d, p_.isa);
  }
}

// Coefficients of rows from their products with the weights of the hyper-connections.
void V41Step::weigh_streams(const HyperWeights& hyper, int64_t begin, int64_t end) {
  for (int64_t r = begin; r < end; ++r) {
    HyperCoefficients& coefficients = b_.coefficients[static_cast<size_t>(r)];
    hyper_coefficients(hyper_params(), hyper, b_.streams.data() + r * kHyperStreams * p_.config.hidden_size, b_.hyper_dots.data() + r * kHyperDots, coefficients, p_.isa);
  }
}

// The next sublayer mixes the streams by the coefficients of this one.
void V41Step::pass_mix_on(int64_t begin, int64_t end) {
  for (int64_t r = begin; r < end; ++r) std::copy_n(b_.coefficients[static_cast<size_t>(r)].pre, kHyperStreams, b_.pre.data() + r * kHyperStreams);
}

// enter_sublayer() where threads share rows. The coefficients are wanted when the sublayer ends, and cost one thread some time: they are left
// to one that has nothing else to do in between (weigh_shared_row).
void V41Step::enter_shared_rows(const HyperWeights& hyper, const bf16* norm, Team& team) {
  constexpr int64_t kEntering = 3, kUnits = kEntering + kHyperDots;  // the first takes as long as three products
  const int64_t width = kHyperStreams * p_.config.hidden_size;
  team.barrier();
  const auto [first, last] = team.range(num_rows() * kUnits);
  for (int64_t i = first; i < last;) {
    const int64_t r = i / kUnits, unit = i % kUnits, stop = std::min(unit + last - i, kUnits);
    if (unit == 0) {
      enter_row(r, norm);
      round_rows(r, r + 1);
    }
    const auto begin = static_cast<int32_t>(std::max(unit, kEntering) - kEntering), end = static_cast<int32_t>(std::max(stop, kEntering) - kEntering);
    hyper_dots(hyper_params(), hyper, b_.streams.data() + r * width, 1, begin, end, b_.hyper_dots.data() + r * kHyperDots, p_.isa);
    i += stop - unit;
  }
  team.barrier();
}

// The coefficients that enter_shared_rows() left. row: one that no other thread takes, or none.
void V41Step::weigh_shared_row(const HyperWeights& hyper, int64_t row, Team& team) {
  if (!shares_rows(team) || observer_ != nullptr || row >= num_rows()) return;
  weigh_streams(hyper, row, row + 1);
  pass_mix_on(row, row + 1);
}

// Adds the sublayer's output to the streams. No barrier at the end: what follows reads only streams of the thread's own rows.
void V41Step::leave_sublayer(Team& team) {
  const int64_t d = p_.config.hidden_size;
  const bool shares = shares_rows(team);
  const auto [begin, end] = shares ? std::pair(int64_t{0}, num_rows()) : team.range(num_rows());
  const auto [first, last] = shares ? team.range(d / kUnit) : std::pair(int64_t{0}, d / kUnit);
  for (int64_t r = begin; r < end; ++r)
    hyper_expand(hyper_params(), b_.coefficients[static_cast<size_t>(r)], b_.y.data() + r * d, first * kUnit, last * kUnit, b_.streams.data() + r * kHyperStreams * d, p_.isa);
}

// Drops the rows that the decoder layers do not need: what they left behind (compressed rows, index keys) is stored by now. The caller
// has asked whether there are any, before a barrier: here the first thread may have dropped them already.
void V41Step::narrow(Team& team) {
  team.barrier();
  const int64_t d = p_.config.hidden_size, rope = p_.config.qk_rope_head_dim;
  if (team.index() == 0) {
    const auto move = [&](auto& v, int64_t width) {
      for (size_t i = 0; i < kept_.size(); ++i)
        std::copy_n(v.begin() + kept_[i] * width, width, v.begin() + static_cast<int64_t>(i) * width);
    };
    move(b_.streams, kHyperStreams * d);
    move(b_.pre, kHyperStreams);
    move(b_.hyper_dots, kHyperDots);
    move(b_.coefficients, 1);
    move(b_.x, d);
    move(b_.x16, d);
    move(b_.x8, d);
    move(b_.plain_angles, rope);
    move(b_.compressed_angles, rope);
    move(rows_, 1);
    move(step_row_, 1);
    rows_.resize(kept_.size());
    step_row_.resize(kept_.size());
    size_t row = 0;
    for (size_t s = 0; s < batch_.sequences.size(); ++s) {
      while (row < rows_.size() && static_cast<size_t>(rows_[row].sequence) < s) ++row;
      sequence_first_[s] = static_cast<int32_t>(row);
    }
  }
  team.barrier();
}

void V41Step::head(Team& team) {
  const V41Config& c = p_.config;
  const int64_t d = c.hidden_size;
  team.barrier();  // the streams of a row that has logits may be another thread's
  const int64_t wanted = static_cast<int64_t>(batch_.logit_rows.size());
  const auto [begin, end] = team.range(wanted);
  const auto active_row = [&](int64_t i) {
    const auto at = std::lower_bound(step_row_.begin(), step_row_.end(), batch_.logit_rows[static_cast<size_t>(i)]);
    CHECK(at != step_row_.end() && *at == batch_.logit_rows[static_cast<size_t>(i)]);  // a row that narrowing drops has no logits
    return at - step_row_.begin();
  };
  for (int64_t i = begin; i < end; ++i) {
    const int64_t r = active_row(i);
    hyper_collapse(hyper_params(), b_.pre.data() + r * kHyperStreams, b_.streams.data() + r * kHyperStreams * d, b_.u.data() + r * d, p_.isa);
  }
  observe("final_u", -1, d, b_.u.data(), team);  // of rows that have logits
  for (int64_t i = begin; i < end; ++i) {
    float* u = b_.u.data() + active_row(i) * d;
    v41_norm(u, p_.weights.norm, d, c.rms_norm_eps, u, p_.isa);
    round_to_bf16(u, d, b_.final16.data() + i * d, p_.isa);
  }
  observe("final_norm", -1, d, b_.u.data(), team);
  team.barrier();
  linear({b_.final16.data(), d, wanted}, p_.weights.head, {logits_, c.vocab_size, false}, p_.isa, team);
  team.barrier();
}

void V41Step::observe(std::string_view name, int32_t layer, int64_t width, float* data, Team& team) {
  if (observer_ == nullptr) return;
  team.barrier();
  if (team.index() == 0) observer_->floats(name, layer, num_rows(), width, data);
  team.barrier();
}

void V41Step::observe(std::string_view name, int32_t layer, int64_t width, const int32_t* data, Team& team) {
  if (observer_ == nullptr) return;
  team.barrier();
  if (team.index() == 0) observer_->integers(name, layer, num_rows(), width, data);
  team.barrier();
}

void V41Step::observe(std::string_view name, int32_t layer, int64_t width, const void* bytes, Team& team) {
  if (observer_ == nullptr) return;
  team.barrier();
  if (team.index() == 0) observer_->bytes(name, layer, num_rows(), width, static_cast<const uint8_t*>(bytes));
  team.barrier();
}

void V41Step::observe_engram_ids(int32_t layer, Team& team) {
  if (observer_ == nullptr || team.index() != 0) return;
  const int64_t columns = p_.engram.num_columns();
  std::vector<int64_t> ids(static_cast<size_t>(num_rows() * columns));
  for (int64_t r = 0; r < num_rows(); ++r) engram_ids(p_.config.engram_index(layer), r, ids.data() + r * columns);
  observer_->integers("engram_ids", layer, num_rows(), columns, std::vector<int32_t>(ids.begin(), ids.end()).data());
}

namespace {

class V41Model final : public V41 {
 public:
  V41Model(V41Config config, V41Weights weights, EngramHash engram, std::unique_ptr<Checkpoint> checkpoint, std::unique_ptr<V41Memory> memory, Isa isa)
      : config_(std::move(config)),
        weights_(std::move(weights)),
        engram_(std::move(engram)),
        checkpoint_(std::move(checkpoint)),
        memory_(std::move(memory)),
        layout_(config_, isa),
        plain_rope_(config_, false),
        compressed_rope_(config_, true),
        parts_{config_, weights_, engram_, layout_, plain_rope_, compressed_rope_, isa, memory_.get()},
        step_(parts_, buffers_) {
    if (config_.vision) image_encoder_.emplace(config_, weights_, isa);
    info_.architecture = "deepseek_v41";
    info_.vocab_size = config_.vocab_size;
    info_.max_context = config_.max_position_embeddings;
    info_.hidden_size = config_.hidden_size;
    info_.num_layers = config_.num_hidden_layers;
    for (const TensorView& tensor : checkpoint_->tensors()) {
      info_.num_parameters += static_cast<uint64_t>(num_parameters(tensor.dtype, tensor.num_elements()));
      info_.weight_bytes += tensor.data.size();
    }
    cost_ = v41_cost(checkpoint_->tensors(), config_);
  }

  const ModelInfo& info() const override { return info_; }
  const KvLayout& kv_layout() const override { return layout_.declaration(); }
  StepCost cost(const StepShape& shape) const override { return v41_step_cost(cost_, config_, shape); }
  const ImageEncoder* image_encoder() const override { return image_encoder_ ? &*image_encoder_ : nullptr; }
  const V41Config& config() const override { return config_; }
  const V41Memory* memory() const override { return memory_.get(); }
  void observe(V41Observer* observer) override { observer_ = observer; }

  void reserve(const ModelLimits& limits, Workers& workers) override {
    limits_ = limits;
    step_.reserve(limits, workers.size());
  }

  Result<> forward(const StepBatch& batch, std::byte* arena, float* logits, Workers& workers) override {
    CHECK(static_cast<int64_t>(batch.tokens.size()) <= limits_.max_rows);
    CHECK(static_cast<int64_t>(batch.sequences.size()) <= limits_.max_sequences);
    CHECK(static_cast<int64_t>(batch.logit_rows.size()) <= limits_.max_logit_rows);
    step_.plan(batch, arena, logits, observer_);
    workers.run([&](Team& team) { step_.run(team); });
    return memory_ != nullptr && memory_->experts() != nullptr ? memory_->experts()->take_error() : Result<>();
  }

 private:
  V41Config config_;
  V41Weights weights_;
  EngramHash engram_;
  std::unique_ptr<Checkpoint> checkpoint_;
  std::unique_ptr<V41Memory> memory_;
  V41Layout layout_;
  V41Rope plain_rope_, compressed_rope_;
  V41Parts parts_;
  V41Buffers buffers_;
  V41Step step_;
  std::optional<V41ImageEncoder> image_encoder_;
  ModelInfo info_;
  V41Cost cost_;
  ModelLimits limits_;
  V41Observer* observer_ = nullptr;
};

}  // namespace

std::unique_ptr<V41> V41::create(V41Config config, V41Weights weights, EngramHash engram, std::unique_ptr<Checkpoint> checkpoint,
                                 Isa isa, std::unique_ptr<V41Memory> memory) {
  return std::make_unique<V41Model>(std::move(config), std::move(weights), std::move(engram), std::move(checkpoint), std::move(memory), isa);
}

}  // namespace deepinfer::model
