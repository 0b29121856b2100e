// The rotation frequencies that a RopeConfig means.
#pragma once

#include <vector>

#include "model/dense_config.h"

namespace deepinfer::model {

// w(i) of every pair i < head_dim / 2, as RopeConfig defines it. divisors: [head_dim / 2] or empty.
std::vector<double> rope_frequencies(const RopeConfig& rope, int32_t head_dim, const std::vector<float>& divisors);

}  // namespace deepinfer::model
