#include "model/load.h"

#include <fmt/format.h>
#include <utility>

#include "io/mapped_file.h"
#include "model/dense.h"
#include "model/dense_weights.h"
#include "model/load_tensors.h"
#include "model/v41.h"
#include "model/v41_engram.h"
#include "model/v41_weights.h"

namespace deepinfer::model {
namespace {

struct V41Bound {
  V41Weights weights;
  EngramHash engram;
};

Result<V41Bound> bind_all(const ModelFile& file, const V41Config& config, const LoadOptions& options) {
  const std::string& path = file.checkpoint().path();
  if (options.activations == Activations::kF32 || options.kv_format)
    return Error{Code::kUnsupported, fmt::format("{}: DeepSeek-V4.1 has number formats of its own; --activations and --kv-format are for other models", path)};
  DI_TRY(V41Weights weights, bind_v41(file.checkpoint(), config));
  std::vector<int32_t> tokens = options.engram_tokens;
  if (!config.engram_token_map.empty()) {
    DI_TRY(tokens, read_engram_token_map(file.folder + "/" + config.engram_token_map));
  }
  Result<EngramHash> engram = EngramHash::create(config, std::move(tokens));
  if (!engram) return Error{engram.error().code, fmt::format("{}: {}", path, engram.error().message)};
  return V41Bound{std::move(weights), *std::move(engram)};
}

DenseOptions dense_options(const LoadOptions& options) {
  const KvFormat by_default = options.activations == Activations::kF32 ? KvFormat::kF32 : KvFormat::kBf16;
  return {.activations = options.activations, .kv_format = options.kv_format.value_or(by_default), .isa = options.isa};
}

std::unique_ptr<Checkpoint> take_checkpoint(ModelFile file) {
  if (file.gguf != nullptr) return std::move(file.gguf);
  return std::move(file.safetensors);
}

}  // namespace

Result<ModelConfig> read_model_config(const ModelFile& file) {
  if (file.gguf == nullptr) {
    const std::string path = file.folder + "/config.json";
    DI_TRY(const std::string text, io::read_small_file(path, kMaxConfigBytes));
    if (is_v41_config(text)) {
      DI_TRY(V41Config config, v41_config_from_json(text, path));
      return ModelConfig(std::move(config));
    }
  }
  DI_TRY(DenseConfig config, read_dense_config(file));
  return ModelConfig(std::move(config));
}

ModelSummary summary_of(const ModelConfig& config) {
  if (const auto* c = std::get_if<V41Config>(&config))
    return {"deepseek_v41", c->vocab_size, c->max_position_embeddings, c->bos_id, {c->eos_id}};
  const DenseConfig& c = std::get<DenseConfig>(config);
  return {std::string(dense_architecture_name(c.architecture)), c.vocab_size, c.max_context, c.bos_id, c.eos_ids};
}

bool needs_engram_tokens(const ModelConfig& config) {
  const auto* c = std::get_if<V41Config>(&config);
  return c != nullptr && !c->engram_layer_ids.empty() && c->engram_token_map.empty();
}

Result<> check_model(const ModelFile& file, const ModelConfig& config, const LoadOptions& options) {
  if (const auto* c = std::get_if<V41Config>(&config)) {
    DI_TRY(bind_all(file, *c, options));
  } else {
    DI_TRY(bind_dense(file.checkpoint(), std::get<DenseConfig>(config)));
  }
  return {};
}

Result<std::unique_ptr<Model>> load_model(ModelFile file, const ModelConfig& config, const LoadOptions& options, Workers& workers) {
  if (const auto* c = std::get_if<V41Config>(&config)) {
    DI_TRY(V41Bound bound, bind_all(file, *c, options));
    std::unique_ptr<Checkpoint> checkpoint = take_checkpoint(std::move(file));
    DI_TRY(auto memory, V41Memory::create(*c, *checkpoint, options.memory));
    const auto stays = [&](std::string_view name) { return memory != nullptr && memory->reads_on_demand(name); };
    if (options.memory.load) DI_TRY(load_tensors(*checkpoint, [&](std::string_view name) { return !stays(name); }, workers));
    return std::unique_ptr<Model>(
        V41::create(*c, std::move(bound.weights), std::move(bound.engram), std::move(checkpoint), options.isa, std::move(memory)));
  }
  if (options.memory.engram_bytes || options.memory.expert_bytes || options.memory.load)
    return Error{Code::kUnsupported, fmt::format("{}: --engram-memory, --expert-memory and --no-mmap are for DeepSeek-V4.1 models; the weights of others are packed into memory of their own",
                                                 file.checkpoint().path())};
  const DenseConfig& c = std::get<DenseConfig>(config);
  DI_TRY(const DenseWeights weights, bind_dense(file.checkpoint(), c));
  return std::unique_ptr<Model>(make_dense_model(c, weights, take_checkpoint(std::move(file)), dense_options(options), workers));
}

Result<LoadedModel> load_model(const std::string& path, const LoadOptions& options, Workers& workers) {
  DI_TRY(ModelFile file, open_model_file(path));
  DI_TRY(const ModelConfig config, read_model_config(file));
  LoadedModel loaded{.model = {}, .summary = summary_of(config)};
  DI_TRY(loaded.model, load_model(std::move(file), config, options, workers));
  return loaded;
}

}  // namespace deepinfer::model
