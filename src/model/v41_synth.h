// Random DeepSeek-V4.1 checkpoints in the native layout (docs/formats/v41_checkpoint.md): layers of true size for benchmarks without
// 510 GB of download, or tiny ones for tests. Complete: config.json, tokenizer.json, the Engram token map, shards with an index. Deterministic: the same shape and seed give the same bytes on every machine. Output projections are small, so that one layer
// moves the streams by a tenth and rounding noise does not grow from layer to layer.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "model/v41_config.h"

namespace deepinfer::model {

// Names of v41_synth_shape: "v4.1", the released model's, and "v4.1-tiny".
std::span<const std::string_view> v41_synth_names();

// What may differ from the named shape; 0 (draft_stages and vision_layers: -1) leaves its own. A model whose layers are given is a slice:
// it has neither draft stages nor vision, and Engram tables of some 100 MB, unless these are given too.
struct V41SynthSizes {
  int32_t layers = 0;               // the first half encoder, the second half decoder
  int32_t experts = 0, experts_per_token = 0;
  int64_t engram_vocab = 0;         // where the primes begin that size the Engram tables: about rows a column
  int32_t draft_stages = -1, vision_layers = -1;
};

// Layers get their roles (sources, Reuse, Reindex, Engram) by the pattern of the released model, whose 40 layers come out as they are.
// Errors: kNotFound (no shape of that name), kInvalidArgument (sizes that no model can have).
Result<V41Config> v41_synth_shape(std::string_view name, const V41SynthSizes& sizes);

// config.json of a configuration, in Hugging Face's spelling.
std::string v41_config_json(const V41Config& config);

struct V41SynthOptions {
  uint64_t seed = 0;
  int64_t shard_bytes = int64_t{4} << 30;  // a shard is closed once it is this long; a larger tensor has one of its own
  bool sparse = false;  // all weights are zero and are holes in the files: what a shape holds and costs can be read, its speed not be measured
};

// Writes the folder `path`, which must not exist yet, under a temporary name and moves it into place when it is whole. Memory: one row of a
// tensor at a time. Errors: kInvalidArgument (the folder or its .part is there), kIo.
Result<> write_v41_synth(const std::string& path, const V41Config& config, const V41SynthOptions& options);

}  // namespace deepinfer::model
