// A decoded picture: what image files become and what is cut into patches.
#pragma once

#include <cstdint>
#include <vector>

namespace deepinfer::image {

struct Picture {
  int32_t width = 0, height = 0;  // pixels
  std::vector<uint8_t> rgb;       // [height, width, 3], sRGB as stored: no colour profile, gamma or orientation tag is applied
};

}  // namespace deepinfer::image
