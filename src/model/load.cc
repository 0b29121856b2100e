#include "model/load.h"

#include <utility>

#include "model/dense.h"
#include "model/dense_weights.h"

namespace deepinfer::model {

Result<LoadedModel> load_model(ModelFile file, const LoadOptions& options, Workers& workers) {
  DI_TRY(const DenseConfig config, read_dense_config(file));
  DI_TRY(const DenseWeights weights, bind_dense(file.checkpoint(), config));
  const KvFormat by_default = options.activations == Activations::kF32 ? KvFormat::kF32 : KvFormat::kBf16;
  const DenseOptions dense{.activations = options.activations, .kv_format = options.kv_format.value_or(by_default), .isa = options.isa};
  std::unique_ptr<Checkpoint> checkpoint;
  if (file.gguf != nullptr) checkpoint = std::move(file.gguf);
  else checkpoint = std::move(file.safetensors);
  LoadedModel loaded{.model = make_dense_model(config, weights, std::move(checkpoint), dense, workers), .bos_id = config.bos_id, .eos_ids = config.eos_ids};
  return loaded;
}

Result<LoadedModel> load_model(const std::string& path, const LoadOptions& options, Workers& workers) {
  DI_TRY(ModelFile file, open_model_file(path));
  return load_model(std::move(file), options, workers);
}

}  // namespace deepinfer::model
