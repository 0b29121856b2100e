#include "image/patches.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <tuple>
#include <utility>

#include "image/resize.h"

namespace deepinfer::image {
namespace {

int64_t round_up_to(double x, int32_t unit) { return (static_cast<int64_t>(x) + unit - 1) / unit * unit; }

// Largest size of shape w x h whose grid costs at most max_tokens, in whole patches.
std::pair<int64_t, int64_t> shrink(double w, double h, const PatchOptions& o) {
  const double cell = o.patch_size * o.downsample_ratio;
  const double budget = o.max_tokens - 2, shape = h / w;
  const double columns = std::sqrt(budget / shape + 0.25) - 0.5, rows = columns * shape;  // of c * shape * (c + 1) = budget
  if (columns < 1) return {static_cast<int64_t>(cell), static_cast<int64_t>(std::floor(budget / 2) * cell)};
  if (rows < 1) return {static_cast<int64_t>((budget - 1) * cell), static_cast<int64_t>(cell)};
  const double factor = std::min(std::floor(columns) * cell / w, std::floor(rows) * cell / h);
  const auto whole = [&](double side) { return static_cast<int64_t>(std::floor(side * factor / o.patch_size)) * o.patch_size; };
  return {whole(w), whole(h)};
}

}  // namespace

Result<PatchPlan> plan_patches(int32_t width, int32_t height, const PatchOptions& o) {
  bool stretch = false;
  double w = width, h = height;
  if (o.max_wh_ratio && w > h * *o.max_wh_ratio) {
    w = std::floor(h * *o.max_wh_ratio);
    stretch = true;
  }
  if (w * h < static_cast<double>(o.min_pixels)) {
    const double factor = std::sqrt(static_cast<double>(o.min_pixels) / (w * h));
    w = std::floor(w * factor);
    h = std::floor(h * factor);
  }
  int64_t box_width = round_up_to(w, o.patch_size), box_height = round_up_to(h, o.patch_size);
  const auto grid = [&](int64_t side) { return (side / o.patch_size + o.downsample_ratio - 1) / o.downsample_ratio; };
  const auto cost = [&] { return grid(box_height) * (grid(box_width) + 1) + 2; };
  if (cost() > o.max_tokens) std::tie(box_width, box_height) = shrink(w, h, o);
  if (box_width < o.patch_size || box_height < o.patch_size || cost() > o.max_tokens) {
    return Error{Code::kUnsupported, fmt::format("an image of {} x {} pixels fits no grid of {} positions", width, height, o.max_tokens)};
  }
  PatchPlan plan = plan_of_fitted(static_cast<int32_t>(box_width), static_cast<int32_t>(box_height), o);
  plan.stretch = stretch;
  return plan;
}

PatchPlan plan_of_fitted(int32_t width, int32_t height, const PatchOptions& o) {
  const auto tokens = [&](int32_t patches) { return (patches + o.downsample_ratio - 1) / o.downsample_ratio; };
  PatchPlan plan{.width = width, .height = height, .patch_rows = height / o.patch_size, .patch_columns = width / o.patch_size};
  plan.token_rows = tokens(plan.patch_rows);
  plan.token_columns = tokens(plan.patch_columns);
  return plan;
}

Picture fit(const Picture& picture, const PatchPlan& plan) {
  return plan.stretch ? resize_bicubic(picture, plan.width, plan.height) : pad_to(picture, plan.width, plan.height);
}

std::vector<bf16> make_patches(std::span<const uint8_t> fitted, int32_t fitted_width, const PatchOptions& o) {
  std::array<bf16, 256> value;
  for (size_t v = 0; v < value.size(); ++v) value[v] = to_bf16((static_cast<float>(v) / 255.0f - 0.5f) / 0.5f);
  const auto side = static_cast<size_t>(o.patch_size), width = static_cast<size_t>(fitted_width), height = fitted.size() / (3 * width);
  std::vector<bf16> patches;
  patches.reserve(fitted.size());
  for (size_t top = 0; top < height; top += side)
    for (size_t left = 0; left < width; left += side)
      for (size_t channel = 0; channel < 3; ++channel)
        for (size_t y = top; y < top + side; ++y)
          for (size_t x = left; x < left + side; ++x) patches.push_back(value[fitted[(y * width + x) * 3 + channel]]);
  return patches;
}

}  // namespace deepinfer::image
