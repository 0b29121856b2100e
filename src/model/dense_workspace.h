// What a step of a dense model works in: sized once by reserve(), then constant. And the step's plan: which rows go where, made
// by the calling thread before the team starts, read by all.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "kernels/attention.h"
#include "model/dense_config.h"
#include "model/model.h"

namespace deepinfer::model {

// Consecutive rows of one sequence whose tokens lie in one block: the unit of work when keys and values are stored, since a
// block is written by one thread.
struct KvRun {
  int32_t first_row, num_rows;
  BlockId block;
  int32_t slot;  // of the first row
};

class DenseWorkspace {
 public:
  DenseWorkspace(const DenseConfig& config, const AttentionShape& attention, Isa isa, const ModelLimits& limits, int32_t num_threads);

  // Lays out one step; aborts if it exceeds the limits. The batch's block tables must live as long as the step.
  void plan(const StepBatch& batch);

  // A row-wise operation runs on rows that a thread owns. A single row belongs to every thread, each with its own copy.
  struct Rows {
    int64_t begin, end;
    bool own_copy;
    int64_t size() const { return end - begin; }
  };
  static Rows own_rows(int64_t num_rows, const Team& team) {
    if (num_rows == 1) return {0, 1, true};
    const auto [begin, end] = team.range(num_rows);
    return {begin, end, false};
  }

  // [max_rows, cols], and [num_threads, cols] for single rows.
  class Matrix {
   public:
    void reserve(int64_t max_rows, int64_t cols, int32_t num_threads);
    int64_t cols() const { return cols_; }
    // Base of the matrix as the thread sees it: its copy if rows.own_copy.
    float* base(const Rows& rows, const Team& team) { return rows.own_copy ? copies_.data() + team.index() * copy_stride_ : shared_.data(); }
    float* shared() { return shared_.data(); }

   private:
    int64_t cols_ = 0, copy_stride_ = 0;
    std::vector<float> shared_, copies_;
  };

  Matrix residual;         // [rows, hidden]
  Matrix logit_residual;   // [logit rows, hidden]: the rows that go on after the last layer's attention
  Matrix normed;           // [rows, hidden]
  Matrix gated;            // copies only: [threads, intermediate]; many rows are gated in place
  std::vector<float> qkv;        // [rows, q_size + 2 kv_size]
  std::vector<float> attended;   // [rows, q_size]
  std::vector<float> projected;  // [rows, hidden]
  std::vector<float> gate_up;    // [rows, 2 intermediate]
  std::vector<float> angles;     // [rows, 2, head_dim / 2]
  std::vector<std::byte> queries;
  ActivationBuffer activations;

  std::vector<KvRun> runs;
  std::vector<int32_t> positions;  // [rows]
  AttentionPlan all_rows, logit_rows;

  int64_t query_row_bytes;  // a head's query

 private:
  void plan_logit_rows(const StepBatch& batch);

  ModelLimits limits_;
  std::vector<AttentionSpan> spans_;
};

}  // namespace deepinfer::model
