// What `deepinfer model info FILE` says: what a checkpoint holds, what it would cost in memory, and what stands in its way. From
// metadata and the tensor table alone: no weight is read, so it takes milliseconds whatever the size.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "kernels/kv_format.h"
#include "model/dense_config.h"
#include "model/v41_config.h"
#include "model/v41_info.h"

namespace deepinfer::model {

struct CheckpointInfo {
  struct TypeShare {
    std::string type;  // "Q4_K"
    int64_t num_tensors = 0, num_parameters = 0, num_bytes = 0;
  };
  std::string path, format;      // "GGUF version 3", "safetensors"
  std::string name;              // what the file calls itself, or empty
  std::string architecture;      // as the file spells it, or empty
  std::vector<TypeShare> types;  // most bytes first
  int64_t num_tensors = 0, num_parameters = 0, weight_bytes = 0;
  std::optional<DenseConfig> config;  // this or v41: none if it could not be understood
  std::optional<V41Config> v41;
  std::vector<V41Part> v41_parts;     // empty if the tensors are not those of the configuration
  // Why it cannot be served: a sentence each; empty: it can.
  std::vector<std::string> obstacles;
};

// Errors: the file cannot be opened or breaks its format. Everything else is an obstacle.
Result<CheckpointInfo> read_checkpoint_info(const std::string& path);

// KV of `num_tokens` tokens of one sequence, whole blocks of kKvBlockTokens.
int64_t kv_cache_bytes(const DenseConfig& config, KvFormat format, int64_t num_tokens);

struct InfoView {
  KvFormat kv_format = KvFormat::kBf16;  // of dense models
  std::vector<int64_t> contexts;         // lengths to show the memory at; empty: 4096 and the model's own. Longer ones are left out
  double read_bytes_per_s = 0;           // the machine's memory, as probed: gives an estimate of tokens/s; 0: none
};
std::string checkpoint_info_text(const CheckpointInfo& info, const InfoView& view);
std::string checkpoint_info_json(const CheckpointInfo& info, const InfoView& view);

}  // namespace deepinfer::model
