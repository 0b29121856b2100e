#include "engine/image_cache.h"

namespace deepinfer::engine {

ImageCache::Rows ImageCache::rows(const Digest256& key, const InputImage& image, Workers& workers) {
  if (const std::optional<Rows> known = kept_.find(key)) {
    num_reused_ += 1;
    return *known;
  }
  num_encoded_ += 1;
  const image::PatchOptions& options = encoder_.patch_options();
  const std::vector<bf16> patches = image::make_patches(image.rgb, image.width, options);
  const auto rows = std::make_shared<const std::vector<bf16>>(encoder_.encode(patches, image::plan_of_fitted(image.width, image.height, options), workers));
  kept_.insert(key, rows, rows->size() * sizeof(bf16));
  return rows;
}

}  // namespace deepinfer::engine
