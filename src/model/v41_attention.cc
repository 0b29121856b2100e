// The attention sublayer of a step: window rows, compressed rows and index keys of the sources, selection, attention, output.
#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "kernels/block_quantize.h"
#include "kernels/index_select.h"
#include "kernels/sink_attention.h"
#include "model/v41_step.h"

namespace deepinfer::model {
namespace {

constexpr int32_t kKeyTile = 64;  // index keys decoded at a time

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
  if (c.is_index_source(layer)) {
    team.reset_tickets();
    for (int64_t r; (r = team.next_ticket()) < num_rows();) select(layer, r, team.index());
    team.barrier();
    observe("index", layer, c.index_topk, b_.selected.data(), team);
  }
  team.reset_tickets();
  for (int64_t r; (r = team.next_ticket()) < num_rows();) attend(layer, r, team.index());
  team.barrier();
  store_window(layer, team);
  project_output(layer, team);
}

// Products of the normed input: query latent, window row, weights of the index heads. No barrier at the end.
void V41Step::query_inputs(int32_t layer, Team& team) {
  const V41Config& c = p_.config;
  const V41Block& w = block(layer);
  const Fp8Rows x = b_.packed_x.rows(num_rows());
  linear_fp8(x, w.wq_a, b_.qr.data(), c.q_lora_rank, team);
  linear_fp8(x, w.wkv, b_.kv.data(), c.head_dim, team);
  if (c.is_index_source(layer))
    linear_bf16(b_.x.data(), c.hidden_size, num_rows(), w.index_weights_proj, true, b_.index_weights.data(), c.index_n_heads, team);
}

// What a KV source compresses: pooled in f32 for ratio 2, a plain bf16 product for ratio 1. No barrier at the end.
void V41Step::compressor_inputs(int32_t layer, Team& team) {
  const V41Config& c = p_.config;
  const V41Block& w = block(layer);
  const bool pooled = c.compress_ratio(layer) == 2;
  linear_bf16(b_.x.data(), c.hidden_size, num_rows(), w.compressor_wkv, !pooled, b_.compressor_kv.data(), c.head_dim, team);
  if (pooled) linear_bf16(b_.x.data(), c.hidden_size, num_rows(), w.compressor_wgate, false, b_.compressor_gate.data(), c.head_dim, team);
}

// Makes the compressed rows and index keys that the step completes and writes them into their blocks; keeps pending tokens.
void V41Step::compress(int32_t layer, Team& team) {
  const V41Config& c = p_.config;
  const V41Block& w = block(layer);
  const int32_t source = source_number(layer), dim = c.head_dim, ratio = c.compress_ratio(layer);
  if (team.index() == 0) plan_groups(source);
  team.barrier();
  const int64_t num_groups = static_cast<int64_t>(groups_.size());
  const auto [begin, end] = team.range(num_groups);
  for (int64_t g = begin; g < end; ++g) {
    const V41Group& group = groups_[static_cast<size_t>(g)];
    float* latent = b_.latent.data() + g * dim;
    const float* kv1 = b_.compressor_kv.data() + int64_t{group.last_row} * dim;
    if (ratio == 1) {
      std::copy_n(kv1, dim, latent);
    } else {
      const V41Row& row = rows_[static_cast<size_t>(group.last_row)];
      const float* waiting = group.first_row < 0 ? p_.layout.pending(sequence(row).state, source, row.position - 1) : nullptr;
      const float* kv0 = waiting != nullptr ? waiting : b_.compressor_kv.data() + int64_t{group.first_row} * dim;
      const float* gate0 = waiting != nullptr ? waiting + dim : b_.compressor_gate.data() + int64_t{group.first_row} * dim;
      const float* gate1 = b_.compressor_gate.data() + int64_t{group.last_row} * dim;
      for (int32_t i = 0; i < dim; ++i) {
        const float top = std::max(gate0[i], gate1[i]), e0 = std::exp(gate0[i] - top), e1 = std::exp(gate1[i] - top);
        latent[i] = round_bf16(kv0[i] * (e0 / (e0 + e1)) + kv1[i] * (e1 / (e0 + e1)));
      }
    }
    v41_rms_norm(latent, w.compressor_norm, dim, c.rms_norm_eps, latent);
  }
  team.barrier();
  linear_bf16(b_.latent.data(), dim, num_groups, w.index_wk, true, b_.index_key.data(), c.index_head_dim, team);
  team.barrier();
  std::vector<float>& angles = b_.scratch[static_cast<size_t>(team.index())];
  for (int64_t g = begin; g < end; ++g) {
    const V41Group& group = groups_[static_cast<size_t>(g)];
    const V41Row& row = rows_[static_cast<size_t>(group.last_row)];
    std::byte* kv = kv_block(row, p_.layout.block_of(source, group.index));
    p_.compressed_rope.angles(int64_t{group.index} * ratio, angles.data());
    float* key = b_.index_key.data() + g * c.index_head_dim;
    v41_rms_norm(key, w.index_k_norm, c.index_head_dim, c.rms_norm_eps, key);
    p_.compressed_rope.rotate(key, c.index_head_dim, angles.data());
    const auto packed_key = p_.layout.index_key(kv, source, group.index);
    quantize_fp4_e8m0(key, c.index_head_dim, packed_key.codes, scales8(packed_key.scales));
    float* latent = b_.latent.data() + g * dim;
    p_.compressed_rope.rotate(latent, dim, angles.data());
    const auto packed_row = p_.layout.main_row(kv, source, group.index);
    quantize_fp4_e4m3(latent, dim, packed_row.codes, fp8(packed_row.scales));
  }
  team.barrier();
  if (ratio == 2) {  // the last tokens of each sequence wait for partners, or for the draft to be taken back
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
  team.barrier();
}

// Query heads, index queries and window rows, rotated and rounded.
void V41Step::queries(int32_t layer, Team& team) {
  const V41Config& c = p_.config;
  const V41Block& w = block(layer);
  const int64_t dim = c.head_dim, width = int64_t{c.num_attention_heads} * dim, rope_dims = c.qk_rope_head_dim;
  const bool compressed = c.compress_ratio(layer) > 0;
  const V41Rope& rope = compressed ? p_.compressed_rope : p_.plain_rope;
  const float* angles = compressed ? b_.compressed_angles.data() : b_.plain_angles.data();
  const auto [begin, end] = team.range(num_rows());
  for (int64_t r = begin; r < end; ++r) {
    float* qr = b_.qr.data() + r * c.q_lora_rank;
    v41_rms_norm(qr, w.q_norm, c.q_lora_rank, c.rms_norm_eps, qr);
    b_.packed_qr.pack(qr, r, c.q_lora_rank);
    float* kv = b_.kv.data() + r * dim;
    v41_rms_norm(kv, w.kv_norm, dim, c.rms_norm_eps, kv);
    rope.rotate(kv, c.head_dim, angles + r * rope_dims);
    e4m3* codes = b_.window_codes.data() + r * dim;
    e8m0* scales = b_.window_scales.data() + r * dim / 32;
    quantize_fp8(kv, dim, 32, codes, scales);
    dequantize_fp8(codes, scales, dim, 32, kv);
  }
  team.barrier();
  observe("window_rows", layer, dim, b_.kv.data(), team);
  linear_fp8(b_.packed_qr.rows(num_rows()), w.wq_b, b_.q.data(), width, team);
  const int64_t index_width = int64_t{c.index_n_heads} * c.index_head_dim;
  if (c.is_index_source(layer)) linear_fp8(b_.packed_qr.rows(num_rows()), w.index_wq_b, b_.index_q.data(), index_width, team);
  team.barrier();
  const float weight_scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(c.index_head_dim)) / std::sqrt(static_cast<double>(c.index_n_heads)));
  for (int64_t r = begin; r < end; ++r) {
    const float* at = angles + r * rope_dims;
    for (int32_t h = 0; h < c.num_attention_heads; ++h) rope.rotate(b_.q.data() + r * width + h * dim, c.head_dim, at);
    if (!c.is_index_source(layer)) continue;
    uint8_t codes[4096 / 2];
    e8m0 scales[4096 / 32];
    for (int32_t h = 0; h < c.index_n_heads; ++h) {
      float* q = b_.index_q.data() + r * index_width + int64_t{h} * c.index_head_dim;
      rope.rotate(q, c.index_head_dim, at);
      quantize_fp4_e8m0(q, c.index_head_dim, codes, scales);
      dequantize_fp4_e8m0(codes, scales, c.index_head_dim, q);
      float& weight = b_.index_weights[static_cast<size_t>(r * c.index_n_heads + h)];
      weight = round_bf16(weight * weight_scale);
    }
  }
  team.barrier();
}

// Scores of a row against the first `visible` index keys of a source.
void V41Step::score_row(int32_t source, int64_t r, int32_t visible, float* scores, int thread) {
  const V41Config& c = p_.config;
  std::vector<float>& scratch = b_.scratch[static_cast<size_t>(thread)];
  float* keys = scratch.data() + scratch.size() - static_cast<size_t>(kKeyTile * c.index_head_dim);
  for (int32_t first = 0; first < visible; first += kKeyTile) {
    const int32_t count = std::min(kKeyTile, visible - first);
    for (int32_t j = 0; j < count; ++j) {
      std::byte* kv = kv_block(rows_[static_cast<size_t>(r)], p_.layout.block_of(source, first + j));
      const auto packed = p_.layout.index_key(kv, source, first + j);
      dequantize_fp4_e8m0(packed.codes, scales8(packed.scales), c.index_head_dim, keys + int64_t{j} * c.index_head_dim);
    }
    index_scores({.q = b_.index_q.data() + r * c.index_n_heads * c.index_head_dim, .weights = b_.index_weights.data() + r * c.index_n_heads,
                  .keys = keys, .scores = scores + first, .num_heads = c.index_n_heads, .head_dim = c.index_head_dim, .num_keys = count});
  }
}

void V41Step::select(int32_t layer, int64_t r, int thread) {
  const V41Config& c = p_.config;
  const V41Row& row = rows_[static_cast<size_t>(r)];
  const int32_t visible = c.rows_after(layer, row.position + 1);
  float* scores = b_.scratch[static_cast<size_t>(thread)].data();
  int32_t* ints = b_.int_scratch[static_cast<size_t>(thread)].data();
  score_row(source_number(layer), r, visible, scores, thread);
  uint8_t* chosen = b_.candidates.data() + r * b_.max_blocks;
  const std::span<float> visible_scores(scores, static_cast<size_t>(visible));
  if (layer == c.candidate_source_layer_id)
    choose_blocks(visible_scores, c.candidate_block_size, c.candidate_topk_blocks, chosen, scores + visible, ints);
  if (c.is_reindex(layer))
    for (int32_t t = 0; t < visible; ++t)
      if (chosen[t / c.candidate_block_size] == 0) scores[t] = -std::numeric_limits<float>::infinity();
  int32_t* selected = b_.selected.data() + r * c.index_topk;
  const int32_t count = select_top(visible_scores, c.index_topk, selected, ints);
  std::fill(selected + count, selected + c.index_topk, -1);
  b_.num_selected[static_cast<size_t>(r)] = count;
}

// One row's attention over its window and its selection, rotated back.
void V41Step::attend(int32_t layer, int64_t r, int thread) {
  const V41Config& c = p_.config;
  const V41Row& row = rows_[static_cast<size_t>(r)];
  const SequenceRows& seq = sequence(row);
  const int64_t dim = c.head_dim, width = int64_t{c.num_attention_heads} * dim;
  float* decoded = b_.scratch[static_cast<size_t>(thread)].data();
  const float** list = b_.pointer_scratch[static_cast<size_t>(thread)].data();
  // The window has a fixed number of places, oldest first, the empty ones at the end: so the blocks of 64 in which the list is walked
  // do not depend on how the prompt was cut into steps.
  const int32_t floor = in_decoder(layer) ? seq.decoder_start : seq.window_start;
  const int32_t oldest = std::max({0, floor, row.position - c.sliding_window + 1});
  const int64_t first_row = sequence_first_[static_cast<size_t>(row.sequence)];
  const int32_t first_position = rows_[static_cast<size_t>(first_row)].position;
  int32_t count = 0;
  for (int32_t position = oldest; position <= row.position; ++position) {
    if (position >= first_position) {
      list[count++] = b_.kv.data() + (first_row + position - first_position) * dim;
    } else {
      const auto packed = p_.layout.window_row(seq.state, layer, position);
      dequantize_fp8(fp8(packed.codes), scales8(packed.scales), dim, 32, decoded);
      list[count++] = decoded;
      decoded += dim;
    }
  }
  while (count < c.sliding_window) list[count++] = nullptr;
  if (c.compress_ratio(layer) > 0) {
    const int32_t source = source_number(layer);
    const int32_t* selected = b_.selected.data() + r * c.index_topk;
    for (int32_t i = 0; i < b_.num_selected[static_cast<size_t>(r)]; ++i) {
      std::byte* kv = kv_block(row, p_.layout.block_of(source, selected[i]));
      const auto packed = p_.layout.main_row(kv, source, selected[i]);
      dequantize_fp4_e4m3(packed.codes, fp8(packed.scales), dim, decoded);
      list[count++] = decoded;
      decoded += dim;
    }
  }
  float* out = b_.attention.data() + r * width;
  sink_attention({.q = b_.q.data() + r * width, .rows = list, .sinks = block(layer).attn_sink, .out = out,
                  .num_heads = c.num_attention_heads, .head_dim = c.head_dim, .num_rows = count});
  const bool compressed = c.compress_ratio(layer) > 0;
  const V41Rope& rope = compressed ? p_.compressed_rope : p_.plain_rope;
  const float* angles = (compressed ? b_.compressed_angles : b_.plain_angles).data() + r * c.qk_rope_head_dim;
  for (int32_t h = 0; h < c.num_attention_heads; ++h) rope.rotate(out + h * dim, c.head_dim, angles, true);
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

// Grouped low-rank projection back to the stream's width.
void V41Step::project_output(int32_t layer, Team& team) {
  const V41Config& c = p_.config;
  const V41Block& w = block(layer);
  const int64_t width = int64_t{c.num_attention_heads} * c.head_dim, low = int64_t{c.o_groups} * c.o_lora_rank;
  for (int32_t g = 0; g < c.o_groups; ++g)
    linear_fp8_as_bf16(b_.attention.data() + g * w.wo_a.cols, width, num_rows(), rows_of(w.wo_a, int64_t{g} * c.o_lora_rank, c.o_lora_rank),
                       b_.o_low.data() + int64_t{g} * c.o_lora_rank, low, team);
  team.barrier();
  const auto [begin, end] = team.range(num_rows());
  for (int64_t r = begin; r < end; ++r) b_.packed_o.pack(b_.o_low.data() + r * low, r, low);
  team.barrier();
  linear_fp8(b_.packed_o.rows(num_rows()), w.wo_b, b_.y.data(), c.hidden_size, team);
  team.barrier();
}

}  // namespace deepinfer::model
