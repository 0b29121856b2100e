// The bytes of a file, for tests; empty if it cannot be read.
#pragma once

#include <fstream>
#include <iterator>
#include <string>

namespace deepinfer {

inline std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace deepinfer
