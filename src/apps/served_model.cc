#include "apps/served_model.h"

#include <algorithm>
#include <fmt/format.h>
#include <sys/stat.h>

#include "apps/default_model.h"
#include "io/free_memory.h"

namespace deepinfer::apps {
namespace {

// Tells one file of weights from another. Blocks live no longer than this process, so the file's identity is enough; a store that
// outlives it needs a digest of the weights.
std::string weights_identity(const std::string& path, const engine::WeightOptions& options) {
  struct stat status {};
  ::stat(path.c_str(), &status);
  return fmt::format("{}:{}:{}:{}:{}:{}", status.st_dev, status.st_ino, status.st_size, status.st_mtim.tv_sec, status.st_mtim.tv_nsec,
                     options.activations == Activations::kF32 ? "f32" : "fast");
}

}  // namespace

void EngineFlags::add_to(Flags& flags) {
  flags.size("--kv-memory", kv_memory, "memory of the KV cache", "half of what is free");
  flags.number("--max-num-batched-tokens", max_num_batched_tokens, 32, 1 << 16, "N", "tokens a step, decodes and prefill chunks together");
  flags.number("--max-num-seqs", max_num_seqs, 1, 4096, "N", "sequences that run at a time");
  flags.number("--max-queued", max_queued, 1, 1 << 20, "N", "requests that wait; more get 429");
  add_replay_to(flags);
  cache.add_to(flags);
  renderer.add_to(flags);
  flags.text("--model-name", model_name, "NAME", "what clients call the model", "the file's name");
}

void EngineFlags::add_replay_to(Flags& flags) {
  flags.toggle("--no-replay", no_replay, "DeepSeek-V4.1: windows are computed whole, also at a hit and a prompt's end");
}

uint64_t default_kv_bytes(uint64_t free_bytes, uint64_t useful_bytes) {
  constexpr uint64_t kSmallest = uint64_t{64} << 20;
  return std::max(kSmallest, std::min(free_bytes / 2, useful_bytes));
}

Result<std::unique_ptr<ServedModel>> start_model(const ModelFlags& model, const EngineFlags& flags) {
  auto served = std::make_unique<ServedModel>();
  DI_TRY(const std::string path, find_model(model.model));
  DI_TRY(engine::OpenModel open, engine::open_model(path));
  DI_TRY(served->renderer, make_renderer(open.text, flags.renderer));
  served->workers = model.start_workers();
  const engine::WeightOptions options = model.weight_options();
  DI_TRY(engine::LoadedModel loaded, engine::load_weights(std::move(open), options, *served->workers));
  served->text = std::move(loaded.text);
  served->weight_bytes = loaded.model->info().weight_bytes;
  if (!flags.model_name.empty()) loaded.card.name = flags.model_name;

  const model::KvLayout& layout = loaded.model->kv_layout();
  if (flags.no_replay && layout.state_bytes == 0)
    return Error{Code::kInvalidArgument, fmt::format("--no-replay is for models with windows beside their KV blocks; {} has none", loaded.card.architecture)};
  const uint64_t blocks = (static_cast<uint64_t>(loaded.card.max_context) + static_cast<uint64_t>(layout.block_tokens) - 1) / static_cast<uint64_t>(layout.block_tokens);
  const uint64_t useful = blocks * static_cast<uint64_t>(layout.block_bytes) * static_cast<uint64_t>(flags.max_num_seqs);
  served->kv_bytes = flags.kv_memory.value_or(default_kv_bytes(io::free_memory_bytes(), useful));
  std::string identity = weights_identity(path, options);
  Digest256 secret = random_256();
  DI_TRY(std::vector<kv::RetentionClass> classes, parse_retention(flags.cache.retention));
  DI_TRY(flags.cache.check());
  if (flags.cache.wanted()) {
    DI_TRY(const OpenCache cache, open_cache(flags.cache));
    DI_TRY(identity, weights_digest(path, *cache.dir.disk, flags.cache.cache_dir, served->workers->size()));
    secret = cache.dir.folder.secret;
    DI_TRY(served->store, open_store(flags.cache, cache, {.weights = identity, .architecture = engine::computation_name(loaded.model->info()), .layout = &layout}));
  }
  served->grammars = std::make_unique<grammar::GrammarCache>(*served->text.tokenizer, loaded.model->info().vocab_size, loaded.card.stop_token_ids);
  engine::EngineOptions engine{.card = loaded.card, .weights_identity = identity, .master_secret = secret, .kv_bytes = served->kv_bytes,
                               .max_num_batched_tokens = flags.max_num_batched_tokens, .max_num_sequences = flags.max_num_seqs,
                               .max_waiting_requests = flags.max_queued, .max_context = options.max_context, .bounded_replay = !flags.no_replay,
                               .store = served->store.get(), .retention_classes = std::move(classes),
                               .log = [](const std::string& line) { fmt::print(stderr, "deepinfer: {}\n", line); }, .grammars = served->grammars.get()};
  DI_TRY(served->engine, engine::Engine::start(std::move(loaded.model), *served->workers, served->clock, std::move(engine)));
  return served;
}

}  // namespace deepinfer::apps
