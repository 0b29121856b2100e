#include "apps/model_flags.h"

namespace deepinfer::apps {

void ModelFlags::add_to(Flags& flags) {
  flags.text("MODEL", model, "MODEL", "a .gguf file or a safetensors folder", "nano, which comes along");
  flags.number("-t,--threads", threads, 1, 1024, "N", "compute threads", "one a core");
  flags.choice("--activations", activations, {"fast", "f32"}, "fast rounds them to 8 bits for integer weights; f32 is exact and slow");
  flags.choice("--kv-format", kv_format, {"auto", "bf16", "q8", "f32"}, "numbers of the KV cache; auto is bf16, or f32 with f32 activations");
  flags.number("--context", context, 1, 1 << 28, "TOKENS", "longest prompt and answer together", "the model's");
  flags.size("--engram-memory", engram_memory, "DeepSeek-V4.1: of its Engram tables, most that is kept in memory", "what fits");
  flags.size("--expert-memory", expert_memory, "DeepSeek-V4.1: likewise of its experts; no faster than the disk", "what fits");
  flags.toggle("--no-mmap", no_mmap, "DeepSeek-V4.1: copies the other weights into large pages at the start");
  flags.text("--config", config, "FILE", "TOML file with flags");
}

engine::WeightOptions ModelFlags::weight_options() const {
  engine::WeightOptions options{.max_context = context, .memory = {.engram_bytes = engram_memory, .expert_bytes = expert_memory, .load = no_mmap}};
  if (activations == "f32") options.activations = Activations::kF32;
  if (kv_format == "bf16") options.kv_format = KvFormat::kBf16;
  if (kv_format == "q8") options.kv_format = KvFormat::kQ8;
  if (kv_format == "f32") options.kv_format = KvFormat::kF32;
  return options;
}

}  // namespace deepinfer::apps
