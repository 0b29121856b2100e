#include "model/dense_config.h"

namespace deepinfer::model {

std::string_view dense_architecture_name(DenseArchitecture architecture) {
  switch (architecture) {
    case DenseArchitecture::kLlama: return "llama";
    case DenseArchitecture::kQwen2: return "qwen2";
    case DenseArchitecture::kQwen3: return "qwen3";
  }
  return "?";
}

std::string_view rope_scaling_name(RopeConfig::Scaling scaling) {
  switch (scaling) {
    case RopeConfig::Scaling::kNone: return "none";
    case RopeConfig::Scaling::kLinear: return "linear";
    case RopeConfig::Scaling::kNtk: return "ntk";
    case RopeConfig::Scaling::kYarn: return "yarn";
    case RopeConfig::Scaling::kLlama3: return "llama3";
  }
  return "?";
}

}  // namespace deepinfer::model
