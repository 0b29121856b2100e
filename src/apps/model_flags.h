// The flags that serve, run and bench share: which model, how its weights are computed with, on how many threads.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "apps/flags.h"
#include "engine/loaded_model.h"
#include "kernels/team.h"

namespace deepinfer::apps {

struct ModelFlags {
  std::string model, config;
  std::string activations = "fast", kv_format = "auto";
  int32_t threads = 0, context = 0;
  std::optional<uint64_t> engram_memory, expert_memory;
  bool no_mmap = false;

  void add_to(Flags& flags);
  std::unique_ptr<Workers> start_workers() const { return Workers::create(threads); }
  engine::WeightOptions weight_options() const;
  bool bounds_weights() const { return engram_memory || expert_memory; }
};

}  // namespace deepinfer::apps
