// The readers behind decode(), one library a file. Each checks the size with Bounds before it allocates.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/result.h"
#include "image/picture.h"

namespace deepinfer::image {

struct Bounds {
  int64_t max_pixels;
  // A picture of this size, black, or what is wrong with the size.
  Result<Picture> allocate(const char* format, int64_t width, int64_t height) const;
};

Result<Picture> decode_jpeg(std::span<const std::byte> file, const Bounds& bounds);
Result<Picture> decode_png(std::span<const std::byte> file, const Bounds& bounds);
Result<Picture> decode_webp(std::span<const std::byte> file, const Bounds& bounds);
Result<Picture> decode_gif(std::span<const std::byte> file, const Bounds& bounds);

}  // namespace deepinfer::image
