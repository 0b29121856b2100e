// The median of measurements.
#pragma once

#include <algorithm>
#include <vector>

namespace deepinfer {

// Of an even number of values the mean of the two in the middle. values must not be empty.
inline double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

}  // namespace deepinfer
