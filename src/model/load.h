// From a MODEL on disk to a model that runs. The only place that knows which architectures there are.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/result.h"
#include "kernels/kv_format.h"
#include "kernels/linear.h"
#include "model/dense_config.h"
#include "model/model.h"
#include "model/model_file.h"
#include "model/v41_config.h"
#include "model/v41_memory.h"

namespace deepinfer::model {

using ModelConfig = std::variant<DenseConfig, V41Config>;

// What all architectures say of themselves.
struct ModelSummary {
  std::string architecture;
  int32_t vocab_size = 0, max_context = 0;
  std::optional<TokenId> bos_id;  // as the configuration says; the tokenizer may know more
  std::vector<TokenId> eos_ids;
};

// Errors: kUnsupported (no architecture of ours), else those of the configuration's reader.
Result<ModelConfig> read_model_config(const ModelFile& file);
ModelSummary summary_of(const ModelConfig& config);

struct LoadOptions {
  Activations activations = Activations::kFast;
  std::optional<KvFormat> kv_format;    // none: bf16, or f32 with Activations::kF32
  Isa isa = default_isa();
  std::vector<int32_t> engram_tokens{};  // if needs_engram_tokens(): compressed id of every token (tokenizer/engram_map.h)
  V41MemoryOptions memory{};              // of DeepSeek-V4.1 models
};

// A DeepSeek-V4.1 whose folder does not name the map from tokens to compressed ids: it follows from the tokenizer.
bool needs_engram_tokens(const ModelConfig& config);

// Says what load_model() would: binds every tensor, but packs nothing.
// Errors: those of bind_dense, bind_v41 and EngramHash::create; kUnsupported (an option that the architecture does not have).
Result<> check_model(const ModelFile& file, const ModelConfig& config, const LoadOptions& options);

// Checks, binds and packs with all threads. The file goes into the model, which reads its mapping: what else is wanted of it (the
// vocabulary) must be read before. Errors: those of check_model.
Result<std::unique_ptr<Model>> load_model(ModelFile file, const ModelConfig& config, const LoadOptions& options, Workers& workers);

struct LoadedModel {
  std::unique_ptr<Model> model;
  ModelSummary summary;
};
// All of it for a model that needs no engram_tokens.
Result<LoadedModel> load_model(const std::string& path, const LoadOptions& options, Workers& workers);

}  // namespace deepinfer::model
