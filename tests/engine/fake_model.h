// engine/fake_model.h: a model for tests of the engine: exact, fast and suspicious. A row's KV is a hash of its token, its position and of
// all rows before it as they lie in the arena; its logits are a hash of the same. So a wrong, stale or overwritten block anywhere in
// a table gives other tokens, as in a real model it would, only surely and at once.
//
// With a window it has state too, as DeepSeek-V4.1 has: two encoder layers, each of which hashes the last `window` rows of the one before,
// leave the row's KV; a decoder layer with a window of its own hashes that of all rows. So what follows a bounded replay depends on
// where its windows began.
//
// With vision a picture's rows are hashes of its pixels, and a row of one is hashed instead of its token.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstring>
#include <limits>
#include <memory>
#include <thread>
#include <vector>

#include "base/check.h"
#include "base/hash.h"
#include "model/image_encoder.h"
#include "model/model.h"

namespace deepinfer::engine {

struct FakeModelOptions {
  int32_t vocab_size = 97;
  int32_t max_context = 4096;
  int32_t block_tokens = 4;
  TokenId poison = -1;  // a row of this token has NaN logits
  TokenId unreadable = -1;  // a step with a row of this token fails when it has written its blocks
  int32_t step_us = 0;  // how long a step takes at least
  int32_t window = 0;   // rows that a window holds
  bool vision = false;
};

// Rows that are known from the start, given out after so many products; a piece is one of them at least.
class ReadyImage final : public model::ImageEncoding {
 public:
  explicit ReadyImage(std::vector<bf16> rows, double num_products = 1) : rows_(std::move(rows)), num_left_(num_products) {}
  bool advance(double num_products) override { return (num_left_ -= std::max(num_products, 1.0)) <= 0; }
  std::vector<bf16> take_rows() override { return std::move(rows_); }

 private:
  std::vector<bf16> rows_;
  double num_left_;
};

// Pictures of 2 x 2 pixels a position; token 96 stands for them.
class FakeImageEncoder final : public model::ImageEncoder {
 public:
  static constexpr int64_t kHidden = 4;  // a row is one hash
  static constexpr double kProducts = 126;  // of a picture; a row of a step costs one
  TokenId token_id() const override { return 96; }
  const image::PatchOptions& patch_options() const override { return options_; }
  std::unique_ptr<model::ImageEncoding> begin(std::vector<bf16> patches, const image::PatchPlan& plan, Workers&) const override {
    std::vector<bf16> rows(static_cast<size_t>(plan.num_tokens() * kHidden));
    const uint64_t seed = xxh3_64(std::as_bytes(std::span(patches)));
    for (int32_t i = 0; i < plan.num_tokens(); ++i) {
      const uint64_t hash = xxh3_64(std::as_bytes(std::span(&i, 1)), seed);
      std::memcpy(&rows[static_cast<size_t>(i * kHidden)], &hash, sizeof(hash));
    }
    return std::make_unique<ReadyImage>(std::move(rows), kProducts);
  }

 private:
  const image::PatchOptions options_{.patch_size = 2, .downsample_ratio = 1, .max_tokens = 24, .min_pixels = 1, .max_wh_ratio = {}};
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
    layout_.replay_tokens = options.window;
    layout_.exact_replay_tokens = kNumWindows * (options.window - 1) * (options.window > 0);
    layout_.state_bytes = (int64_t{kNumWindows} * options.window * 8 + 63) / 64 * 64;
  }

  const model::ModelInfo& info() const override { return info_; }
  const model::KvLayout& kv_layout() const override { return layout_; }
  model::StepCost cost(const model::StepShape& shape) const override { return {.products = static_cast<double>(shape.num_rows)}; }
  const model::ImageEncoder* image_encoder() const override { return options_.vision ? &image_encoder_ : nullptr; }
  void reserve(const model::ModelLimits& limits, Workers&) override { limits_ = limits; }

  Result<> forward(const model::StepBatch& batch, std::byte* arena, float* logits, Workers& workers) override {
    CHECK(static_cast<int32_t>(batch.tokens.size()) <= limits_.max_rows);
    CHECK(static_cast<int32_t>(batch.sequences.size()) <= limits_.max_sequences);
    CHECK(static_cast<int32_t>(batch.logit_rows.size()) <= limits_.max_logit_rows);
    CHECK(std::is_sorted(batch.logit_rows.begin(), batch.logit_rows.end()));
    if (options_.step_us > 0) std::this_thread::sleep_for(std::chrono::microseconds(options_.step_us));
    workers.run([&](Team& team) {
      team.reset_tickets();
      const auto n = static_cast<int64_t>(batch.sequences.size());
      for (int64_t i = team.next_ticket(); i < n; i = team.next_ticket()) {
        const model::SequenceRows& rows = batch.sequences[static_cast<size_t>(i)];
        if (options_.window > 0) forward_windows(batch, rows, arena, logits);
        else forward_sequence(batch, rows, arena, logits);
      }
    });
    if (std::find(batch.tokens.begin(), batch.tokens.end(), options_.unreadable) != batch.tokens.end()) return Error{Code::kIo, "weights.bin: Input/output error"};
    return {};
  }

 private:
  static constexpr int32_t kNumWindows = 3;

  static uint64_t mix(uint64_t a, uint64_t b) {
    uint64_t x = (a ^ (b + 0x9E3779B97F4A7C15)) * 0xBF58476D1CE4E5B9;
    x = (x ^ x >> 27) * 0x94D049BB133111EB;
    return x ^ x >> 31;
  }
  // What a row stands for: its token, or its part of a picture, which must be there.
  uint64_t meaning(const model::StepBatch& batch, const model::SequenceRows& rows, int32_t i) const {
    const TokenId token = batch.tokens[static_cast<size_t>(rows.first_row + i)];
    for (const model::ImageRows& image : rows.images) {
      const int32_t at = rows.start + i - image.start;
      if (at < 0 || at >= image.num_rows) continue;
      CHECK(token == image_encoder_.token_id());
      CHECK(image.rows != nullptr);
      uint64_t hash;
      std::memcpy(&hash, image.rows + at * FakeImageEncoder::kHidden, sizeof(hash));
      return hash;
    }
    return static_cast<uint64_t>(token);
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
      const uint64_t value = mix(mix(state, meaning(batch, rows, i)), static_cast<uint64_t>(position));
      std::memcpy(slot(rows, position, arena), &value, 8);
      state = mix(state, value);
      write_logits(batch, row, state, logits);
    }
  }
  void write_logits(const model::StepBatch& batch, int32_t row, uint64_t state, float* logits) const {
    const auto it = std::lower_bound(batch.logit_rows.begin(), batch.logit_rows.end(), row);
    if (it == batch.logit_rows.end() || *it != row) return;
    float* out = logits + (it - batch.logit_rows.begin()) * options_.vocab_size;
    for (int32_t v = 0; v < options_.vocab_size; ++v) {
      out[v] = static_cast<float>(mix(state, static_cast<uint64_t>(v)) >> 40) * 0x1p-21f - 4.0f;  // in [-4, 4)
    }
    if (batch.tokens[static_cast<size_t>(row)] == options_.poison) out[options_.vocab_size / 2] = std::numeric_limits<float>::quiet_NaN();
  }

  // A hash of the rows that a window of `layer` shows to `position`.
  uint64_t read_window(const model::SequenceRows& rows, int32_t layer, int32_t start, int32_t position) const {
    uint64_t hash = static_cast<uint64_t>(layer);
    for (int32_t p = std::max(start, position - options_.window + 1); p <= position; ++p) hash = mix(hash, ring(rows, layer)[p % options_.window]);
    return hash;
  }
  uint64_t* ring(const model::SequenceRows& rows, int32_t layer) const {
    return reinterpret_cast<uint64_t*>(rows.state) + int64_t{layer} * options_.window;
  }
  void forward_windows(const model::StepBatch& batch, const model::SequenceRows& rows, std::byte* arena, float* logits) const {
    CHECK(static_cast<int32_t>(rows.previous.size()) == rows.start);
    CHECK(rows.global_start % options_.block_tokens == 0);
    for (int32_t i = 0; i < rows.num_rows; ++i) {
      const int32_t row = rows.first_row + i, position = rows.start + i, at = position % options_.window;
      const auto before = i > 0 ? batch.tokens[static_cast<size_t>(row - 1)] : rows.start > 0 ? rows.previous.back() : 0;
      ring(rows, 0)[at] = mix(meaning(batch, rows, i) << 20 | static_cast<uint64_t>(before), static_cast<uint64_t>(position));
      ring(rows, 1)[at] = read_window(rows, 0, rows.window_start, position);
      const uint64_t encoded = read_window(rows, 1, rows.window_start, position);
      if (position >= rows.global_start) std::memcpy(slot(rows, position, arena), &encoded, 8);
      if (position < rows.decoder_start) continue;
      ring(rows, 2)[at] = encoded;
      uint64_t state = read_window(rows, 2, rows.decoder_start, position);
      for (int32_t p = 0; p <= position; ++p) {
        uint64_t value;
        std::memcpy(&value, slot(rows, p, arena), 8);
        state = mix(state, value);
      }
      write_logits(batch, row, state, logits);
    }
  }

  const FakeModelOptions options_;
  const FakeImageEncoder image_encoder_;
  model::ModelInfo info_;
  model::KvLayout layout_;
  model::ModelLimits limits_;
};

}  // namespace deepinfer::engine
