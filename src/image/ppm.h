// Reads the PPM files (P6, 8 bits) of tests/golden/images; for tests.
#pragma once

#include <sstream>
#include <string>

#include "image/picture.h"
#include "read_file.h"

namespace deepinfer::image {

inline Picture read_ppm(const std::string& path) {
  const std::string text = read_file(path);
  std::istringstream in(text);
  std::string magic;
  Picture picture;
  int max = 0;
  in >> magic >> picture.width >> picture.height >> max;
  const auto begin = static_cast<size_t>(in.tellg()) + 1;
  picture.rgb.assign(text.begin() + static_cast<ptrdiff_t>(begin), text.end());
  return picture;
}

inline std::string image_path(const std::string& name) { return std::string(DI_SOURCE_DIR) + "/tests/golden/images/" + name; }

}  // namespace deepinfer::image
