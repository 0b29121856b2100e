// Image files of clients to pictures: JPEG, PNG, WebP and GIF (of animations the first frame), told apart by their first bytes and
// not by what the client calls them. Sizes are read from the header and bounded before a pixel is decoded, so a small file that
// unfolds to gigabytes costs nothing. The conversion is that of training (Pillow's convert("RGB")): an alpha channel is dropped, not
// blended; palettes and grey are expanded; 16 bits keep their high byte.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/result.h"
#include "image/picture.h"

namespace deepinfer::image {

struct DecodeLimits {
  int64_t max_bytes = int64_t{20} << 20;       // of the file
  int64_t max_pixels = int64_t{64} * 1000000;  // width times height; three bytes each while decoding
};

// Errors: kUnsupported (no format we know, or a variant that its library does not read), kResourceExhausted (a limit), kCorruption.
Result<Picture> decode(std::span<const std::byte> file, const DecodeLimits& limits);

}  // namespace deepinfer::image
