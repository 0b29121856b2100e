#include "model/dense_workspace.h"

#include <algorithm>

#include "base/check.h"

namespace deepinfer::model {
namespace {

AttentionPlan::Limits plan_limits(const ModelLimits& limits, int32_t max_rows, int32_t max_spans, int32_t num_threads) {
  return {.max_rows = max_rows, .max_spans = max_spans, .max_context = limits.max_context, .num_threads = num_threads};
}

}  // namespace

void DenseWorkspace::Matrix::reserve(int64_t max_rows, int64_t cols, int32_t num_threads) {
  cols_ = cols;
  copy_stride_ = (cols + 31) / 16 * 16;  // threads' copies share no cache line
  shared_.resize(static_cast<size_t>(max_rows * cols));
  copies_.resize(static_cast<size_t>(num_threads * copy_stride_));
}

DenseWorkspace::DenseWorkspace(const DenseConfig& config, const AttentionShape& attention, Isa isa, const ModelLimits& limits,
                               int32_t num_threads)
    : all_rows(attention, isa, plan_limits(limits, limits.max_rows, limits.max_sequences, num_threads)),
      logit_rows(attention, isa, plan_limits(limits, limits.max_logit_rows, limits.max_logit_rows, num_threads)),
      query_row_bytes(int64_t{attention.kv.padded_dim()} * (attention_query_format(attention.kv.format, isa) == QueryFormat::kBf16 ? 2 : 4)),
      limits_(limits) {
  const int64_t rows = limits.max_rows;
  residual.reserve(rows, config.hidden_size, num_threads);
  logit_residual.reserve(limits.max_logit_rows, config.hidden_size, num_threads);
  normed.reserve(rows, config.hidden_size, num_threads);
  gated.reserve(0, config.intermediate_size, num_threads);
  const auto floats = [rows](std::vector<float>& v, int64_t cols) { v.resize(static_cast<size_t>(rows * cols)); };
  floats(qkv, config.q_size() + 2 * config.kv_size());
  floats(attended, config.q_size());
  floats(projected, config.hidden_size);
  floats(gate_up, 2 * int64_t{config.intermediate_size});
  floats(angles, config.head_dim);
  queries.resize(static_cast<size_t>(rows * config.num_attention_heads * query_row_bytes));
  activations.reserve(rows, std::max({int64_t{config.hidden_size}, config.q_size(), int64_t{config.intermediate_size}}));
  runs.reserve(static_cast<size_t>(rows));
  positions.reserve(static_cast<size_t>(rows));
  spans_.reserve(static_cast<size_t>(std::max(limits.max_sequences, limits.max_logit_rows)));
}

void DenseWorkspace::plan(const StepBatch& batch) {
  const auto num_rows = static_cast<int32_t>(batch.tokens.size());
  CHECK(num_rows >= 1);
  CHECK(num_rows <= limits_.max_rows);
  CHECK(static_cast<int32_t>(batch.sequences.size()) <= limits_.max_sequences);
  CHECK(static_cast<int32_t>(batch.logit_rows.size()) <= limits_.max_logit_rows);
  runs.clear();
  positions.clear();
  spans_.clear();
  for (const SequenceRows& s : batch.sequences) {
    CHECK(s.num_rows >= 1);
    CHECK(s.first_row == static_cast<int32_t>(positions.size()));
    CHECK(s.start >= 0);
    CHECK(s.num_rows <= limits_.max_context - s.start);
    CHECK(static_cast<int64_t>(s.block_table.size()) * kKvBlockTokens >= int64_t{s.start} + s.num_rows);
    for (int32_t i = 0; i < s.num_rows;) {
      const int32_t position = s.start + i, slot = position % kKvBlockTokens;
      const int32_t n = std::min(kKvBlockTokens - slot, s.num_rows - i);
      runs.push_back({s.first_row + i, n, s.block_table[static_cast<size_t>(position / kKvBlockTokens)], slot});
      for (int32_t j = 0; j < n; ++j) positions.push_back(position + j);
      i += n;
    }
    spans_.push_back({.first_row = s.first_row, .num_rows = s.num_rows, .start = s.start, .first_out_row = s.first_row,
                      .block_table = s.block_table.data()});
  }
  CHECK(static_cast<int32_t>(positions.size()) == num_rows);
  all_rows.build(spans_);
  plan_logit_rows(batch);
}

// Neighbouring logit rows of a sequence are one span.
void DenseWorkspace::plan_logit_rows(const StepBatch& batch) {
  spans_.clear();
  size_t sequence = 0;
  int32_t last_row = -1;
  for (size_t i = 0; i < batch.logit_rows.size(); ++i) {
    const int32_t row = batch.logit_rows[i];
    CHECK(row > last_row);
    CHECK(row < static_cast<int32_t>(batch.tokens.size()));
    const size_t before = sequence;
    while (row >= batch.sequences[sequence].first_row + batch.sequences[sequence].num_rows) ++sequence;
    if (!spans_.empty() && row == last_row + 1 && sequence == before) {
      ++spans_.back().num_rows;
    } else {
      spans_.push_back({.first_row = row, .num_rows = 1, .start = positions[static_cast<size_t>(row)], .first_out_row = static_cast<int32_t>(i),
                        .block_table = batch.sequences[sequence].block_table.data()});
    }
    last_row = row;
  }
  logit_rows.build(spans_);
}

}  // namespace deepinfer::model
