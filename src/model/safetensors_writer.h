// The front of a safetensors file: the tensors' data follow in the order in which they are listed, without gaps. For tools and tests.
// Numbers are read in place, so list tensors of wider numbers first: then each begins at a multiple of its number's bytes.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace deepinfer::model {

struct SafetensorsEntry {
  std::string name;   // printable, without quotes or backslashes
  std::string dtype;  // as the format spells it: "BF16"
  std::vector<int64_t> shape;
  int64_t num_bytes;
};

// Length and JSON, padded with blanks to a multiple of 8 bytes.
std::string safetensors_header(std::span<const SafetensorsEntry> entries);

}  // namespace deepinfer::model
