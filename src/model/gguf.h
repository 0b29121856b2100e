// GGUF (versions 2 and 3): metadata and tensors in one file, mapped and used in place. Layout, little-endian:
//
//   "GGUF" | version u32 | num_tensors u64 | num_keys u64 | keys | tensor table | padding to general.alignment (default 32) |
//   data string:       length u64, bytes key:          name string, type u32, value: a number, a bool byte, a string, or (type 9)
//   element type u32, count u64, elements tensor table: name string, num_dims u32, dims u64 (innermost first), type u32, offset
//   u64 (into the data, aligned)
//
// Opening checks everything that a later read relies on: counts against the bytes left, sizes without wrap-around, names,
// alignment, that tensors lie inside the file and do not overlap, that no key or tensor comes twice. It copies no value: strings
// and arrays are views of the mapping, so what it allocates is small against the file. Immutable, any thread may read.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "io/mapped_file.h"
#include "model/checkpoint.h"

namespace deepinfer::model {

class GgufFile final : public Checkpoint {
 public:
  // Bounds that no real file comes near; they cap what a damaged one can make us allocate.
  static constexpr uint64_t kMaxKeys = 1 << 16, kMaxTensors = 1 << 18, kMaxKeyBytes = 65535, kMaxTensorNameBytes = 255,
                            kMaxDims = 4, kMaxArrayElements = 1 << 26, kMaxAlignment = 1 << 20;

  // A tensor whose type is known to the format and not to us.
  struct UnsupportedTensor {
    std::string_view name;
    std::string_view type;  // "IQ2_XXS"
    std::vector<int64_t> shape;
    uint64_t num_bytes;
  };
  enum class UnsupportedTypes : uint8_t { kReject, kList };

  // Errors: kNotFound and kIo (the file), kCorruption (its bytes), kUnsupported (version, a tensor's type unless kList, a file
  // split in parts). Messages name the file and the key or tensor.
  static Result<std::unique_ptr<GgufFile>> open(const std::string& path, UnsupportedTypes types = UnsupportedTypes::kReject);
  // The same from bytes that outlive the result; `path` is for messages.
  static Result<std::unique_ptr<GgufFile>> parse(std::span<const std::byte> bytes, const std::string& path,
                                                 UnsupportedTypes types = UnsupportedTypes::kReject);

  const std::string& path() const override { return path_; }
  std::span<const TensorView> tensors() const override { return tensors_; }
  const io::MappedFile* mapping_of(const TensorView& tensor) const override;
  std::span<io::MappedFile> mappings() override;
  std::span<const UnsupportedTensor> unsupported_tensors() const { return unsupported_; }
  uint32_t version() const { return version_; }

  // Metadata. The find_ functions give nothing for an absent key; the others call that kCorruption. A value of another type, or
  // an integer that does not fit, is kCorruption too; any integer type serves as an integer, any number as a number.
  bool has(std::string_view key) const { return entry(key) != nullptr; }
  Result<std::optional<int64_t>> find_integer(std::string_view key) const;
  Result<std::optional<double>> find_number(std::string_view key) const;
  Result<std::optional<bool>> find_bool(std::string_view key) const;
  Result<std::optional<std::string_view>> find_text(std::string_view key) const;
  Result<int64_t> integer(std::string_view key) const;
  Result<double> number(std::string_view key) const;
  Result<std::string_view> text(std::string_view key) const;
  // Arrays; empty for an absent key. The strings are views of the mapping.
  Result<std::vector<std::string_view>> texts(std::string_view key) const;
  Result<std::vector<float>> floats(std::string_view key) const;
  Result<std::vector<int32_t>> int32s(std::string_view key) const;

  // The names of all keys, sorted.
  std::vector<std::string_view> keys() const;

 private:
  friend class GgufParser;
  struct Entry {
    std::string_view key;
    uint32_t type;
    uint32_t element_type = 0;           // of an array
    uint64_t count = 0;                  // of an array
    std::span<const std::byte> payload;  // the value, a string without its length, an array's elements
  };
  GgufFile() = default;
  const Entry* entry(std::string_view key) const;
  Error wrong(std::string_view key, std::string_view what) const;
  template <class T>
  Result<T> required(std::string_view key, Result<std::optional<T>> found) const;

  std::string path_;
  uint32_t version_ = 0;
  std::optional<io::MappedFile> mapping_;       // none for borrowed bytes
  std::vector<Entry> entries_;                  // sorted by key
  std::vector<TensorView> tensors_;             // sorted by name
  std::vector<UnsupportedTensor> unsupported_;  // in file order
};

}  // namespace deepinfer::model
