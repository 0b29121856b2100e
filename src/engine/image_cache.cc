#include "engine/image_cache.h"

#include <utility>

namespace deepinfer::engine {

ImageCache::Rows ImageCache::find(const Digest256& key) {
  const std::optional<Rows> known = kept_.find(key);
  if (!known) return nullptr;
  num_reused_ += 1;
  return *known;
}

ImageCache::Rows ImageCache::encode(const Digest256& key, const InputImage& image, double num_products, Workers& workers) {
  if (begun_ == nullptr || begun_key_ != key) {
    const image::PatchOptions& options = encoder_.patch_options();
    begun_ = encoder_.begin(image::make_patches(image.rgb, image.width, options), image::plan_of_fitted(image.width, image.height, options), workers);
    begun_key_ = key;
  }
  if (!begun_->advance(num_products)) return nullptr;
  const auto rows = std::make_shared<const std::vector<bf16>>(std::exchange(begun_, nullptr)->take_rows());
  num_encoded_ += 1;
  kept_.insert(key, rows, rows->size() * sizeof(bf16));
  return rows;
}

}  // namespace deepinfer::engine
