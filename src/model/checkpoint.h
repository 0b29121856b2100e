// A model file or folder, opened and checked but not interpreted: named tensors over a read-only mapping. GGUF files (gguf.h) and
// safetensors folders (safetensors.h) both become this. Every offset, size and type was checked when it was opened, so a
// TensorView can be read without further checks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "io/mapped_file.h"
#include "kernels/dtype.h"

namespace deepinfer::model {

struct TensorView {
  std::string_view name;
  DType dtype;
  std::vector<int64_t> shape;    // outermost first: a matrix is [rows, cols] whatever order the file uses
  std::span<const std::byte> data;  // in the mapping
  int64_t num_elements() const {
    int64_t n = 1;
    for (const int64_t d : shape) n *= d;
    return n;
  }
};

// The parameters that a tensor's elements are: packed e2m1 holds two in each, block scales of their own tensor are none.
constexpr int64_t num_parameters(DType dtype, int64_t num_elements) {
  return dtype == DType::kF8_E8M0 ? 0 : dtype == DType::kI8 ? 2 * num_elements : num_elements;
}

class Checkpoint {
 public:
  virtual ~Checkpoint() = default;
  virtual const std::string& path() const = 0;                 // for error messages
  virtual std::span<const TensorView> tensors() const = 0;     // sorted by name
  const TensorView* find(std::string_view name) const;          // null: not there
  // Tells the kernel that a range of the mapping will not be read again (after packing), so that it does not count as resident.
  void release(const TensorView& tensor) const;
  // The file that holds a tensor's bytes; null: they are borrowed, not mapped.
  virtual const io::MappedFile* mapping_of(const TensorView& tensor) const = 0;
  // All of them.
  virtual std::span<io::MappedFile> mappings() = 0;
};

// Ranges of one file in the order in which they lie there, neighbours joined: pages that two tensors share are inside then, and advice on a range, or
// memory in its place, costs the kernel a mapping only where it ends.
std::vector<std::span<const std::byte>> joined(std::vector<std::span<const std::byte>> ranges);

}  // namespace deepinfer::model
