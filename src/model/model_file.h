// What a user names as MODEL: a GGUF file, a safetensors file, or a folder of safetensors. Opens the right reader and the
// configuration that belongs to it.
#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "model/dense_config.h"
#include "model/gguf.h"
#include "model/safetensors.h"

namespace deepinfer::model {

// Exactly one of the two is there.
struct ModelFile {
  std::unique_ptr<GgufFile> gguf;
  std::unique_ptr<Safetensors> safetensors;
  std::string folder;  // of safetensors: where config.json, tokenizer.json and their kin lie

  const Checkpoint& checkpoint() const;
};

// A folder or a name ending in .safetensors opens as safetensors, anything else as GGUF (which says so if it is not).
Result<ModelFile> open_model_file(const std::string& path,
                                  GgufFile::UnsupportedTypes types = GgufFile::UnsupportedTypes::kReject);

Result<DenseConfig> read_dense_config(const ModelFile& file);

}  // namespace deepinfer::model
