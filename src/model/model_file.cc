#include "model/model_file.h"

#include <filesystem>

namespace deepinfer::model {

const Checkpoint& ModelFile::checkpoint() const {
  if (gguf) return *gguf;
  CHECK(safetensors);
  return *safetensors;
}

Result<ModelFile> open_model_file(const std::string& path, GgufFile::UnsupportedTypes types) {
  ModelFile out;
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    out.folder = path;
  } else if (path.ends_with(".safetensors")) {
    const auto parent = std::filesystem::path(path).parent_path().string();
    out.folder = parent.empty() ? "." : parent;
  } else {
    DI_TRY(out.gguf, GgufFile::open(path, types));
    return out;
  }
  DI_TRY(out.safetensors, Safetensors::open(path));
  return out;
}

Result<DenseConfig> read_dense_config(const ModelFile& file) {
  return file.gguf ? dense_config_from_gguf(*file.gguf) : dense_config_from_folder(file.folder);
}

}  // namespace deepinfer::model
