// DeepSeek-V4.1 models in tests, opened from a folder whose config names an Engram token map.
#pragma once

#include <memory>
#include <string>

#include "model/load.h"
#include "v41_tiny.h"

namespace deepinfer::model {

inline std::unique_ptr<V41> open_v41(const std::string& folder, const V41MemoryOptions& limits = {}) {
  const auto workers = Workers::create(1, false);
  LoadedModel loaded = load_model(folder, {.memory = limits}, *workers).value();
  return std::unique_ptr<V41>(dynamic_cast<V41*>(loaded.model.release()));
}

}  // namespace deepinfer::model
