// What the engine knows of a model: its shape, how big a block of its KV is, and how to run one step over a flat batch of rows
// from many sequences. An architecture is one file in this folder and no branch elsewhere.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/half.h"
#include "base/result.h"
#include "core/request.h"
#include "kernels/team.h"

namespace deepinfer::model {

using BlockId = int32_t;  // index into the arena; block b lies at arena + b * block_bytes

// How a model's state is declared: cache, replay, rollback and whoever moves a sequence elsewhere read it here, and nowhere else do they
// know of an architecture. Dense models have one group of kind kGlobal.
//   kGlobal   rows in the blocks: content-addressed, shareable, written once
//   kWindow   a ring of the last rows, private: rebuilt by replay
//   kTail     tokens that wait for others, private: rebuilt by replay
//   kHistory  token ids before a row: they are with the sequence
struct KvGroup {
  enum class Kind : uint8_t { kGlobal, kWindow, kTail, kHistory };
  Kind kind = Kind::kGlobal;
  std::string name;
  int64_t bytes_per_block = 0;     // kGlobal
  int64_t bytes_per_sequence = 0;  // kWindow, kTail: their part of the state
  int32_t tokens = 0;              // before a row, that it reaches: window less the row itself, waiting tokens, history
};

struct KvLayout {
  int32_t block_tokens = 32;    // tokens a block covers
  int64_t block_bytes = 0;      // all groups and layers together; a multiple of 64
  int64_t state_bytes = 0;      // private to a sequence (windows, tails): beside its blocks, never shared; 0: none
  std::string format;           // names everything that changes the bytes: "dense-bf16-v1"; part of the root block key
  std::span<const KvGroup> groups;
  int32_t rollback_rows = 0;        // so many of the last rows may be taken back by running others in their place; without state: all

  // Of models with state, 0 else. Rows to run again before a position at which the blocks are known and the state is not:
  int32_t replay_tokens = 0;        // bounded replay: a window's worth, whose own windows begin there. Also what the decoder layers
                                    // need of a prompt's end (narrowing)
  int32_t exact_replay_tokens = 0;  // so many that all that follows has the bits of a run without a gap, if no row is left out of the decoder
};

// A picture in a sequence: what its positions take instead of their token's embedding.
struct ImageRows {
  int32_t start = 0, num_rows = 0;  // positions [start, start + num_rows) of the sequence
  const bf16* rows = nullptr;       // [num_rows, hidden_size]
};

// The rows of one sequence in a step: tokens [start, start + num_rows) of the sequence, whose KV for [0, start) is in its blocks.
struct SequenceRows {
  int32_t first_row;                     // index of its first row in StepBatch::tokens
  int32_t num_rows;                      // >= 1
  int32_t start;                         // position of the first row = tokens already in the cache
  std::span<const BlockId> block_table;  // covers start + num_rows tokens

  // For models with window groups only (KvLayout::state_bytes > 0); others ignore what follows.
  std::byte* state = nullptr;               // [state_bytes], 64-byte aligned; any bytes when the sequence begins
  std::span<const TokenId> previous{};      // the tokens before `start`, the last of them at the end; as many as a kHistory group
                                            // asks for, or all if there are fewer
  int32_t window_start = 0;                 // bounded replay: no window row below this position is read (encoder layers)
  int32_t global_start = 0;                 // a multiple of block_tokens: blocks below hold their rows already and are not written
  int32_t decoder_start = 0;                // narrowing: rows below this position do not enter the decoder layers, whose windows
                                            // begin here; 0: none is left out
  std::span<const ImageRows> images{};      // of the sequence, ascending; those that no row of the step meets may be left out
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
  uint64_t weight_bytes = 0;  // as packed in memory
};

// What a step has to read and to multiply, at the least: how fast a machine could run it follows from that (apps/measure.h). Products of
// attention are left out.
struct StepShape {
  int64_t num_rows = 1;
  int64_t num_decoder_rows = 1;  // of them, those that narrowing lets into the decoder layers; of models without: all
  int64_t num_logit_rows = 1;
  int64_t context = 0;           // tokens before each row, whose state attention reads; 0: leave the state out
};
struct StepCost {
  double weight_bytes = 0;  // of experts, what so many rows choose on average if each expert is as likely as any other
  double state_bytes = 0;
  double products = 0;             // multiplications of a weight with an activation; an operation is half of one
  bool integer_products = false;   // with 8-bit activations; else with bf16's
};

struct ModelLimits {
  int32_t max_rows = 512;        // tokens a step
  int32_t max_sequences = 64;    // sequences a step
  int32_t max_logit_rows = 64;
  int32_t max_context = 0;       // 0: the model's own
};

class ImageEncoder;

class Model {
 public:
  virtual ~Model() = default;
  virtual const ModelInfo& info() const = 0;
  virtual const KvLayout& kv_layout() const = 0;
  virtual StepCost cost(const StepShape& shape) const = 0;
  virtual const ImageEncoder* image_encoder() const { return nullptr; }  // null: the model reads text only

  // Allocates the workspace for steps of at most these sizes. Called once, before the first forward.
  virtual void reserve(const ModelLimits& limits, Workers& workers) = 0;

  // Runs one step on all workers: writes the rows' KV into their blocks, and logits of logit_rows to
  // logits [logit_rows.size(), vocab_size] (row stride vocab_size). Reads and writes only blocks of the batch's tables.
  // A row's results depend on its sequence's tokens alone: not on the batch, the chunking, the threads, or who computed its blocks.
  // Allocates nothing after reserve(). Sizes within limits: CHECKed.
  // Errors: kIo, kCorruption (weights that are read from disk as they are needed); logits, state and what was written into blocks are then not to be used.
  virtual Result<> forward(const StepBatch& batch, std::byte* arena, float* logits, Workers& workers) = 0;
};

}  // namespace deepinfer::model
