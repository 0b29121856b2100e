// The attention sublayer of a step: window rows, compressed rows and index keys of the sources, selection, attention, output.
#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "kernels/block_quantize.h"
#include "kernels/index_select.h"
#include "kernels/sink_attention.h"
#include "kernels/v41_rows.h"
#include "model/v41_step.h"

namespace deepinfer::model {
namespace {

e4m3* fp8(uint8_t* p) { return reinterpret_cast<e4m3*>(p); }
e8m0* scales8(uint8_t* p) { return reinterpret_cast<e8m0*>(p); }

}  // namespace

void V41Step::attention(int32_t layer, Team& team) {
  const V41Config& c = p_.config;
  const bool narrows = layer == c.narrowing_layer();
  // At the layer where rows are dropped, all of them still leave their compressed row behind.
  if (narrows && kept_.size() < rows_.size()) {
    compressor_inputs(layer, team);
    team.barrier();
    compress(layer, team);
    narrow(team);
    query_inputs(layer, team);
    team.barrier();
  } else {
    query_inputs(layer, team);
    if (c.is_kv_source(layer)) compressor_inputs(layer, team);
    team.barrier();
    if (c.is_kv_source(layer)) compress(layer, team);
  }
  queries(layer, team);
  if (c.is_index_source(layer)) select_rows(layer, team);
  attend_rows(layer, team);
  if (!keeps_groups(team)) team.barrier();
  project_low(layer, team);
  team.barrier();
  store_window(layer, team);
  linear(rows16(b_.o_low8, int64_t{c.o_groups} * c.o_lora_rank), block(layer).wo_b, {b_.y.data(), c.hidden_size, true}, p_.isa, team);
  team.barrier();
}

// Products of the normed input: query latent, window row, weights of the index heads. No barrier at the end.
void V41Step::query_inputs(int32_t layer, Team& team) {
  const V41Config& c = p_.config;
  const V41Block& w = block(layer);
  const Bf16Rows x = rows16(b_.x8, c.hidden_size);
  linear(x, w.wq_a, {b_.qr.data(), c.q_lora_rank, true}, p_.isa, team);
  linear(x, w.wkv, {b_.kv.data(), c.head_dim, true}, p_.isa, team);
  if (c.is_index_source(layer))
    linear(rows16(b_.x16, c.hidden_size), w.index_weights_proj, {b_.index_weights.data(), c.index_n_heads, true}, p_.isa, team);
}

// What a KV source compresses: pooled in f32 for ratio 2, a plain bf16 product for ratio 1. No barrier at the end.
void V41Step::compressor_inputs(int32_t layer, Team& team) {
  const V41Config& c = p_.config;
  const V41Block& w = block(layer);
  const bool pooled = c.compress_ratio(layer) == 2;
  const Bf16Rows x = rows16(b_.x16, c.hidden_size);
  linear(x, w.compressor_wkv, {b_.compressor_kv.data(), c.head_dim, !pooled}, p_.isa, team);
  if (pooled) linear(x, w.compressor_wgate, {b_.compressor_gate.data(), c.head_dim, false}, p_.isa, team);
}

// Makes the compressed rows and index keys that the step completes and writes them into their blocks; keeps pending tokens. No barrier at
// the end: who reads them passes others first.
void V41Step::compress(int32_t layer, Team& team) {
  const V41Config& c = p_.config;
  const auto num_groups = static_cast<int64_t>(groups_of(layer).size());
  const auto [begin, end] = team.range(num_groups);
  if (num_groups > 0) {
    for (int64_t g = begin; g < end; ++g) latent_row(layer, g);
    team.barrier();
    linear({b_.latent16.data(), c.head_dim, num_groups}, block(layer).index_wk, {b_.index_key.data(), c.index_head_dim, true}, p_.isa, team);
    team.barrier();
    for (int64_t g = begin; g < end; ++g) store_compressed(layer, g, scratch_of(team).floats.data());
  }
  if (c.compress_ratio(layer) == 2) store_pending(layer, team);
}

// The normed latent of a group: its token's for ratio 1, two tokens' pooled for ratio 2.
void V41Step::latent_row(int32_t layer, int64_t g) {
  const V41Config& c = p_.config;
  const int32_t dim = c.head_dim;
  const V41Group& group = groups_of(layer)[static_cast<size_t>(g)];
  float* latent = b_.latent.data() + g * dim;
  const float* kv1 = b_.compressor_kv.data() + int64_t{group.last_row} * dim;
  if (c.compress_ratio(layer) == 1) {
    std::copy_n(kv1, dim, latent);
  } else {
    const V41Row& row = rows_[static_cast<size_t>(group.last_row)];
    const float* waiting = group.first_row < 0 ? p_.layout.pending(sequence(row).state, source_number(layer), row.position - 1) : nullptr;
    const float* kv0 = waiting != nullptr ? waiting : b_.compressor_kv.data() + int64_t{group.first_row} * dim;
    const float* gate0 = waiting != nullptr ? waiting + dim : b_.compressor_gate.data() + int64_t{group.first_row} * dim;
    const float* gate1 = b_.compressor_gate.data() + int64_t{group.last_row} * dim;
    for (int32_t i = 0; i < dim; ++i) {
      const float top = std::max(gate0[i], gate1[i]), e0 = std::exp(gate0[i] - top), e1 = std::exp(gate1[i] - top);
      latent[i] = round_bf16(kv0[i] * (e0 / (e0 + e1)) + kv1[i] * (e1 / (e0 + e1)));
    }
  }
  v41_norm(latent, block(layer).compressor_norm, dim, c.rms_norm_eps, latent, p_.isa);
  round_to_bf16(latent, dim, b_.latent16.data() + g * dim, p_.isa);
}

// The compressed row and the index key of a group, rotated and rounded. angles: [rope dims] of scratch.
void V41Step::store_compressed(int32_t layer, int64_t g, float* angles) {
  const V41Config& c = p_.config;
  const int32_t source = source_number(layer), dim = c.head_dim;
  const V41Group& group = groups_of(layer)[static_cast<size_t>(g)];
  std::byte* kv = kv_block(rows_[static_cast<size_t>(group.last_row)], p_.layout.block_of(source, group.index));
  p_.compressed_rope.angles(int64_t{group.index} * c.compress_ratio(layer), angles);
  float* key = b_.index_key.data() + g * c.index_head_dim;
  v41_norm(key, block(layer).index_k_norm, c.index_head_dim, c.rms_norm_eps, key, p_.isa);
  p_.compressed_rope.rotate(key, c.index_head_dim, angles);
  const auto packed_key = p_.layout.index_key(kv, source, group.index);
  quantize_fp4_e8m0(key, c.index_head_dim, packed_key.codes, scales8(packed_key.scales), p_.isa);
  float* latent = b_.latent.data() + g * dim;
  p_.compressed_rope.rotate(latent, dim, angles);
  const auto packed_row = p_.layout.main_row(kv, source, group.index);
  quantize_fp4_e4m3(latent, dim, packed_row.codes, fp8(packed_row.scales), p_.isa);
}

// The last tokens of each sequence wait for partners, or for the draft to be taken back. What waited before has been read by now: there is a
// barrier between where something has.
void V41Step::store_pending(int32_t layer, Team& team) {
  const int32_t source = source_number(layer), dim = p_.config.head_dim;
  const auto [first, last] = team.range(static_cast<int64_t>(batch_.sequences.size()));
  for (int64_t s = first; s < last; ++s) {
    const SequenceRows& seq = batch_.sequences[static_cast<size_t>(s)];
    for (int32_t i = std::max(0, seq.num_rows - p_.layout.pending_slots()); i < seq.num_rows; ++i) {
      const int64_t r = sequence_first_[static_cast<size_t>(s)] + i;
      float* pending = p_.layout.pending(seq.state, source, seq.start + i);
      std::copy_n(b_.compressor_kv.data() + r * dim, dim, pending);
      std::copy_n(b_.compressor_gate.data() + r * dim, dim, pending + dim);
    }
  }
}

// Window rows, rotated and rounded; products of the query latent, which their readers rotate.
void V41Step::queries(int32_t layer, Team& team) {
  const V41Config& c = p_.config;
  const V41Block& w = block(layer);
  const int64_t dim = c.head_dim, rope_dims = c.qk_rope_head_dim;
  const bool compressed = c.compress_ratio(layer) > 0;
  const V41Rope& rope = compressed ? p_.compressed_rope : p_.plain_rope;
  const float* angles = compressed ? b_.compressed_angles.data() : b_.plain_angles.data();
  weigh_shared_row(w.hc_attn, team.index(), team);  // the first threads have no rows of their own here
  const auto [begin, end] = team.range(num_rows());
  for (int64_t r = begin; r < end; ++r) {
    float* qr = b_.qr.data() + r * c.q_lora_rank;
    v41_norm(qr, w.q_norm, c.q_lora_rank, c.rms_norm_eps, qr, p_.isa);
    round_to_fp8(qr, c.q_lora_rank, b_.qr8.data() + r * c.q_lora_rank, p_.isa);
    float* kv = b_.kv.data() + r * dim;
    v41_norm(kv, w.kv_norm, dim, c.rms_norm_eps, kv, p_.isa);
    rope.rotate(kv, c.head_dim, angles + r * rope_dims);
    e4m3* codes = b_.window_codes.data() + r * dim;
    e8m0* scales = b_.window_scales.data() + r * dim / 32;
    quantize_fp8(kv, dim, codes, scales, p_.isa);
    dequantize_fp8(codes, scales, dim, b_.kv16.data() + r * dim, p_.isa);
    if (observer_ != nullptr)
      for (int64_t i = 0; i < dim; ++i) kv[i] = to_f32(b_.kv16[static_cast<size_t>(r * dim + i)]);
  }
  team.barrier();
  observe("window_rows", layer, dim, b_.kv.data(), team);
  observe("window_codes", layer, dim, b_.window_codes.data(), team);
  observe("window_scales", layer, dim / 32, b_.window_scales.data(), team);
  const Bf16Rows qr = rows16(b_.qr8, c.q_lora_rank);
  linear(qr, w.wq_b, {b_.q.data(), c.num_attention_heads * dim, true}, p_.isa, team);
  if (c.is_index_source(layer)) linear(qr, w.index_wq_b, {b_.index_q.data(), int64_t{c.index_n_heads} * c.index_head_dim, true}, p_.isa, team);
  team.barrier();
}

void V41Step::select_rows(int32_t layer, Team& team) {
  V41Buffers::Scratch& mine = scratch_of(team);
  if (num_rows() > team.size()) {
    team.reset_tickets();
    for (int64_t r; (r = team.next_ticket()) < num_rows();) {
      score_row(layer, r, 0, visible_rows(layer, r), mine.floats.data(), mine);
      select(layer, r, mine.floats.data(), mine);
    }
  } else {  // threads share the keys of each row, whose scores lie in the scratch of the thread that will select
    const auto scores_of = [&](int64_t r) { return b_.scratch[static_cast<size_t>(r)].floats.data(); };
    const int32_t unit = index_block(layer);
    for (int64_t r = 0; r < num_rows(); ++r) {
      const int32_t visible = visible_rows(layer, r);
      const auto [begin, end] = team.range((visible + unit - 1) / unit);
      if (begin < end) score_row(layer, r, static_cast<int32_t>(begin) * unit, std::min(static_cast<int32_t>(end) * unit, visible), scores_of(r), mine);
    }
    team.barrier();
    if (team.index() < num_rows()) select(layer, team.index(), mine.floats.data(), mine);
  }
  team.barrier();
  observe("index", layer, p_.config.index_topk, b_.selected.data(), team);
  if (layer == p_.config.candidate_source_layer_id) observe("candidates", layer, b_.max_blocks, b_.candidates.data(), team);
}

// Scores of a row, whose index queries are rotated and rounded here, against index keys [begin, end) of the layer's source; begin is the
// first of a block.
void V41Step::score_row(int32_t layer, int64_t r, int32_t begin, int32_t end, float* scores, V41Buffers::Scratch& scratch) {
  const V41Config& c = p_.config;
  const int64_t dim = c.index_head_dim, width = c.index_n_heads * dim;
  const int32_t source = source_number(layer), unit = index_block(layer);
  const float* angles = b_.compressed_angles.data() + r * c.qk_rope_head_dim;
  const float weight_scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(dim)) / std::sqrt(static_cast<double>(c.index_n_heads)));
  uint8_t codes[kMaxIndexDim / 2];
  e8m0 scales[kMaxIndexDim / 32];
  bf16 rounded[kMaxIndexDim];
  std::copy_n(b_.index_q.data() + r * width, width, scratch.index_q.data());
  for (int32_t h = 0; h < c.index_n_heads; ++h) {
    float* q = scratch.index_q.data() + h * dim;
    p_.compressed_rope.rotate(q, c.index_head_dim, angles);
    quantize_fp4_e8m0(q, dim, codes, scales, p_.isa);
    dequantize_fp4_e8m0(codes, scales, dim, rounded, p_.isa);
    for (int64_t i = 0; i < dim; ++i) q[i] = to_f32(rounded[i]);
    scratch.index_weights[static_cast<size_t>(h)] = round_bf16(b_.index_weights[static_cast<size_t>(r * c.index_n_heads + h)] * weight_scale);
  }
  for (int32_t first = begin; first < end; first += unit) {
    std::byte* kv = kv_block(rows_[static_cast<size_t>(r)], p_.layout.block_of(source, first));
    const auto packed = p_.layout.index_key(kv, source, first);
    index_scores({.q = scratch.index_q.data(), .weights = scratch.index_weights.data(), .keys = packed.codes, .key_scales = scales8(packed.scales),
                  .scores = scores + first, .scratch = scratch.index_query.data(), .num_heads = c.index_n_heads, .head_dim = c.index_head_dim,
                  .num_keys = std::min(unit, end - first), .same_query = first > begin},
                 p_.isa);
  }
}

// From the scores of a row, which it changes.
void V41Step::select(int32_t layer, int64_t r, float* scores, V41Buffers::Scratch& scratch) {
  const V41Config& c = p_.config;
  const int32_t visible = visible_rows(layer, r);
  uint8_t* chosen = b_.candidates.data() + r * b_.max_blocks;
  const std::span<float> visible_scores(scores, static_cast<size_t>(visible));
  if (layer == c.candidate_source_layer_id)
    choose_blocks(visible_scores, c.candidate_block_size, c.candidate_topk_blocks, chosen, scores + visible, scratch.ints.data(), p_.isa);
  if (c.is_reindex(layer)) {
    for (int32_t first = 0, block = 0; first < visible; first += c.candidate_block_size, ++block)
      if (chosen[block] == 0) std::fill_n(scores + first, std::min(c.candidate_block_size, visible - first), -std::numeric_limits<float>::infinity());
  }
  int32_t* selected = b_.selected.data() + r * c.index_topk;
  const int32_t count = select_top(visible_scores, c.index_topk, selected, p_.isa);
  std::fill(selected + count, selected + c.index_topk, -1);
  b_.num_selected[static_cast<size_t>(r)] = count;
}

// Rows by ticket, since they differ in length; few rows: every thread takes a share of the heads.
void V41Step::attend_rows(int32_t layer, Team& team) {
  const int32_t heads = p_.config.num_attention_heads;
  if (keeps_groups(team)) {
    const int32_t share = heads / team.size(), first = team.index() * share;
    for (int64_t r = 0; r < num_rows(); ++r) attend(layer, r, first, share, scratch_of(team));
    return;
  }
  if (num_rows() < 2 * team.size()) {
    constexpr int32_t kTile = 4;  // heads that the kernel likes to have together
    const int64_t tiles = (heads + kTile - 1) / kTile;
    const int64_t unit = tiles >= team.size() ? kTile : 1;
    const auto [begin, end] = team.range(heads / unit + (heads % unit != 0));
    const auto first = static_cast<int32_t>(begin * unit), last = std::min(static_cast<int32_t>(end * unit), heads);
    for (int64_t r = 0; r < num_rows() && first < last; ++r) attend(layer, r, first, last - first, scratch_of(team));
    return;
  }
  team.reset_tickets();
  for (int64_t r; (r = team.next_ticket()) < num_rows();) attend(layer, r, 0, heads, scratch_of(team));
}

// What a row attends to, where it lies: its window, then its selection.
int32_t V41Step::attention_list(int32_t layer, int64_t r, KvRow* list) {
  const V41Config& c = p_.config;
  const V41Row& row = rows_[static_cast<size_t>(r)];
  const SequenceRows& seq = sequence(row);
  const int64_t dim = c.head_dim;
  // The window has a fixed number of places, oldest first, the empty ones at the end: so the blocks of 64 in which the list is walked
  // do not depend on how the prompt was cut into steps.
  const int32_t floor = in_decoder(layer) ? seq.decoder_start : seq.window_start;
  const int32_t oldest = std::max({0, floor, row.position - c.sliding_window + 1});
  const int64_t first_row = sequence_first_[static_cast<size_t>(row.sequence)];
  const int32_t first_position = rows_[static_cast<size_t>(first_row)].position;
  int32_t count = 0;
  for (int32_t position = oldest; position <= row.position; ++position) {
    if (position >= first_position) {
      list[count++] = {KvRow::Kind::kBf16, b_.kv16.data() + (first_row + position - first_position) * dim, nullptr};
    } else {
      const auto packed = p_.layout.window_row(seq.state, layer, position);
      list[count++] = {KvRow::Kind::kFp8, packed.codes, packed.scales};
    }
  }
  while (count < c.sliding_window) list[count++] = {};
  if (c.compress_ratio(layer) > 0) {
    const int32_t source = source_number(layer);
    const int32_t* selected = b_.selected.data() + r * c.index_topk;
    for (int32_t i = 0; i < b_.num_selected[static_cast<size_t>(r)]; ++i) {
      std::byte* kv = kv_block(row, p_.layout.block_of(source, selected[i]));
      const auto packed = p_.layout.main_row(kv, source, selected[i]);
      list[count++] = {KvRow::Kind::kFp4, packed.codes, packed.scales};
    }
  }
  return count;
}

// Some heads of a row: rotated, attention over its window and its selection, rotated back.
void V41Step::attend(int32_t layer, int64_t r, int32_t first_head, int32_t num_heads, V41Buffers::Scratch& scratch) {
  const V41Config& c = p_.config;
  const int64_t dim = c.head_dim, begin = (r * c.num_attention_heads + first_head) * dim;
  const bool compressed = c.compress_ratio(layer) > 0;
  const V41Rope& rope = compressed ? p_.compressed_rope : p_.plain_rope;
  const float* angles = (compressed ? b_.compressed_angles : b_.plain_angles).data() + r * c.qk_rope_head_dim;
  float *q = b_.q.data() + begin, *out = b_.attention.data() + begin;
  for (int32_t h = 0; h < num_heads; ++h) rope.rotate(q + h * dim, c.head_dim, angles);
  round_to_bf16(q, num_heads * dim, b_.q16.data() + begin, p_.isa);
  const int32_t count = attention_list(layer, r, scratch.list.data());
  sink_attention({.q = b_.q16.data() + begin, .rows = scratch.list.data(), .sinks = block(layer).attn_sink + first_head, .out = out,
                  .scratch = scratch.rows16.data(), .num_heads = num_heads, .head_dim = c.head_dim, .num_rows = count},
                 p_.isa);
  for (int32_t h = 0; h < num_heads; ++h) rope.rotate(out + h * dim, c.head_dim, angles, true);
  round_to_bf16(out, num_heads * dim, b_.attention16.data() + begin, p_.isa);
}

// The step's last window rows go into the rings; only now, since attention still read what they replace.
void V41Step::store_window(int32_t layer, Team& team) {
  const int64_t dim = p_.config.head_dim;
  const auto [begin, end] = team.range(static_cast<int64_t>(batch_.sequences.size()));
  for (int64_t s = begin; s < end; ++s) {
    const SequenceRows& seq = batch_.sequences[static_cast<size_t>(s)];
    const int32_t last = seq.start + seq.num_rows;
    const size_t next = static_cast<size_t>(s) + 1;
    const int64_t first_row = sequence_first_[static_cast<size_t>(s)];
    const int64_t end_row = next < sequence_first_.size() ? sequence_first_[next] : num_rows();
    for (int64_t r = first_row; r < end_row; ++r) {
      const int32_t position = rows_[static_cast<size_t>(r)].position;
      if (position < last - p_.layout.ring_rows()) continue;
      const auto packed = p_.layout.window_row(seq.state, layer, position);
      std::copy_n(reinterpret_cast<const uint8_t*>(b_.window_codes.data() + r * dim), dim, packed.codes);
      std::copy_n(reinterpret_cast<const uint8_t*>(b_.window_scales.data() + r * dim / 32), dim / 32, packed.scales);
    }
  }
}

// Grouped projection to a low rank, the first of two back to the stream's width. Its units are dealt out as heads are in attend_rows().
void V41Step::project_low(int32_t layer, Team& team) {
  const V41Config& c = p_.config;
  const V41Block& w = block(layer);
  const int64_t width = int64_t{c.num_attention_heads} * c.head_dim, low = int64_t{c.o_groups} * c.o_lora_rank;
  const auto [begin, end] = team.range(low / kUnit);
  float* out = scratch_of(team).unit.data();
  for (int64_t unit = begin; unit < end; ++unit) {
    const int64_t column = unit * kUnit, group = column / c.o_lora_rank;
    const Fp8Matrix part = rows_of(w.wo_a, column, kUnit);
    for (int64_t first = 0; first < num_rows(); first += kUnitRows) {
      const int64_t rows = std::min(kUnitRows, num_rows() - first);
      linear({b_.attention16.data() + first * width + group * w.wo_a.cols, width, rows}, part, 0, kUnit, {out, kUnit, true}, p_.isa);
      for (int64_t j = 0; j < rows; ++j) round_to_fp8(out + j * kUnit, kUnit, b_.o_low8.data() + (first + j) * low + column, p_.isa);
    }
  }
}

}  // namespace deepinfer::model
