// engine/image_cache.h: rows that a model's vision side made of pictures, the most recently used of them: the next chunk of a prompt, its
// other choices, its computation after a preemption and the next turns of a conversation need them again. Keys separate tenants, as block
// keys do, so that nobody learns from a fast answer what pictures others sent.
// A picture that is not known is encoded piece by piece, between steps and by all workers; one at a time. An encoder that works elsewhere
// replaces encode() by asking whether the rows have come, as BlockLoader does for blocks.
// Engine thread only.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/lru_cache.h"
#include "core/input_image.h"
#include "model/image_encoder.h"

namespace deepinfer::engine {

class ImageCache {
 public:
  using Rows = std::shared_ptr<const std::vector<bf16>>;  // [image.num_tokens, hidden_size]

  // encoder outlives this. max_bytes: of rows that are kept for later; those that callers hold come on top.
  ImageCache(const model::ImageEncoder& encoder, uint64_t max_bytes) : encoder_(encoder), kept_(max_bytes) {}

  // Those of a picture that was encoded lately, else null. key: differs when the image, or who may know of it, does.
  Rows find(const Digest256& key);
  // Encodes by about so many multiplications more; the rows once that is done, else null. A picture begun before and not done is given up
  // for another.
  Rows encode(const Digest256& key, const InputImage& image, double num_products, Workers& workers);

  uint64_t num_encoded() const { return num_encoded_; }
  uint64_t num_reused() const { return num_reused_; }

 private:
  const model::ImageEncoder& encoder_;
  LruCache<Digest256, Rows, Digest256Hash> kept_;
  Digest256 begun_key_{};
  std::unique_ptr<model::ImageEncoding> begun_;  // null: none
  uint64_t num_encoded_ = 0, num_reused_ = 0;
};

}  // namespace deepinfer::engine
