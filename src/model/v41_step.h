// One step of a DeepSeek-V4.1 model: its rows, and the buffers in which they pass through the layers. Internal to v41*.cc.
// A buffer holds one row of the step per row, contiguous; "active" rows are those that the layer at hand still computes.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/hyper_connection.h"
#include "model/model.h"
#include "model/v41.h"
#include "model/v41_math.h"
#include "model/v41_state.h"
#include "model/v41_weights.h"

namespace deepinfer::model {

struct V41Row {
  int32_t sequence;  // index into StepBatch::sequences
  int32_t position;
  TokenId token;
  bool image;        // a position inside an image span
};

// A compressed row that a step produces: the rows of its tokens (both the same for ratio 1).
struct V41Group {
  int32_t sequence;
  int32_t index;      // among the sequence's compressed rows
  int32_t last_row;   // in the step
  int32_t first_row;  // in the step; -1: its token came in an earlier step and waits in the state
};

// fp8 activations of the active rows.
struct V41Packed {
  std::vector<e4m3> codes;
  std::vector<e8m0> scales;
  void reserve(int64_t rows, int64_t cols) {
    codes.resize(static_cast<size_t>(rows * cols));
    scales.resize(static_cast<size_t>(rows * cols / 32));
  }
  void pack(const float* x, int64_t row, int64_t cols) { quantize(x, codes.data() + row * cols, scales.data() + row * cols / 32, cols); }
  Fp8Rows rows(int64_t num_rows) const { return {codes.data(), scales.data(), num_rows}; }

 private:
  static void quantize(const float* x, e4m3* codes, e8m0* scales, int64_t cols);
};

struct V41Buffers {
  std::vector<float> streams, pre, u, x, y;       // [rows, 4, d], [rows, 4], [rows, d] …
  std::vector<HyperCoefficients> coefficients;    // of the sublayer at hand
  V41Packed packed_x, packed_qr, packed_o, packed_wide;
  std::vector<float> qr, q, kv, attention, o_low; // [rows, q_lora], [rows, heads * head_dim], [rows, head_dim], like q, [rows, groups * o_lora]
  std::vector<e4m3> window_codes;                 // [rows, head_dim]: the layer's window rows, as the ring will hold them
  std::vector<e8m0> window_scales;
  std::vector<float> compressor_kv, compressor_gate;  // [rows, head_dim]
  std::vector<float> latent, index_key;           // [groups, head_dim], [groups, index_head_dim]
  std::vector<float> index_q, index_weights;      // [rows, index heads * index dim], [rows, index heads]
  std::vector<int32_t> selected, num_selected;    // [rows, topk], [rows]: of the current index source
  std::vector<uint8_t> candidates;                // [rows, max_blocks]: chosen or not
  int64_t max_blocks = 0;
  std::vector<float> plain_angles, compressed_angles;  // [rows, rope dims]
  std::vector<float> gate_logits, route_weights;  // [rows, experts], [rows, k]
  std::vector<int32_t> routes;                    // [rows, k]
  std::vector<float> expert_in1, expert_in3, expert_out;  // [rows, inter] twice, [rows, d]
  std::vector<float> engram_in, engram_out;       // [rows, columns * dim], [rows, 5 d]
  std::vector<float> final_x;                     // [logit rows, d]
  std::vector<int32_t> expert_choices;            // [rows * k]: places in routes, grouped by expert, rows ascending
  std::vector<int32_t> expert_first;              // [experts + 1]: where an expert's choices begin
  std::vector<float> expert_sum;                  // [rows, d]
  std::vector<std::vector<float>> scratch;        // one a thread
  std::vector<std::vector<int32_t>> int_scratch;
  std::vector<std::vector<const float*>> pointer_scratch;
};

// The parts of a model that a step reads.
struct V41Parts {
  const V41Config& config;
  const V41Weights& weights;
  const EngramHash& engram;
  const V41Layout& layout;
  const V41Rope& plain_rope;
  const V41Rope& compressed_rope;
};

class V41Step {
 public:
  V41Step(const V41Parts& parts, V41Buffers& buffers) : p_(parts), b_(buffers) {}

  // Lays out the rows of a step; on the calling thread. Then run() on all threads.
  void plan(const StepBatch& batch, std::byte* arena, float* logits, V41Observer* observer);
  void run(Team& team);

  static void reserve(const V41Parts& parts, const ModelLimits& limits, int num_threads, V41Buffers& buffers);

 private:
  // v41.cc
  void plan_rows();
  void plan_groups(int32_t source);
  void embed(Team& team);
  void engram(int32_t layer, Team& team);
  void engram_row(int32_t table, int64_t row, float* out) const;
  void enter_sublayer(std::string_view name, int32_t layer, const HyperWeights& hyper, const bf16* norm, Team& team);
  void leave_sublayer(Team& team);
  void narrow(Team& team);
  void head(Team& team);
  void observe(std::string_view name, int32_t layer, int64_t width, float* data, Team& team);
  void observe(std::string_view name, int32_t layer, int64_t width, const int32_t* data, Team& team);
  // v41_attention.cc
  void attention(int32_t layer, Team& team);
  void query_inputs(int32_t layer, Team& team);
  void compressor_inputs(int32_t layer, Team& team);
  void compress(int32_t layer, Team& team);
  void queries(int32_t layer, Team& team);
  void select(int32_t layer, int64_t row, int thread);
  void score_row(int32_t source, int64_t row, int32_t visible, float* scores, int thread);
  void attend(int32_t layer, int64_t row, int thread);
  void store_window(int32_t layer, Team& team);
  void project_output(int32_t layer, Team& team);
  // v41_experts.cc
  void experts(int32_t layer, Team& team);
  void route(int32_t layer, Team& team);
  void group_choices(int32_t num_experts);
  void run_expert(const V41Expert& expert, int32_t number, Team& team);
  void run_shared(const V41SharedExpert& shared, Team& team);

  const V41Block& block(int32_t layer) const { return p_.weights.layers[static_cast<size_t>(layer)]; }
  int32_t source_number(int32_t layer) const;  // of the layer's KV source among all of them
  const SequenceRows& sequence(const V41Row& row) const { return batch_.sequences[static_cast<size_t>(row.sequence)]; }
  std::byte* kv_block(const V41Row& row, int32_t block) const {
    return arena_ + int64_t{sequence(row).block_table[static_cast<size_t>(block)]} * p_.layout.block_bytes();
  }
  bool in_decoder(int32_t layer) const { return layer >= p_.config.narrowing_layer(); }
  int64_t num_rows() const { return static_cast<int64_t>(rows_.size()); }

  V41Parts p_;
  V41Buffers& b_;
  StepBatch batch_;
  std::byte* arena_ = nullptr;
  float* logits_ = nullptr;
  V41Observer* observer_ = nullptr;
  std::vector<V41Row> rows_;               // active
  std::vector<int32_t> sequence_first_;    // first active row of each sequence
  std::vector<int32_t> step_row_;          // active row -> row of the step
  std::vector<V41Group> groups_;           // of the KV source at hand
  std::vector<int32_t> kept_;              // active rows that remain after narrowing
};

}  // namespace deepinfer::model
