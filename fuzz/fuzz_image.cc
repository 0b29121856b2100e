// LIBS: di_image
// Image files as a client sends them: decoded within a bound, then brought to a size and cut into patches.
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/check.h"
#include "image/decode.h"
#include "image/patches.h"

using namespace deepinfer;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  constexpr int64_t kMaxPixels = 1 << 16;
  const Result<image::Picture> picture = image::decode(std::as_bytes(std::span(data, size)), {.max_bytes = 1 << 20, .max_pixels = kMaxPixels});
  if (!picture) return 0;
  CHECK(picture->width > 0);
  CHECK(picture->height > 0);
  CHECK(int64_t{picture->width} * picture->height <= kMaxPixels);
  CHECK(picture->rgb.size() == 3 * static_cast<size_t>(picture->width) * static_cast<size_t>(picture->height));
  const image::PatchOptions options{.patch_size = 4, .downsample_ratio = 3, .max_tokens = 40, .min_pixels = 144, .max_wh_ratio = {}};
  const Result<image::PatchPlan> plan = image::plan_patches(picture->width, picture->height, options);
  if (!plan) return 0;
  CHECK(plan->num_tokens() <= options.max_tokens);
  const image::Picture fitted = image::fit(*picture, *plan);
  const size_t num_patches = static_cast<size_t>(plan->patch_rows) * static_cast<size_t>(plan->patch_columns);
  CHECK(image::make_patches(fitted.rgb, plan->width, options).size() == num_patches * 3 * 16);
  return 0;
}
