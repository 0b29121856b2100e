// One step of a DeepSeek-V4.1 model: its rows, and the buffers in which they pass through the layers. Internal to v41*.cc.
// A buffer holds one row of the step per row, contiguous; "active" rows are those that the layer at hand still computes.
#pragma once

#include <cstdint>
#include <new>
#include <span>
#include <vector>

#include "kernels/block_linear.h"
#include "kernels/hyper_connection.h"
#include "kernels/sink_attention.h"
#include "model/model.h"
#include "model/v41.h"
#include "model/v41_math.h"
#include "model/v41_memory.h"
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

// Memory of a step: 64-byte aligned, as the kernels' loads like it.
template <class T>
struct CacheLines {
  using value_type = T;
  static constexpr std::align_val_t kLine{64};
  CacheLines() = default;
  template <class U>
  CacheLines(const CacheLines<U>&) {}
  T* allocate(size_t n) { return static_cast<T*>(::operator new(n * sizeof(T), kLine)); }
  void deallocate(T* p, size_t) { ::operator delete(p, kLine); }
  bool operator==(const CacheLines&) const { return true; }
};
template <class T>
using V41Array = std::vector<T, CacheLines<T>>;

// Names that end in 16 hold bf16 numbers, in 8 bf16 numbers that went through fp8: what the products read.
struct V41Buffers {
  V41Array<float> streams, pre, u, x, y;          // [rows, 4, d], [rows, 4], [rows, d] …
  V41Array<float> hyper_dots;                     // [rows, 24]
  V41Array<bf16> x16, x8;                         // [rows, d]: input of the sublayer at hand
  std::vector<HyperCoefficients> coefficients;    // of the sublayer at hand
  V41Array<float> qr, q, kv, attention;           // [rows, q_lora], [rows, heads * head_dim], [rows, head_dim], like q
  V41Array<bf16> qr8, q16, kv16, attention16, o_low8;  // like qr, q, kv, q; [rows, groups * o_lora]
  std::vector<e4m3> window_codes;                 // [rows, head_dim]: the layer's window rows, as the ring will hold them
  std::vector<e8m0> window_scales;
  V41Array<float> compressor_kv, compressor_gate;  // [rows, head_dim]
  V41Array<float> latent, index_key;              // [groups, head_dim], [groups, index_head_dim]
  V41Array<bf16> latent16;
  V41Array<float> index_q, index_weights;         // [rows, index heads * index dim], [rows, index heads]: products as they come
  std::vector<int32_t> selected, num_selected;    // [rows, topk], [rows]: of the current index source
  std::vector<uint8_t> candidates;                // [rows, max_blocks]: chosen or not
  int64_t max_blocks = 0;
  std::vector<float> plain_angles, compressed_angles;  // [rows, rope dims]
  V41Array<float> gate_logits;                    // [rows, experts]
  std::vector<float> route_weights;               // [rows, k]
  std::vector<int32_t> routes;                    // [rows, k]
  std::vector<int32_t> expert_choices;            // [rows * k]: places in routes, grouped by expert, rows ascending
  std::vector<int32_t> expert_first;              // [experts + 1]: where an expert's choices begin
  std::vector<int32_t> expert_rows;               // [rows * k]: the rows of expert_choices
  V41Array<bf16> hidden8;                         // [rows * (k + 1), inter]: as expert_choices, then the shared expert's
  V41Array<bf16> engram8;                         // [rows, columns * dim]
  std::vector<int64_t> engram_ids;                // [rows, columns]: asked for ahead; only with V41Parts::memory
  std::vector<int32_t> wanted_experts;            // [experts]: likewise
  std::vector<int32_t> turn_experts;              // likewise: those of the turn, in the order in which they are there
  V41Array<float> engram_out;                     // [rows, 5 d]
  V41Array<bf16> final16;                         // [logit rows, d]
  struct Scratch {                                // one a thread
    V41Array<float> floats, unit;                 // unit: [kUnitRows, kUnitColumns]
    V41Array<float> index_q, index_weights, index_query;  // of the row being scored: rotated and rounded; as index_scores keeps them
    std::vector<int32_t> ints;
    V41Array<bf16> rows16;
    std::vector<KvRow> list;
  };
  std::vector<Scratch> scratch;
};

// The parts of a model that a step reads.
struct V41Parts {
  const V41Config& config;
  const V41Weights& weights;
  const EngramHash& engram;
  const V41Layout& layout;
  const V41Rope& plain_rope;
  const V41Rope& compressed_rope;
  Isa isa;
  V41Memory* memory;  // null: tables and experts are where the system has them
};

class V41Step {
 public:
  V41Step(const V41Parts& parts, V41Buffers& buffers) : p_(parts), b_(buffers) {}

  // Lays out the rows of a step; on the calling thread. Then run() on all threads.
  void plan(const StepBatch& batch, std::byte* arena, float* logits, V41Observer* observer);
  void run(Team& team);

  void reserve(const ModelLimits& limits, int num_threads);  // before the first plan

 private:
  // v41.cc
  void plan_rows();
  void plan_groups();
  const bf16* embedding(const V41Row& row) const;
  void embed(Team& team);
  void engram(int32_t layer, Team& team);
  void engram_ids(int32_t table, int64_t row, int64_t* ids) const;
  void engram_row(int32_t table, int64_t row, bf16* out) const;
  void want_engram_rows(int32_t table, int64_t first, int64_t count);
  void gather_engram_rows(int32_t table, Team& team);
  void enter_sublayer(std::string_view name, int32_t layer, const HyperWeights& hyper, const bf16* norm, Team& team);
  void enter_shared_rows(const HyperWeights& hyper, const bf16* norm, Team& team);
  void enter_row(int64_t row, const bf16* norm);
  void round_rows(int64_t begin, int64_t end);
  void weigh_streams(const HyperWeights& hyper, int64_t begin, int64_t end);
  void pass_mix_on(int64_t begin, int64_t end);
  void weigh_shared_row(const HyperWeights& hyper, int64_t row, Team& team);
  void leave_sublayer(Team& team);
  HyperParams hyper_params() const { return {p_.config.hidden_size, p_.config.rms_norm_eps, p_.config.hc_eps, p_.config.hc_sinkhorn_iters}; }
  // Few rows: the threads share the work on each row's streams, whose weights are megabytes in large models.
  bool shares_rows(const Team& team) const { return num_rows() < team.size(); }
  // Threads that share the rows attend to those heads whose output they project, if groups of heads can be dealt out evenly.
  bool keeps_groups(const Team& team) const { return shares_rows(team) && p_.config.o_groups % team.size() == 0; }
  void narrow(Team& team);
  void head(Team& team);
  void observe(std::string_view name, int32_t layer, int64_t width, float* data, Team& team);
  void observe(std::string_view name, int32_t layer, int64_t width, const int32_t* data, Team& team);
  void observe(std::string_view name, int32_t layer, int64_t width, const void* bytes, Team& team);
  void observe_engram_ids(int32_t layer, Team& team);
  // v41_attention.cc
  void attention(int32_t layer, Team& team);
  const std::vector<V41Group>& groups_of(int32_t layer) const { return groups_[p_.config.compress_ratio(layer) - 1]; }
  void query_inputs(int32_t layer, Team& team);
  void compressor_inputs(int32_t layer, Team& team);
  void compress(int32_t layer, Team& team);
  void latent_row(int32_t layer, int64_t group);
  void store_compressed(int32_t layer, int64_t group, float* angles);
  void store_pending(int32_t layer, Team& team);
  void queries(int32_t layer, Team& team);
  void select_rows(int32_t layer, Team& team);
  void select(int32_t layer, int64_t row, float* scores, V41Buffers::Scratch& scratch);
  void score_row(int32_t layer, int64_t row, int32_t first, int32_t end, float* scores, V41Buffers::Scratch& scratch);
  int32_t visible_rows(int32_t layer, int64_t row) const { return p_.config.rows_after(layer, rows_[static_cast<size_t>(row)].position + 1); }
  int32_t index_block(int32_t layer) const {  // keys that lie together: those of a block
    return V41Layout::kBlockTokens / p_.config.compress_ratio(p_.config.kv_source_layer_ids[static_cast<size_t>(source_number(layer))]);
  }
  void attend_rows(int32_t layer, Team& team);
  void attend(int32_t layer, int64_t row, int32_t first_head, int32_t num_heads, V41Buffers::Scratch& scratch);
  int32_t attention_list(int32_t layer, int64_t row, KvRow* list);
  void store_window(int32_t layer, Team& team);
  void project_low(int32_t layer, Team& team);
  // v41_experts.cc
  void experts(int32_t layer, Team& team);
  void route(int32_t layer, Team& team);
  void route_row(int32_t layer, int64_t row, float* scratch);
  void group_choices(int32_t num_experts);
  int64_t choices_of(size_t expert) const { return b_.expert_first[expert + 1] - b_.expert_first[expert]; }
  int32_t end_of_turn(int32_t first_expert) const;
  void want_experts(int32_t layer, int32_t first_expert);
  V41Expert expert_of(int32_t layer, size_t expert) const;
  void hidden_unit_of(size_t expert, const V41Expert& w, int64_t unit, Team& team);
  void shared_hidden_unit(int32_t layer, int64_t unit, Team& team);
  void hidden_units(int32_t layer, Team& team);
  void hidden_units_as_read(int32_t layer, int32_t end_expert, Team& team);
  void output_units(int32_t layer, int32_t first_expert, int32_t end_expert, Team& team);

  // Products whose outputs go through fp8 in blocks of 32 on their way to the next product are computed in units of 32 outputs by one
  // thread, so that the blocks are whole and no barrier lies between.
  static constexpr int64_t kUnit = 32, kUnitRows = 96, kUnitColumns = 128;
  Bf16Rows rows16(const V41Array<bf16>& values, int64_t cols) const { return {values.data(), cols, num_rows()}; }
  V41Buffers::Scratch& scratch_of(const Team& team) { return b_.scratch[static_cast<size_t>(team.index())]; }
  const V41Block& block(int32_t layer) const { return p_.weights.layers[static_cast<size_t>(layer)]; }
  int32_t source_number(int32_t layer) const;  // of the layer's KV source among all of them
  const SequenceRows& sequence(const V41Row& row) const { return batch_.sequences[static_cast<size_t>(row.sequence)]; }
  std::byte* kv_block(const V41Row& row, int32_t block) const {
    return arena_ + int64_t{sequence(row).block_table[static_cast<size_t>(block)]} * p_.layout.block_bytes();
  }
  bool bounds_experts() const { return p_.memory != nullptr && p_.memory->experts() != nullptr; }
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
  std::vector<V41Group> groups_[2];        // that the step completes, of KV sources of ratio 1 and 2
  std::vector<int32_t> kept_;              // active rows that remain after narrowing
};

}  // namespace deepinfer::model
