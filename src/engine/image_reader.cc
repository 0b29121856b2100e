#include "engine/image_reader.h"

#include <array>
#include <string_view>
#include <utility>

namespace deepinfer::engine {
namespace {

constexpr std::string_view kDomain = "deepinfer image v1";

// The pixels are what preprocessing left, so that nothing else of the file or of its treatment can change what is computed from them:
// the same picture stored otherwise has the same digest.
Digest256 digest_of(const InputImage& image) {
  const std::array<int32_t, 3> shape = {image.width, image.height, image.num_tokens};
  Blake2b256 hash(std::as_bytes(std::span(kDomain)));
  hash.update(std::as_bytes(std::span(shape)));
  hash.update(std::as_bytes(std::span(image.rgb)));
  return hash.finish();
}

}  // namespace

Result<std::shared_ptr<const InputImage>> fit_image(const image::Picture& picture, const image::PatchOptions& options) {
  DI_TRY(const image::PatchPlan plan, image::plan_patches(picture.width, picture.height, options));
  auto image = std::make_shared<InputImage>();
  image->width = plan.width;
  image->height = plan.height;
  image->rgb = image::fit(picture, plan).rgb;
  image->num_tokens = plan.num_tokens();
  image->digest = digest_of(*image);
  return std::shared_ptr<const InputImage>(std::move(image));
}

Result<std::shared_ptr<const InputImage>> read_image(std::span<const std::byte> file, const image::PatchOptions& options, const image::DecodeLimits& limits) {
  DI_TRY(const image::Picture picture, image::decode(file, limits));
  return fit_image(picture, options);
}

bool is_fitted(const InputImage& image, const image::PatchOptions& options) {
  if (image.width <= 0 || image.height <= 0 || image.width % options.patch_size != 0 || image.height % options.patch_size != 0) return false;
  if (image.rgb.size() != 3 * static_cast<size_t>(image.width) * static_cast<size_t>(image.height)) return false;
  return image.num_tokens == image::plan_of_fitted(image.width, image.height, options).num_tokens() && image.num_tokens <= options.max_tokens;
}

}  // namespace deepinfer::engine
