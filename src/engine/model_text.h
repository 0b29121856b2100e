// The text side of a model: its tokenizer, its chat template, the sampling values its makers recommend. From the metadata of a GGUF
// file, or from tokenizer.json, tokenizer_config.json, chat_template.jinja and generation_config.json of a safetensors folder.
// Reads no weights; immutable after loading.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "base/result.h"
#include "model/model_file.h"
#include "tokenizer/tokenizer.h"

namespace deepinfer::engine {

struct ModelText {
  std::unique_ptr<tokenizer::Tokenizer> tokenizer;
  std::string chat_template;       // Jinja source; empty: the model has none
  std::string chat_template_path;  // where it stands, for error messages
  std::string config_json;         // config.json of a folder; empty: a GGUF file
  // generation_config.json; unset: the file says nothing (a GGUF file never does)
  std::optional<float> temperature, top_p, min_p, repetition_penalty;
  std::optional<int32_t> top_k;
};

// `file` must outlive nothing of the result: what is kept is copied.
// Errors: those of the tokenizer; kNotFound (a folder without tokenizer.json); kCorruption (a file is not what it should be).
Result<ModelText> read_model_text(const model::ModelFile& file);

}  // namespace deepinfer::engine
