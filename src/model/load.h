// From a MODEL on disk to a model that runs. The only place that knows which architectures there are.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "kernels/kv_format.h"
#include "kernels/linear.h"
#include "model/model.h"
#include "model/model_file.h"

namespace deepinfer::model {

struct LoadOptions {
  Activations activations = Activations::kFast;
  std::optional<KvFormat> kv_format;  // none: bf16, or f32 with Activations::kF32
  Isa isa = default_isa();
};

struct LoadedModel {
  std::unique_ptr<Model> model;
  std::optional<TokenId> bos_id;   // as the model's configuration says; the tokenizer may know more
  std::vector<TokenId> eos_ids;
};

// Checks, binds and packs with all threads. The file goes into the model, which reads embedding rows from its mapping: what else
// is wanted of it (the vocabulary) must be read before. Errors: those of read_dense_config and bind_dense.
Result<LoadedModel> load_model(ModelFile file, const LoadOptions& options, Workers& workers);
Result<LoadedModel> load_model(const std::string& path, const LoadOptions& options, Workers& workers);

}  // namespace deepinfer::model
