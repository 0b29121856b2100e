// engine/fake_model.h: a model for tests of the engine: exact, fast and suspicious. A row's KV is a hash of its token, its position and of
// all rows before it as they lie in the arena; its logits are a hash of the same. So a wrong, stale or overwritten block anywhere in
// a table gives other tokens, as in a real model it would, only surely and at once.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstring>
#include <limits>
#include <memory>
#include <thread>
#include <vector>

#include "base/check.h"
#include "model/model.h"

namespace deepinfer::engine {

struct FakeModelOptions {
  int32_t vocab_size = 97;
  int32_t max_context = 4096;
  int32_t block_tokens = 4;
  TokenId poison = -1;  // a row of this token has NaN logits
  int32_t step_us = 0;  // how long a step takes at least
};

class FakeModel final : public model::Model {
 public:
  explicit FakeModel(const FakeModelOptions& options) : options_(options) {
    info_.architecture = "fake";
    info_.vocab_size = options.vocab_size;
    info_.max_context = options.max_context;
    layout_.block_tokens = options.block_tokens;
    layout_.block_bytes = (options.block_tokens * 8 + 63) / 64 * 64;
    layout_.format = "fake-v1";
  }

  const model::ModelInfo& info() const override { return info_; }
  const model::KvLayout& kv_layout() const override { return layout_; }
  void reserve(const model::ModelLimits& limits, Workers&) override { limits_ = limits; }

  void forward(const model::StepBatch& batch, std::byte* arena, float* logits, Workers& workers) override {
    CHECK(static_cast<int32_t>(batch.tokens.size()) <= limits_.max_rows);
    CHECK(static_cast<int32_t>(batch.sequences.size()) <= limits_.max_sequences);
    CHECK(static_cast<int32_t>(batch.logit_rows.size()) <= limits_.max_logit_rows);
    CHECK(std::is_sorted(batch.logit_rows.begin(), batch.logit_rows.end()));
    if (options_.step_us > 0) std::this_thread::sleep_for(std::chrono::microseconds(options_.step_us));
    workers.run([&](Team& team) {
      team.reset_tickets();
      const auto n = static_cast<int64_t>(batch.sequences.size());
      for (int64_t i = team.next_ticket(); i < n; i = team.next_ticket()) {
        forward_sequence(batch, batch.sequences[static_cast<size_t>(i)], arena, logits);
      }
    });
  }

 private:
  static uint64_t mix(uint64_t a, uint64_t b) {
    uint64_t x = (a ^ (b + 0x9E3779B97F4A7C15)) * 0xBF58476D1CE4E5B9;
    x = (x ^ x >> 27) * 0x94D049BB133111EB;
    return x ^ x >> 31;
  }
  std::byte* slot(const model::SequenceRows& rows, int32_t position, std::byte* arena) const {
    const auto block = static_cast<size_t>(position / options_.block_tokens);
    CHECK(block < rows.block_table.size());
    return arena + rows.block_table[block] * layout_.block_bytes + position % options_.block_tokens * 8;
  }
  void forward_sequence(const model::StepBatch& batch, const model::SequenceRows& rows, std::byte* arena, float* logits) const {
    CHECK(rows.start + rows.num_rows <= limits_.max_context);
    uint64_t state = 0;
    for (int32_t p = 0; p < rows.start; ++p) {
      uint64_t value;
      std::memcpy(&value, slot(rows, p, arena), 8);
      state = mix(state, value);
    }
    for (int32_t i = 0; i < rows.num_rows; ++i) {
      const int32_t row = rows.first_row + i, position = rows.start + i;
      const TokenId token = batch.tokens[static_cast<size_t>(row)];
      const uint64_t value = mix(mix(state, static_cast<uint64_t>(token)), static_cast<uint64_t>(position));
      std::memcpy(slot(rows, position, arena), &value, 8);
      state = mix(state, value);
      const auto it = std::lower_bound(batch.logit_rows.begin(), batch.logit_rows.end(), row);
      if (it == batch.logit_rows.end() || *it != row) continue;
      float* out = logits + (it - batch.logit_rows.begin()) * options_.vocab_size;
      for (int32_t v = 0; v < options_.vocab_size; ++v) {
        out[v] = static_cast<float>(mix(state, static_cast<uint64_t>(v)) >> 40) * 0x1p-21f - 4.0f;  // in [-4, 4)
      }
      if (token == options_.poison) out[options_.vocab_size / 2] = std::numeric_limits<float>::quiet_NaN();
    }
  }

  const FakeModelOptions options_;
  model::ModelInfo info_;
  model::KvLayout layout_;
  model::ModelLimits limits_;
};

}  // namespace deepinfer::engine
