// engine/image_cache.h: rows that a model's vision side made of pictures, the most recently used of them: the next chunk of a prompt, its
// other choices, its computation after a preemption and the next turns of a conversation need them again. Keys separate tenants, as block
// keys do, so that nobody learns from a fast answer what pictures others sent.
// Engine thread only. Pictures are encoded here, between two steps, by all workers; an encoder that works elsewhere replaces rows() by
// holding the request back until they have come, as BlockLoader does for blocks.
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

  // Known ones at once, else encodes. key: differs when the image, or who may know of it, does.
  Rows rows(const Digest256& key, const InputImage& image, Workers& workers);

  uint64_t num_encoded() const { return num_encoded_; }
  uint64_t num_reused() const { return num_reused_; }

 private:
  const model::ImageEncoder& encoder_;
  LruCache<Digest256, Rows, Digest256Hash> kept_;
  uint64_t num_encoded_ = 0, num_reused_ = 0;
};

}  // namespace deepinfer::engine
