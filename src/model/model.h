// What the engine knows of a model: its shape, how big a block of its KV is, and how to run one step over a flat batch of rows
// from many sequences. An architecture is one file in this folder and no branch elsewhere.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/result.h"
#include "core/request.h"
#include "kernels/team.h"

namespace deepinfer::model {

using BlockId = int32_t;  // index into the arena; block b lies at arena + b * block_bytes

// How a model's state is declared (architecture: "Model = KV groups + forward"). Dense models have one group of kind kGlobal.
struct KvGroup {
  enum class Kind : uint8_t { kGlobal, kWindow, kTail, kHistory };
  Kind kind = Kind::kGlobal;
  std::string name;
  int64_t bytes_per_block = 0;
};

struct KvLayout {
  int32_t block_tokens = 32;    // tokens a block covers
  int64_t block_bytes = 0;      // all groups and layers together; a multiple of 64
  int64_t state_bytes = 0;      // private to a sequence (windows, tails): beside its blocks, never shared; 0: none
  std::string format;           // names everything that changes the bytes: "dense-bf16-v1"; part of the root block key
  std::span<const KvGroup> groups;
};

// The rows of one sequence in a step: tokens [start, start + num_rows) of the sequence, whose KV for [0, start) is in its blocks.
struct SequenceRows {
  int32_t first_row;                     // index of its first row in StepBatch::tokens
  int32_t num_rows;                      // >= 1
  int32_t start;                         // position of the first row = tokens already in the cache
  std::span<const BlockId> block_table;  // covers start + num_rows tokens

  // For models with window groups only (KvLayout::state_bytes > 0); others ignore what follows.
  std::byte* state = nullptr;               // [state_bytes], 64-byte aligned; zeroed when the sequence begins
  std::span<const TokenId> previous{};      // the tokens before `start`, the last of them at the end; at least ModelInfo::history_tokens,
                                            // or all if there are fewer
  int32_t window_start = 0;                 // bounded replay: no window row below this position is read (encoder layers)
  int32_t global_start = 0;                 // blocks hold what ends below this position already: it is not written again
  int32_t decoder_start = 0;                // narrowing: rows below this position do not enter the decoder layers, whose windows
                                            // begin here; 0: none is left out
};

struct StepBatch {
  std::span<const TokenId> tokens;            // [num_rows], sequence after sequence
  std::span<const SequenceRows> sequences;
  std::span<const int32_t> logit_rows;        // rows whose logits are wanted, ascending
};

struct ModelInfo {
  std::string architecture;
  int32_t vocab_size = 0, max_context = 0, hidden_size = 0, num_layers = 0;
  uint64_t num_parameters = 0;
  uint64_t body_parameters = 0;  // of the products that every row goes through: without embedding and head
  uint64_t weight_bytes = 0;     // as packed in memory
  int32_t history_tokens = 0;    // see SequenceRows::previous
};

struct ModelLimits {
  int32_t max_rows = 512;        // tokens a step
  int32_t max_sequences = 64;    // sequences a step
  int32_t max_logit_rows = 64;
  int32_t max_context = 0;       // 0: the model's own
};

class Model {
 public:
  virtual ~Model() = default;
  virtual const ModelInfo& info() const = 0;
  virtual const KvLayout& kv_layout() const = 0;

  // Allocates the workspace for steps of at most these sizes. Called once, before the first forward.
  virtual void reserve(const ModelLimits& limits, Workers& workers) = 0;

  // Runs one step on all workers: writes the rows' KV into their blocks, and logits of logit_rows to
  // logits [logit_rows.size(), vocab_size] (row stride vocab_size). Reads and writes only blocks of the batch's tables.
  // A row's results depend on its sequence's tokens alone: not on the batch, the chunking, the threads, or who computed its blocks.
  // Allocates nothing after reserve(). Sizes within limits: CHECKed.
  virtual void forward(const StepBatch& batch, std::byte* arena, float* logits, Workers& workers) = 0;
};

}  // namespace deepinfer::model
