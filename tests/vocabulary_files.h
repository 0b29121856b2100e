// Finds golden data and opens the tokenizers beside it, for tests: copies under tests/golden first, then the larger collection that
// may lie beside the checkout, then downloaded models.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "model/gguf.h"
#include "model/gguf_vocabulary.h"
#include "read_file.h"
#include "tokenizer/tokenizer.h"

namespace deepinfer::testing {

inline std::optional<std::string> golden_path(const std::string& name) {
  for (const char* root : {DI_SOURCE_DIR "/tests/golden/", DI_SOURCE_DIR "/../shared/golden/", DI_SOURCE_DIR "/../shared/"}) {
    if (std::filesystem::exists(root + name)) return root + name;
  }
  return std::nullopt;
}

// A model that tools/fetch_models downloads: in $DEEPINFER_TEST_MODELS, else in the cache folder.
inline std::optional<std::string> model_path(const std::string& name) {
  std::string folder;
  if (const char* from_environment = std::getenv("DEEPINFER_TEST_MODELS")) {
    folder = from_environment;
  } else if (const char* home = std::getenv("HOME")) {
    folder = std::string(home) + "/.cache/deepinfer/models";
  }
  const std::string path = folder + "/" + name;
  return !folder.empty() && std::filesystem::exists(path) ? std::optional(path) : std::nullopt;
}

inline Result<std::unique_ptr<tokenizer::Tokenizer>> tokenizer_from_gguf(const std::string& path) {
  DI_TRY(const auto file, model::GgufFile::open(path, model::GgufFile::UnsupportedTypes::kList));
  DI_TRY(const auto data, model::gguf_vocabulary(*file));
  tokenizer::GgufVocabulary v;
  v.model = data.model;
  v.pre = data.pre;
  v.tokens = data.tokens;
  v.scores = data.scores;
  v.token_types = data.token_types;
  v.merges = data.merges;
  v.bos_id = data.bos_id;
  v.eos_id = data.eos_id;
  v.eot_id = data.eot_id;
  v.unknown_id = data.unknown_id;
  v.padding_id = data.padding_id;
  v.add_bos = data.add_bos;
  v.add_space_prefix = data.add_space_prefix;
  return tokenizer::Tokenizer::from_gguf(v, path);
}

inline Result<std::unique_ptr<tokenizer::Tokenizer>> tokenizer_from_folder(const std::string& folder) {
  const std::string config = folder + "/tokenizer_config.json";
  return tokenizer::Tokenizer::from_json(read_file(folder + "/tokenizer.json"),
                                         std::filesystem::exists(config) ? read_file(config) : "", folder + "/tokenizer.json");
}

}  // namespace deepinfer::testing
