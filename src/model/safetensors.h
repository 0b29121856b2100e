// safetensors: one file, or a folder with model.safetensors, or a folder whose model.safetensors.index.json names the shards.
// A file is: header length u64 | header, a JSON object | data. The header gives each tensor's dtype, shape (outermost first) and
// data_offsets [begin, end) in the data; the tensors must cover the data exactly, as the reference reader asks.
//
// Opening checks all of that, and that index and shards agree about which tensor is where. What it allocates is a small multiple
// of the header (the JSON parser's tape). Immutable, any thread may read. Whether the tensors are those of the model is for
// binding (dense_weights.h).
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "io/mapped_file.h"
#include "model/checkpoint.h"

namespace deepinfer::model {

class Safetensors final : public Checkpoint {
 public:
  // Bounds that no real model comes near; they cap what a damaged file can make us allocate.
  static constexpr uint64_t kMaxHeaderBytes = 32 << 20;  // 200,000 tensors; the format itself allows 100 MB
  static constexpr uint64_t kMaxIndexBytes = 64 << 20;
  static constexpr size_t kMaxTensors = 1 << 20, kMaxShards = 4096, kMaxDims = 8, kMaxNameBytes = 1024;

  // path: a .safetensors file or a folder.
  // Errors: kNotFound and kIo (files), kCorruption (their bytes, the index), kUnsupported (a dtype that this product does not
  // use). Messages name the file and the tensor.
  static Result<std::unique_ptr<Safetensors>> open(const std::string& path);
  // One file's bytes, which must outlive the result; `path` is for messages.
  static Result<std::unique_ptr<Safetensors>> parse(std::span<const std::byte> bytes, const std::string& path);
  // A folder of shards by their bytes: shard(file name) gives them, to outlive the result.
  using FindShard = std::function<Result<std::span<const std::byte>>(const std::string& name)>;
  static Result<std::unique_ptr<Safetensors>> parse_shards(std::string_view index, const FindShard& shard, const std::string& folder);

  const std::string& path() const override { return path_; }
  std::span<const TensorView> tensors() const override { return tensors_; }
  const io::MappedFile* mapping_of(const TensorView& tensor) const override;
  std::span<io::MappedFile> mappings() override { return mappings_; }

 private:
  Safetensors() = default;
  Result<> add_file(std::span<const std::byte> bytes, const std::string& path);
  Result<> add_shards(std::string_view index, const FindShard& shard, const std::string& folder);
  Result<> finish();

  std::string path_;
  std::vector<io::MappedFile> mappings_;
  std::deque<std::string> names_;    // what the views' names point to; a deque does not move them
  std::vector<TensorView> tensors_;  // sorted by name after finish()
};

}  // namespace deepinfer::model
