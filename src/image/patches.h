// From a picture to what the vision tower of DeepSeek-V4.1 reads: the size to bring it to, the grid of patches, and the patches.
// Source: the released image_processor.py of DeepSeek-V4.1-Flash (revision dba1be0a).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/half.h"
#include "base/result.h"
#include "image/picture.h"

namespace deepinfer::image {

struct PatchOptions {
  int32_t patch_size = 14;            // pixels a side
  int32_t downsample_ratio = 3;       // patches a side that one prompt position covers
  int32_t max_tokens = 1024;          // positions of one picture, start, row ends and end included
  int64_t min_pixels = 544 * 544;     // smaller pictures are enlarged to about as many
  std::optional<double> max_wh_ratio; // wider pictures are squeezed to it
};

struct PatchPlan {
  int32_t width = 0, height = 0;               // pixels after resizing: multiples of patch_size
  int32_t patch_rows = 0, patch_columns = 0;
  int32_t token_rows = 0, token_columns = 0;   // patches by downsample_ratio, rounded up
  bool stretch = false;                        // the picture fills the size, whatever its shape
  // A start, the rows with a row end each, an end.
  int32_t num_tokens() const { return token_rows * (token_columns + 1) + 2; }
};

// width, height: of the picture, >= 1. Errors: kUnsupported if the shape fits no grid of max_tokens.
Result<PatchPlan> plan_patches(int32_t width, int32_t height, const PatchOptions& options);

// The plan of a picture that is as large as it has to be: whole patches, at least one.
PatchPlan plan_of_fitted(int32_t width, int32_t height, const PatchOptions& options);

// The picture as it is cut: [plan.height, plan.width].
Picture fit(const Picture& picture, const PatchPlan& plan);

// fitted: [height, width, 3] as fit() gives it, whole patches. Returns [patches, 3 * patch_size^2]: row-major over the grid, a patch
// channel by channel; x = (v / 255 - 0.5) / 0.5.
std::vector<bf16> make_patches(std::span<const uint8_t> fitted, int32_t width, const PatchOptions& options);

}  // namespace deepinfer::image
