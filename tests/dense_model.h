// A dense model with its own threads and blocks, for tests that compare logits: sequences live in scattered blocks, and rows go in by
// any schedule.
#pragma once

#include <gtest/gtest.h>
#include <simdjson.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "base/rng.h"
#include "model/load.h"

namespace deepinfer {

// tests/golden/dense/<name>, or the larger remainder beside the repository.
inline std::string golden_path(const std::string& name) {
  const std::string own = std::string(DI_SOURCE_DIR "/tests/golden/dense/") + name;
  return std::filesystem::exists(own) ? own : std::string(DI_SOURCE_DIR "/../shared/golden/dense/") + name;
}

// A real model's file, or "" if it was not fetched.
inline std::string real_model_path(const std::string& file) {
  const char* folder = std::getenv("DEEPINFER_TEST_MODELS");
  const char* home = std::getenv("HOME");
  const std::string path = (folder != nullptr ? std::string(folder) : std::string(home != nullptr ? home : "") + "/.cache/deepinfer/models") + "/" + file;
  return std::filesystem::exists(path) ? path : "";
}

inline std::vector<TokenId> token_ids(simdjson::dom::element array) {
  std::vector<TokenId> ids;
  for (const int64_t id : array.get_array()) ids.push_back(static_cast<TokenId>(id));
  return ids;
}

inline double log_sum_exp(const float* logits, int64_t n) {
  const double max = *std::max_element(logits, logits + n);
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += std::exp(logits[i] - max);
  return max + std::log(sum);
}

class DenseRunner {
 public:
  // Rows of one sequence for a step; want: which of them (from 0) give logits, ascending.
  struct Chunk {
    int32_t sequence;
    std::vector<TokenId> tokens;
    std::vector<int32_t> want;
  };

  DenseRunner(const std::string& path, const model::LoadOptions& options, int num_threads, int32_t num_blocks, int32_t max_rows = 512,
              int32_t max_logit_rows = 512, uint64_t seed = 1)
      : workers_(Workers::create(num_threads, false)), rng_(seed) {
    auto loaded = model::load_model(path, options, *workers_);
    if (!loaded) {
      ADD_FAILURE() << loaded.error().message;
      return;
    }
    model_ = std::move(loaded->model);
    model_->reserve({.max_rows = max_rows, .max_sequences = 16, .max_logit_rows = max_logit_rows, .max_context = 0}, *workers_);
    arena_.resize(static_cast<size_t>(num_blocks * model_->kv_layout().block_bytes) + 64, std::byte{0xff});
    for (int32_t b = 0; b < num_blocks; ++b) free_.push_back(b);
    for (size_t i = free_.size(); i > 1; --i) std::swap(free_[i - 1], free_[rng_.below(i)]);
  }
  bool ok() const { return model_ != nullptr; }
  const model::Model& model() const { return *model_; }
  int64_t vocab() const { return model_->info().vocab_size; }

  int32_t add_sequence() {
    sequences_.emplace_back();
    return static_cast<int32_t>(sequences_.size()) - 1;
  }
  int32_t length(int32_t sequence) const { return sequences_[static_cast<size_t>(sequence)].length; }
  // Its blocks are given to others, with what is in them.
  void drop_sequence(int32_t sequence) {
    Sequence& s = sequences_[static_cast<size_t>(sequence)];
    free_.insert(free_.end(), s.blocks.begin(), s.blocks.end());
    s = {};
  }

  // One step; logits of the wanted rows, chunk after chunk.
  std::vector<float> step(const std::vector<Chunk>& chunks) {
    std::vector<TokenId> tokens;
    std::vector<int32_t> logit_rows;
    std::vector<model::SequenceRows> rows;
    for (const Chunk& c : chunks) {
      Sequence& s = sequences_[static_cast<size_t>(c.sequence)];
      const auto first = static_cast<int32_t>(tokens.size()), n = static_cast<int32_t>(c.tokens.size());
      tokens.insert(tokens.end(), c.tokens.begin(), c.tokens.end());
      for (const int32_t w : c.want) logit_rows.push_back(first + w);
      while (static_cast<int32_t>(s.blocks.size()) * kKvBlockTokens < s.length + n) {
        s.blocks.push_back(free_.back());
        free_.pop_back();
      }
      rows.push_back({.first_row = first, .num_rows = n, .start = s.length, .block_table = s.blocks});
      s.length += n;
    }
    std::vector<float> logits(logit_rows.size() * static_cast<size_t>(vocab()));
    std::byte* arena = arena_.data() + (64 - reinterpret_cast<uintptr_t>(arena_.data()) % 64) % 64;
    model_->forward({.tokens = tokens, .sequences = rows, .logit_rows = logit_rows}, arena, logits.data(), *workers_).value();
    return logits;
  }

  // Runs a prompt as a new sequence in chunks; calls f(row, logits) for every row for which want(row).
  template <class Want, class F>
  void run(const std::vector<TokenId>& ids, int32_t chunk, Want want, F f) {
    const int32_t s = add_sequence();
    const auto n = static_cast<int32_t>(ids.size());
    for (int32_t begin = 0; begin < n; begin += chunk) {
      const int32_t end = std::min(begin + chunk, n);
      Chunk c{.sequence = s, .tokens = {ids.begin() + begin, ids.begin() + end}, .want = {}};
      for (int32_t i = begin; i < end; ++i) {
        if (want(i)) c.want.push_back(i - begin);
      }
      const auto logits = step({c});
      for (size_t i = 0; i < c.want.size(); ++i) f(begin + c.want[i], logits.data() + static_cast<int64_t>(i) * vocab());
    }
    drop_sequence(s);
  }

 private:
  struct Sequence {
    std::vector<model::BlockId> blocks;
    int32_t length = 0;
  };
  std::unique_ptr<Workers> workers_;
  Rng rng_;
  std::unique_ptr<model::Model> model_;
  std::vector<std::byte> arena_;
  std::vector<model::BlockId> free_;
  std::vector<Sequence> sequences_;
};

}  // namespace deepinfer
