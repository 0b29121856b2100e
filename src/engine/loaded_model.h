// From the path that a user names to everything that serving needs: weights packed for this machine, tokenizer, chat template, card.
// Two steps, so that what is wrong with a file is said before the seconds that packing takes, and so that tools that only look at
// text or metadata never touch the weights:
//   open_model(path)            maps the file, reads and checks all that stands beside the weights: milliseconds
//   load_weights(open, …)       binds every tensor and packs it: all threads
// Every error is one sentence that names the file.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "core/inference.h"
#include "engine/model_text.h"
#include "kernels/kv_format.h"
#include "kernels/linear.h"
#include "kernels/team.h"
#include "model/load.h"
#include "model/model.h"
#include "model/model_file.h"

namespace deepinfer::engine {

struct OpenModel {
  std::string path;
  model::ModelFile file;
  model::ModelConfig config;
  std::vector<int32_t> engram_tokens;  // if model::needs_engram_tokens(config)
  ModelText text;  // empty where it was not needed
  ModelCard card;  // max_context: the model's own
};

// Who only computes needs the tokenizer if the weights do (model::needs_engram_tokens), and takes a model without one.
enum class TextNeed : uint8_t { kAlways, kForWeights };

// Errors: those of the readers; kCorruption if tokenizer and embedding disagree.
Result<OpenModel> open_model(const std::string& path, TextNeed need = TextNeed::kAlways);

// Tokenizer and template alone: also of a file that holds no weights.
Result<ModelText> open_text(const std::string& path);

struct WeightOptions {
  Activations activations = Activations::kFast;
  std::optional<KvFormat> kv_format;  // none: bf16, or f32 with Activations::kF32
  int32_t max_context = 0;  // 0: the model's own; more than that is an error
  model::V41MemoryOptions memory{};  // of DeepSeek-V4.1 models
};

struct LoadedModel {
  std::unique_ptr<model::Model> model;
  ModelText text;
  ModelCard card;  // max_context as served
};

Result<LoadedModel> load_weights(OpenModel open, const WeightOptions& options, Workers& workers);

}  // namespace deepinfer::engine
