// A picture of a prompt as it crosses the waist: decoded and brought to the model's size (Inference::read_image), so that the number of
// positions that it takes is known before its request is submitted. What the model computes from it is the engine's business.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/hash.h"

namespace deepinfer {

struct InputImage {
  int32_t width = 0, height = 0;  // pixels: whole patches of the model
  std::vector<uint8_t> rgb;       // [height, width, 3]
  int32_t num_tokens = 0;         // positions that it takes in a prompt
  Digest256 digest{};             // of all of this: equal digests are equal pictures
};

// Its place in a prompt: positions [start, start + image->num_tokens), whose tokens are all ModelCard::image_token_id.
struct ImageSpan {
  int32_t start = 0;
  std::shared_ptr<const InputImage> image;
};

}  // namespace deepinfer
