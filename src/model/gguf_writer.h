// Writes the front of a GGUF file (version 3): metadata and tensor table; the tensors' data follow in the order in which they
// were added, each padded to the alignment. For tools and tests; nothing is checked that the caller controls.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/dtype.h"

namespace deepinfer::model {

class GgufWriter {
 public:
  void add_text(std::string_view key, std::string_view value);
  void add_u32(std::string_view key, uint32_t value);
  void add_f32(std::string_view key, float value);
  void add_bool(std::string_view key, bool value);
  void add_texts(std::string_view key, std::span<const std::string> values);
  void add_int32s(std::string_view key, std::span<const int32_t> values);
  // shape: outermost first.
  void add_tensor(std::string_view name, DType dtype, std::span<const int64_t> shape);

  // Everything before the data, padded.
  std::string header() const;
  // Zero bytes to write behind a tensor of this size.
  static uint64_t padding(uint64_t num_bytes);

 private:
  void begin(std::string_view key, uint32_t type);

  std::string keys_, table_;
  uint64_t num_keys_ = 0, num_tensors_ = 0, data_bytes_ = 0;
};

}  // namespace deepinfer::model
