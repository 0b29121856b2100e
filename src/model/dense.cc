#include "model/dense.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "base/check.h"
#include "kernels/dequantize.h"
#include "kernels/rms_norm.h"
#include "kernels/rope.h"
#include "kernels/silu_mul.h"
#include "model/dense_rope.h"
#include "model/dense_workspace.h"

namespace deepinfer::model {
namespace {

struct DenseLayer {
  std::vector<float> attention_norm, ffn_norm;
  std::vector<float> q_norm, k_norm;        // [head_dim], or empty
  std::vector<float> qkv_bias, output_bias; // or empty
  std::unique_ptr<Linear> qkv, output, gate_up, down;
  int32_t window = 0;
};

std::vector<float> to_floats(const TensorView* tensor) {
  if (tensor == nullptr) return {};
  std::vector<float> out(static_cast<size_t>(tensor->num_elements()));
  dequantize(tensor->dtype, tensor->data.data(), out.data(), tensor->num_elements());
  return out;
}

const float* data_or_null(const std::vector<float>& v) { return v.empty() ? nullptr : v.data(); }

class DenseModel final : public Model {
 public:
  DenseModel(const DenseConfig& config, const DenseWeights& weights, std::unique_ptr<Checkpoint> checkpoint, const DenseOptions& options,
             Workers& workers);

  const ModelInfo& info() const override { return info_; }
  const KvLayout& kv_layout() const override { return kv_layout_; }
  StepCost cost(const StepShape& shape) const override;
  void reserve(const ModelLimits& limits, Workers& workers) override;
  Result<> forward(const StepBatch& batch, std::byte* arena, float* logits, Workers& workers) override;

 private:
  using Rows = DenseWorkspace::Rows;
  struct Step;  // one thread's view of a step

  std::unique_ptr<Linear> pack(std::initializer_list<const TensorView*> parts, int64_t cols, Workers& workers);
  DenseLayer make_layer(const DenseLayerWeights& w, int32_t window, Workers& workers);
  void describe();

  const DenseConfig config_;
  const DenseOptions options_;
  const std::unique_ptr<Checkpoint> checkpoint_;
  const TensorView* embedding_;
  std::vector<DenseLayer> layers_;
  std::vector<float> output_norm_;
  std::unique_ptr<Linear> head_;
  std::vector<double> rope_frequencies_;
  AttentionShape attention_;
  ModelInfo info_;
  double body_products_ = 0;  // of a row: without embedding and head
  KvLayout kv_layout_;
  KvGroup kv_group_;
  std::unique_ptr<DenseWorkspace> workspace_;
};

// ---- loading ----

DenseModel::DenseModel(const DenseConfig& config, const DenseWeights& weights, std::unique_ptr<Checkpoint> checkpoint,
                       const DenseOptions& options, Workers& workers)
    : config_(config), options_(options), checkpoint_(std::move(checkpoint)), embedding_(weights.embedding),
      output_norm_(to_floats(weights.output_norm)),
      rope_frequencies_(rope_frequencies(config.rope, config.head_dim, to_floats(weights.rope_divisors))),
      attention_{.kv = {.format = options.kv_format, .num_kv_heads = config.num_key_value_heads, .head_dim = config.head_dim},
                 .num_heads = config.num_attention_heads} {
  for (const TensorView& tensor : checkpoint_->tensors()) info_.num_parameters += static_cast<uint64_t>(tensor.num_elements());
  layers_.reserve(weights.layers.size());
  for (size_t i = 0; i < weights.layers.size(); ++i) layers_.push_back(make_layer(weights.layers[i], config.layer_window[i], workers));
  for (const DenseLayer& layer : layers_)
    for (const Linear* linear : {layer.qkv.get(), layer.output.get(), layer.gate_up.get(), layer.down.get()})
      body_products_ += static_cast<double>(linear->rows() * linear->cols());
  // A tied head shares its file bytes with the embedding. They are released all the same: the few rows that a step looks up come
  // back one by one.
  head_ = pack({weights.head}, config.hidden_size, workers);
  describe();
}

std::unique_ptr<Linear> DenseModel::pack(std::initializer_list<const TensorView*> parts, int64_t cols, Workers& workers) {
  std::vector<LinearSource> sources;
  for (const TensorView* part : parts) sources.push_back({.dtype = part->dtype, .data = part->data.data(), .rows = part->shape[0]});
  auto linear = Linear::pack(sources, cols, {.activations = options_.activations, .isa = options_.isa}, workers);
  for (const TensorView* part : parts) checkpoint_->release(*part);
  info_.weight_bytes += static_cast<uint64_t>(linear->packed_bytes());
  return linear;
}

DenseLayer DenseModel::make_layer(const DenseLayerWeights& w, int32_t window, Workers& workers) {
  DenseLayer layer;
  layer.attention_norm = to_floats(w.attention_norm);
  layer.ffn_norm = to_floats(w.ffn_norm);
  layer.q_norm = to_floats(w.q_norm);
  layer.k_norm = to_floats(w.k_norm);
  layer.output_bias = to_floats(w.output_bias);
  for (const TensorView* bias : {w.q_bias, w.k_bias, w.v_bias}) {
    const auto part = to_floats(bias);
    layer.qkv_bias.insert(layer.qkv_bias.end(), part.begin(), part.end());
  }
  layer.qkv = pack({w.q, w.k, w.v}, config_.hidden_size, workers);
  layer.output = pack({w.output}, config_.q_size(), workers);
  layer.gate_up = pack({w.gate, w.up}, config_.hidden_size, workers);
  layer.down = pack({w.down}, config_.intermediate_size, workers);
  layer.window = window;
  return layer;
}

StepCost DenseModel::cost(const StepShape& shape) const {
  const double head = static_cast<double>(info_.vocab_size) * info_.hidden_size;
  return {.weight_bytes = static_cast<double>(info_.weight_bytes),
          .state_bytes = static_cast<double>(shape.num_rows * shape.context) * static_cast<double>(kv_layout_.block_bytes) / kv_layout_.block_tokens,
          .products = static_cast<double>(shape.num_rows) * body_products_ + static_cast<double>(shape.num_logit_rows) * head,
          .integer_products = options_.activations == Activations::kFast};
}

void DenseModel::describe() {
  info_.architecture = std::string(dense_architecture_name(config_.architecture));
  info_.vocab_size = config_.vocab_size;
  info_.max_context = config_.max_context;
  info_.hidden_size = config_.hidden_size;
  info_.num_layers = config_.num_hidden_layers;
  kv_layout_.block_tokens = kKvBlockTokens;
  kv_layout_.block_bytes = config_.num_hidden_layers * attention_.kv.layer_bytes();
  // The instruction set and the activations change the last bits of what is stored.
  kv_layout_.format = "dense-" + std::string(kv_format_name(options_.kv_format)) + "-v1-" + std::string(isa_name(options_.isa)) +
                      (options_.activations == Activations::kF32 ? "-f32" : "-fast");
  kv_group_ = {.kind = KvGroup::Kind::kGlobal, .name = "kv", .bytes_per_block = kv_layout_.block_bytes};
  kv_layout_.groups = std::span(&kv_group_, 1);
}

void DenseModel::reserve(const ModelLimits& limits, Workers& workers) {
  CHECK(workspace_ == nullptr);
  ModelLimits l = limits;
  l.max_context = limits.max_context > 0 ? std::min(limits.max_context, config_.max_context) : config_.max_context;
  workspace_ = std::make_unique<DenseWorkspace>(config_, attention_, options_.isa, l, workers.size());
}

// ---- a step ----

struct DenseModel::Step {
  const DenseModel& m;
  DenseWorkspace& ws;
  const StepBatch& batch;
  std::byte* arena;
  float* logits;
  Team& team;
  int64_t num_rows = static_cast<int64_t>(batch.tokens.size());
  Rows mine = DenseWorkspace::own_rows(num_rows, team);
  float* x = ws.residual.base(mine, team);  // [num_rows, hidden]: the residual stream

  void run();
  void embed();
  void store_keys_values(const DenseLayer& layer, int64_t layer_offset);
  void store_row(const DenseLayer& layer, const KvRun& run, int32_t i, int32_t kv_head, std::byte* head_block);
  void attend(const DenseLayer& layer, int64_t layer_offset, AttentionPlan& plan);
  void keep_logit_rows();

  // x += delta (null: nothing), then y = linear(norm(x)). Ends without a barrier.
  void norm_and_multiply(const float* delta, const std::vector<float>& weight, const Linear& linear, const float* bias, float* y);
  void multiply(const float* input, int64_t ld, const Linear& linear, const float* bias, float* y, int64_t ldy);
  void gate_and_multiply(const Linear& down, float* y);
};

void DenseModel::Step::embed() {
  const TensorView& table = *m.embedding_;
  const int64_t hidden = m.config_.hidden_size, bytes = row_bytes(table.dtype, hidden);
  for (int64_t r = mine.begin; r < mine.end; ++r) {
    const TokenId token = batch.tokens[static_cast<size_t>(r)];
    CHECK(token >= 0);
    CHECK(token < m.config_.vocab_size);
    dequantize(table.dtype, table.data.data() + token * bytes, x + r * hidden, hidden);
  }
  const auto [begin, end] = team.range(num_rows);  // not `mine`: these are read by all threads
  for (int64_t r = begin; r < end; ++r) {
    rope_angles(ws.positions[static_cast<size_t>(r)], m.rope_frequencies_, m.config_.rope.attention_factor,
                ws.angles.data() + r * m.config_.head_dim);
  }
}

void DenseModel::Step::multiply(const float* input, int64_t ld, const Linear& linear, const float* bias, float* y, int64_t ldy) {
  linear.prepare(input, ld, num_rows, ws.activations, team);
  if (num_rows > 1) team.barrier();
  linear.apply(ws.activations, num_rows, bias, y, ldy, team);
}

void DenseModel::Step::norm_and_multiply(const float* delta, const std::vector<float>& weight, const Linear& linear, const float* bias,
                                         float* y) {
  const int64_t hidden = m.config_.hidden_size;
  float* normed = ws.normed.base(mine, team);
  rms_norm({.x = x + mine.begin * hidden, .ldx = hidden, .delta = delta == nullptr ? nullptr : delta + mine.begin * hidden, .ld_delta = hidden,
            .weight = weight.data(), .out = normed + mine.begin * hidden, .ld_out = hidden, .num_rows = mine.size(), .cols = hidden,
            .eps = m.config_.rms_norm_eps}, m.options_.isa);
  multiply(normed, hidden, linear, bias, y, linear.rows());
}

void DenseModel::Step::gate_and_multiply(const Linear& down, float* y) {
  const int64_t n = m.config_.intermediate_size;
  float* gate_up = ws.gate_up.data();
  // Many rows are gated in place, over their gates; a single row is read by all threads, so each writes its own.
  float* out = mine.own_copy ? ws.gated.base(mine, team) : gate_up;
  const int64_t ld_out = mine.own_copy ? n : 2 * n;
  silu_mul({.gate_up = gate_up + mine.begin * 2 * n, .ld_in = 2 * n, .out = out + mine.begin * ld_out, .ld_out = ld_out,
            .num_rows = mine.size(), .cols = n}, m.options_.isa);
  multiply(out, ld_out, down, nullptr, y, m.config_.hidden_size);
}

// Queries, keys and values of a block's rows and one KV head: normalised, rotated and put where attention reads them.
void DenseModel::Step::store_keys_values(const DenseLayer& layer, int64_t layer_offset) {
  const int64_t heads = m.config_.num_key_value_heads;
  const auto [begin, end] = team.range(static_cast<int64_t>(ws.runs.size()) * heads);
  for (int64_t unit = begin; unit < end; ++unit) {
    const KvRun& run = ws.runs[static_cast<size_t>(unit / heads)];
    const auto kv_head = static_cast<int32_t>(unit % heads);
    std::byte* head_block = arena + run.block * m.kv_layout_.block_bytes + layer_offset + kv_head * m.attention_.kv.head_block_bytes();
    for (int32_t i = 0; i < run.num_rows; ++i) store_row(layer, run, i, kv_head, head_block);
  }
}

void DenseModel::Step::store_row(const DenseLayer& layer, const KvRun& run, int32_t i, int32_t kv_head, std::byte* head_block) {
  const DenseConfig& c = m.config_;
  const int64_t row = run.first_row + i, dim = c.head_dim, group = m.attention_.group();
  float* qkv = ws.qkv.data() + row * (c.q_size() + 2 * c.kv_size());
  float* q = qkv + kv_head * group * dim;
  float* k = qkv + c.q_size() + kv_head * dim;
  const float* v = qkv + c.q_size() + c.kv_size() + kv_head * dim;
  const auto norm_and_rotate = [&](float* x, int64_t num_heads, const std::vector<float>& norm) {
    if (!norm.empty()) {
      rms_norm({.x = x, .ldx = dim, .delta = nullptr, .ld_delta = 0, .weight = norm.data(), .out = x, .ld_out = dim, .num_rows = num_heads,
                .cols = dim, .eps = c.rms_norm_eps}, m.options_.isa);
    }
    rope({.x = x, .cos_sin = ws.angles.data() + row * dim, .num_heads = num_heads, .head_dim = dim, .interleaved = c.rope.interleaved},
         m.options_.isa);
  };
  norm_and_rotate(q, group, layer.q_norm);
  norm_and_rotate(k, 1, layer.k_norm);
  kv_store(m.attention_.kv, k, v, run.slot + i, head_block);
  const QueryFormat format = attention_query_format(m.attention_.kv.format, m.options_.isa);
  std::byte* out = ws.queries.data() + (kv_head * num_rows + row) * group * ws.query_row_bytes;
  for (int64_t j = 0; j < group; ++j) {
    query_store(q + j * dim, c.head_dim, m.attention_.kv.padded_dim(), format, out + j * ws.query_row_bytes);
  }
}

void DenseModel::Step::attend(const DenseLayer& layer, int64_t layer_offset, AttentionPlan& plan) {
  attention({.queries = ws.queries.data(), .num_rows = static_cast<int64_t>(batch.tokens.size()), .arena = arena,
             .block_bytes = m.kv_layout_.block_bytes, .layer_offset = layer_offset,
             .scale = 1 / std::sqrt(static_cast<float>(m.config_.head_dim)), .window = layer.window, .out = ws.attended.data(),
             .ld_out = m.config_.q_size()}, plan, team);
}

// From here on the step has only the rows whose logits are wanted; attention has written its results for them next to each other.
void DenseModel::Step::keep_logit_rows() {
  const auto wanted = static_cast<int64_t>(batch.logit_rows.size());
  if (wanted == num_rows) return;
  const int64_t hidden = m.config_.hidden_size;
  const float* all = ws.residual.shared();  // more than one row, so not in copies
  num_rows = wanted;
  mine = DenseWorkspace::own_rows(num_rows, team);
  x = ws.logit_residual.base(mine, team);
  for (int64_t i = mine.begin; i < mine.end; ++i) {
    std::copy_n(all + batch.logit_rows[static_cast<size_t>(i)] * hidden, hidden, x + i * hidden);
  }
}

void DenseModel::Step::run() {
  embed();
  const int64_t hidden = m.config_.hidden_size;
  const float* delta = nullptr;  // what the last product adds to the residual stream, not added yet
  float* projected = ws.projected.data();
  for (size_t l = 0; l < m.layers_.size(); ++l) {
    const DenseLayer& layer = m.layers_[l];
    const int64_t layer_offset = static_cast<int64_t>(l) * m.attention_.kv.layer_bytes();
    const bool last = l + 1 == m.layers_.size();
    norm_and_multiply(delta, layer.attention_norm, *layer.qkv, data_or_null(layer.qkv_bias), ws.qkv.data());
    team.barrier();
    store_keys_values(layer, layer_offset);
    team.barrier();
    if (last && batch.logit_rows.empty()) return;
    attend(layer, layer_offset, last ? ws.logit_rows : ws.all_rows);
    if (last) keep_logit_rows();
    team.barrier();
    multiply(ws.attended.data(), m.config_.q_size(), *layer.output, data_or_null(layer.output_bias), projected, hidden);
    team.barrier();
    norm_and_multiply(projected, layer.ffn_norm, *layer.gate_up, nullptr, ws.gate_up.data());
    team.barrier();
    gate_and_multiply(*layer.down, projected);
    team.barrier();
    delta = projected;
  }
  norm_and_multiply(delta, m.output_norm_, *m.head_, nullptr, logits);
}

Result<> DenseModel::forward(const StepBatch& batch, std::byte* arena, float* logits, Workers& workers) {
  CHECK(workspace_ != nullptr);
  workspace_->plan(batch);
  workers.run([&](Team& team) {
    Step step{.m = *this, .ws = *workspace_, .batch = batch, .arena = arena, .logits = logits, .team = team};
    step.run();
  });
  return {};
}

}  // namespace

std::unique_ptr<Model> make_dense_model(const DenseConfig& config, const DenseWeights& weights, std::unique_ptr<Checkpoint> checkpoint,
                                        const DenseOptions& options, Workers& workers) {
  return std::make_unique<DenseModel>(config, weights, std::move(checkpoint), options, workers);
}

}  // namespace deepinfer::model
