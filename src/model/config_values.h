// Range checks that both spellings of a DenseConfig share. `where` names file and key: "x.gguf: metadata key llama.block_count".
#pragma once

#include <fmt/format.h>
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "model/dense_config.h"

namespace deepinfer::model {

inline Result<int32_t> checked_count(const std::string& where, int64_t value, int32_t min, int32_t max) {
  if (value < min || value > max)
    return Error{Code::kCorruption, fmt::format("{}: {} is not in {} to {}", where, value, min, max)};
  return static_cast<int32_t>(value);
}

// low <= value <= high; NaN is refused.
inline Result<double> checked_number(const std::string& where, double value, double low, double high) {
  if (!(value >= low && value <= high))
    return Error{Code::kCorruption, fmt::format("{}: {} is not in {} to {}", where, value, low, high)};
  return value;
}

inline Result<TokenId> checked_token(const std::string& where, int64_t value, int32_t vocab_size) {
  if (value < 0 || value >= vocab_size) {
    return Error{Code::kCorruption, fmt::format("{}: token id {} in a vocabulary of {}", where, value, vocab_size)};
  }
  return static_cast<TokenId>(value);
}

// A foreign string for a message: printable, quoted, cut to a bearable length.
inline std::string quoted(std::string_view text) { return fmt::format("{:?}", text.substr(0, 64)); }

inline void add_once(std::vector<TokenId>& ids, TokenId id) {
  if (std::find(ids.begin(), ids.end(), id) == ids.end()) ids.push_back(id);
}

// Bounds of the numbers of a rope configuration.
constexpr double kMinTheta = 1.0001, kMaxTheta = 1e12, kMaxRopeFactor = 1e6;

// Positions that a scaled model is good for. Files write either the original context or the extended one as the model's own.
inline int32_t extended_context(const RopeConfig& rope, int32_t max_position) {
  if (rope.scaling == RopeConfig::Scaling::kNone || rope.scaling == RopeConfig::Scaling::kLlama3) return max_position;
  const double extended = std::min(rope.original_context * rope.factor, double{DenseConfig::kMaxContext});
  return std::max(max_position, static_cast<int32_t>(extended));
}

inline double yarn_attention_factor(double factor, double mscale = 1) {
  return factor <= 1 ? 1 : 0.1 * mscale * std::log(factor) + 1;
}

}  // namespace deepinfer::model
