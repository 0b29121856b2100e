#include "model/dense_rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/check.h"

namespace deepinfer::model {
namespace {

// YaRN (Peng et al. 2023, eq. 23): 0 where a dimension turns often within the original context, 1 where it never turns whole.
class YarnRamp {
 public:
  YarnRamp(const RopeConfig& rope, int32_t head_dim) {
    const auto dimension = [&](double rotations) {
      return head_dim * std::log(rope.original_context / (2 * std::numbers::pi * rotations)) / (2 * std::log(rope.theta));
    };
    low_ = dimension(rope.beta_fast);
    high_ = dimension(rope.beta_slow);
    if (rope.truncate) {
      low_ = std::floor(low_);
      high_ = std::ceil(high_);
    }
    low_ = std::max(low_, 0.0);
    high_ = std::min(high_, head_dim - 1.0);
    if (low_ == high_) high_ += 0.001;
  }
  double operator()(double i) const { return std::clamp((i - low_) / (high_ - low_), 0.0, 1.0); }

 private:
  double low_, high_;
};

double llama3(const RopeConfig& rope, double base) {
  const double turns = rope.original_context * base / (2 * std::numbers::pi);  // within the original context
  if (turns > rope.high_freq_factor) return base;
  if (turns < rope.low_freq_factor) return base / rope.factor;
  const double s = (turns - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor);
  return base * ((1 - s) / rope.factor + s);
}

}  // namespace

std::vector<double> rope_frequencies(const RopeConfig& rope, int32_t head_dim, const std::vector<float>& divisors) {
  CHECK(divisors.empty() || divisors.size() == static_cast<size_t>(head_dim / 2));
  const YarnRamp ramp(rope, head_dim);
  std::vector<double> frequencies(static_cast<size_t>(head_dim / 2));
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const double base = std::pow(rope.theta, -2.0 * static_cast<double>(i) / head_dim);
    const double divisor = divisors.empty() ? 1 : divisors[i];
    switch (rope.scaling) {
      case RopeConfig::Scaling::kNone:
      case RopeConfig::Scaling::kNtk: frequencies[i] = base / divisor; break;
      case RopeConfig::Scaling::kLinear: frequencies[i] = base / divisor / rope.factor; break;
      case RopeConfig::Scaling::kYarn: {
        const double r = ramp(static_cast<double>(i));
        frequencies[i] = base * (r / rope.factor + 1 - r);
        break;
      }
      case RopeConfig::Scaling::kLlama3: frequencies[i] = llama3(rope, base); break;
    }
  }
  return frequencies;
}

}  // namespace deepinfer::model
