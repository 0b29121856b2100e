#include "image/resize.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

#include "base/check.h"

namespace deepinfer::image {
namespace {

constexpr int kPrecision = 22;  // bits after the point: 8 of a byte and 2 for overshoot leave 22 of 32
constexpr uint8_t kGrey = 127;

double cubic(double x) {
  constexpr double a = -0.5;
  x = std::fabs(x);
  if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  if (x < 2) return (((x - 5) * x + 8) * x - 4) * a;
  return 0;
}

// What an output pixel reads of a line: `count` inputs from `first`, with weights in fixed point.
struct Taps {
  int32_t first, count;
  const int32_t* weights;
};

class Filter {
 public:
  Filter(int32_t in, int32_t out) {
    const double scale = static_cast<double>(in) / out, widening = std::max(scale, 1.0);
    const double support = 2 * widening, narrowing = 1 / widening;
    stride_ = static_cast<size_t>(std::ceil(support)) * 2 + 1;
    weights_.resize(stride_ * static_cast<size_t>(out));
    std::vector<double> w(stride_);
    for (int32_t x = 0; x < out; ++x) {
      const double center = (x + 0.5) * scale;
      const int32_t first = std::max(0, static_cast<int32_t>(std::floor(center - support + 0.5)));
      const int32_t count = std::min(in, static_cast<int32_t>(std::floor(center + support + 0.5))) - first;
      double sum = 0;
      for (int32_t i = 0; i < count; ++i) sum += w[static_cast<size_t>(i)] = cubic((i + first - center + 0.5) * narrowing);
      int32_t* out_weights = weights_.data() + static_cast<size_t>(x) * stride_;
      for (int32_t i = 0; i < count; ++i) {
        const double fixed = (sum != 0 ? w[static_cast<size_t>(i)] / sum : w[static_cast<size_t>(i)]) * (1 << kPrecision);
        out_weights[i] = static_cast<int32_t>(fixed + (fixed < 0 ? -0.5 : 0.5));
      }
      bounds_.push_back({first, count});
    }
  }
  Taps at(int32_t x) const {
    const auto [first, count] = bounds_[static_cast<size_t>(x)];
    return {first, count, weights_.data() + static_cast<size_t>(x) * stride_};
  }

 private:
  std::vector<std::pair<int32_t, int32_t>> bounds_;
  std::vector<int32_t> weights_;
  size_t stride_;
};

uint8_t to_byte(int32_t fixed) { return static_cast<uint8_t>(std::clamp(fixed >> kPrecision, 0, 255)); }

// One channel of one output pixel: inputs `step` bytes apart.
uint8_t apply(const Taps& taps, const uint8_t* line, size_t step) {
  int32_t sum = 1 << (kPrecision - 1);
  const uint8_t* in = line + static_cast<size_t>(taps.first) * step;
  for (int32_t i = 0; i < taps.count; ++i, in += step) sum += *in * taps.weights[i];
  return to_byte(sum);
}

Picture resize_width(const Picture& in, int32_t width) {
  Picture out{.width = width, .height = in.height, .rgb = {}};
  out.rgb.resize(static_cast<size_t>(width) * static_cast<size_t>(in.height) * 3);
  const Filter filter(in.width, width);
  uint8_t* to = out.rgb.data();
  for (int32_t y = 0; y < in.height; ++y) {
    const uint8_t* line = in.rgb.data() + static_cast<size_t>(y) * static_cast<size_t>(in.width) * 3;
    for (int32_t x = 0; x < width; ++x)
      for (size_t c = 0; c < 3; ++c) *to++ = apply(filter.at(x), line + c, 3);
  }
  return out;
}

Picture resize_height(const Picture& in, int32_t height) {
  Picture out{.width = in.width, .height = height, .rgb = {}};
  const size_t row = static_cast<size_t>(in.width) * 3;
  out.rgb.resize(row * static_cast<size_t>(height));
  const Filter filter(in.height, height);
  uint8_t* to = out.rgb.data();
  for (int32_t y = 0; y < height; ++y) {
    const Taps taps = filter.at(y);
    for (size_t x = 0; x < row; ++x) *to++ = apply(taps, in.rgb.data() + x, row);
  }
  return out;
}

// Python's round(): ties to even.
int32_t round_to_int(double x) { return std::max(1, static_cast<int32_t>(std::nearbyint(x))); }

}  // namespace

Picture resize_bicubic(const Picture& picture, int32_t width, int32_t height) {
  CHECK(width >= 1);
  CHECK(height >= 1);
  if (width == picture.width) return height == picture.height ? picture : resize_height(picture, height);
  Picture narrowed = resize_width(picture, width);
  return height == picture.height ? narrowed : resize_height(narrowed, height);
}

Picture pad_to(const Picture& picture, int32_t width, int32_t height) {
  const double shape = static_cast<double>(picture.width) / picture.height, target = static_cast<double>(width) / height;
  int32_t inner_width = width, inner_height = height;
  if (shape > target) inner_height = round_to_int(static_cast<double>(picture.height) / picture.width * width);
  if (shape < target) inner_width = round_to_int(static_cast<double>(picture.width) / picture.height * height);
  Picture inner = resize_bicubic(picture, inner_width, inner_height);
  if (inner_width == width && inner_height == height) return inner;

  Picture out{.width = width, .height = height, .rgb = std::vector<uint8_t>(static_cast<size_t>(width) * static_cast<size_t>(height) * 3, kGrey)};
  const auto left = static_cast<size_t>(std::nearbyint((width - inner_width) * 0.5)), top = static_cast<size_t>(std::nearbyint((height - inner_height) * 0.5));
  const size_t inner_row = static_cast<size_t>(inner_width) * 3, row = static_cast<size_t>(width) * 3;
  for (size_t y = 0; y < static_cast<size_t>(inner_height); ++y) {
    std::memcpy(out.rgb.data() + (top + y) * row + left * 3, inner.rgb.data() + y * inner_row, inner_row);
  }
  return out;
}

}  // namespace deepinfer::image
