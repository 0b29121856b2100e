// A model that answers: threads, weights, chat template and engine, in the order in which they must be made and the reverse of which
// they end. What serve, run and bench stand on.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "apps/cache_flags.h"
#include "apps/model_flags.h"
#include "apps/renderer.h"
#include "base/clock.h"
#include "engine/engine.h"
#include "engine/loaded_model.h"
#include "grammar/grammar_cache.h"

namespace deepinfer::apps {

struct EngineFlags {
  std::optional<uint64_t> kv_memory;
  int32_t max_num_batched_tokens = 512, max_num_seqs = 32, max_queued = 256;
  std::string model_name;
  bool no_replay = false;
  RendererFlags renderer;
  CacheFlags cache;

  void add_to(Flags& flags);
  void add_replay_to(Flags& flags);
};

struct ServedModel {
  SteadyClock clock;
  std::unique_ptr<Workers> workers;
  engine::ModelText text;
  Renderer renderer;
  uint64_t kv_bytes = 0, weight_bytes = 0;
  std::unique_ptr<grammar::GrammarCache> grammars;
  std::unique_ptr<kv::BlockStore> store;             // null: no --cache-dir
  std::unique_ptr<engine::Engine> engine;            // last: its thread uses the workers
};

Result<std::unique_ptr<ServedModel>> start_model(const ModelFlags& model, const EngineFlags& flags);

// The KV arena when --kv-memory does not say: half of the memory that is free once the weights are in, but no more than
// `useful_bytes` (every sequence at its full context), and 64 MiB at least.
uint64_t default_kv_bytes(uint64_t free_bytes, uint64_t useful_bytes);

}  // namespace deepinfer::apps
