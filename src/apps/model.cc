// deepinfer model info: what a checkpoint holds and would cost, from its metadata alone.
// deepinfer model synth: a random model of a given shape, for benchmarks without a download.
#include <cstdio>
#include <cstdlib>
#include <fmt/format.h>
#include <memory>

#include "apps/commands.h"
#include "apps/flags.h"
#include "kernels/roof.h"
#include "kernels/team.h"
#include "model/check_values.h"
#include "model/dense_synth.h"
#include "model/model_file.h"
#include "model/model_info.h"
#include "model/v41_synth.h"

namespace deepinfer::apps {
namespace {

struct InfoFlags {
  std::string file, kv_format = "bf16";
  std::vector<std::string> contexts;
  std::optional<uint64_t> bandwidth;
  bool json = false, verify = false;
};

KvFormat kv_format_of(const std::string& name) { return name == "q8" ? KvFormat::kQ8 : name == "f32" ? KvFormat::kF32 : KvFormat::kBf16; }

double measured_read_rate() {
  const std::unique_ptr<Workers> workers = Workers::create(0);
  workers->pin_caller();
  return measure_read_rate(default_isa(), *workers);
}

int run_info(const InfoFlags& flags) {
  std::vector<int64_t> contexts;
  for (const std::string& text : flags.contexts) {
    char* end = nullptr;
    const long long tokens = std::strtoll(text.c_str(), &end, 10);
    if (end == text.c_str() || *end != '\0' || tokens < 1 || tokens > model::DenseConfig::kMaxContext)
      return report(Error{Code::kInvalidArgument, "--context: '" + text + "' is not a number of tokens"});
    contexts.push_back(tokens);
  }
  Result<model::CheckpointInfo> info = model::read_checkpoint_info(flags.file);
  if (!info) return report(info.error());
  const int64_t longest = info->v41 ? info->v41->max_position_embeddings : info->config ? info->config->max_context : 0;
  for (const int64_t context : contexts)
    if (longest > 0 && context > longest)
      return report(Error{Code::kInvalidArgument, fmt::format("--context: {} tokens, but the model of {} has at most {}", context, flags.file, longest)});
  if (flags.verify) {
    const Result<model::ModelFile> file = model::open_model_file(flags.file);
    const Result<> finite = file ? model::check_values(file->checkpoint()) : Result<>(file.error());
    if (!finite) info->obstacles.push_back(finite.error().message);
  }
  model::InfoView view{.kv_format = kv_format_of(flags.kv_format), .contexts = contexts};
  view.read_bytes_per_s = flags.bandwidth ? static_cast<double>(*flags.bandwidth) : measured_read_rate();
  const std::string text = flags.json ? model::checkpoint_info_json(*info, view) : model::checkpoint_info_text(*info, view);
  std::fputs(text.c_str(), stdout);
  if (text.empty() || text.back() != '\n') std::fputc('\n', stdout);
  return kExitDone;
}

struct SynthFlags {
  std::string shape = "qwen3-0.6b", type = "auto", path;
  model::V41SynthSizes sizes;
  int32_t engram_vocab = 0;
  bool sparse = false;
  std::optional<uint64_t> seed;
};

DType dtype_of(const std::string& name) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16, DType::kQ4_0})
    if (dtype_info(dtype).name == name) return dtype;
  return DType::kQ8_0;
}

Result<> run_synth(const SynthFlags& flags) {
  const uint64_t seed = flags.seed.value_or(0);
  model::V41SynthSizes sizes = flags.sizes;
  sizes.engram_vocab = flags.engram_vocab;
  if (const std::optional<model::DenseConfig> shape = model::dense_synth_shape(flags.shape)) {
    const bool sized = sizes.layers > 0 || sizes.experts > 0 || sizes.experts_per_token > 0 || sizes.engram_vocab > 0 || sizes.draft_stages >= 0 || sizes.vision_layers >= 0;
    if (sized || flags.sparse) return Error{Code::kInvalidArgument, "sizes and --sparse can be given for shapes of DeepSeek-V4.1 only, not for " + flags.shape};
    return model::write_dense_synth(flags.path, *shape, dtype_of(flags.type), seed);
  }
  if (flags.type != "auto") return Error{Code::kInvalidArgument, "--type is for dense shapes: DeepSeek-V4.1 has its own number formats"};
  DI_TRY(const model::V41Config config, model::v41_synth_shape(flags.shape, sizes));
  return model::write_v41_synth(flags.path, config, {.seed = seed, .sparse = flags.sparse});
}

}  // namespace

Command add_model_info(CLI::App& model) {
  CLI::App* app = model.add_subcommand("info", "Says what a model file holds and needs, without reading its weights.");
  app->footer("Example:\n  deepinfer model info model.gguf --context 8192");
  auto flags = std::make_shared<InfoFlags>();
  Flags add(*app);
  add.text("FILE", flags->file, "MODEL", "a .gguf file or a safetensors folder")->required();
  add.list("--context", flags->contexts, "TOKENS", "shows the memory at this length; may be repeated");
  add.choice("--kv-format", flags->kv_format, {"bf16", "q8", "f32"}, "numbers of the KV cache");
  add.size("--bandwidth", flags->bandwidth, "bytes of memory a second for the estimated speed; 0 gives none", "probed");
  add.toggle("--verify", flags->verify, "reads every weight and looks for NaN and infinity");
  add.toggle("--json", flags->json, "prints JSON");
  return {app, [flags] { return run_info(*flags); }};
}

Command add_model_synth(CLI::App& model) {
  CLI::App* app = model.add_subcommand("synth", "Writes a model with random weights: the speed of a shape without its download.");
  app->footer("Example:\n  deepinfer model synth qwen3-q8.gguf --shape qwen3-0.6b --type Q8_0\n"
              "  deepinfer model synth slice --shape v4.1 --layers 4 --experts 16");
  auto flags = std::make_shared<SynthFlags>();
  std::vector<std::string> shapes;
  for (const std::string_view name : model::dense_synth_names()) shapes.emplace_back(name);
  for (const std::string_view name : model::v41_synth_names()) shapes.emplace_back(name);
  Flags add(*app);
  add.text("FILE", flags->path, "FILE", "the .gguf file to write; of DeepSeek-V4.1 a folder that is not there yet")->required();
  add.choice("--shape", flags->shape, shapes, "its sizes");
  add.choice("--type", flags->type, {"auto", "F32", "F16", "BF16", "Q8_0", "Q4_0"}, "number format of its matrices; auto is Q8_0, or DeepSeek-V4.1's own formats");
  add.number("--layers", flags->sizes.layers, 3, 256, "N", "DeepSeek-V4.1: half encoder, half decoder; without draft stages and vision, unless these are given too", "the shape's");
  add.number("--experts", flags->sizes.experts, 1, 4096, "N", "DeepSeek-V4.1: routed experts a layer", "the shape's");
  add.number("--experts-per-token", flags->sizes.experts_per_token, 1, 64, "N", "DeepSeek-V4.1: of these, how many a token uses", "the shape's");
  add.number("--engram-vocab", flags->engram_vocab, 2, 1 << 30, "N", "DeepSeek-V4.1: rows of the Engram tables for each of their columns", "the shape's, 16384 with --layers");
  add.number("--draft-stages", flags->sizes.draft_stages, 0, 16, "N", "DeepSeek-V4.1: DSpark stages", "the shape's");
  add.number("--vision-layers", flags->sizes.vision_layers, 0, 256, "N", "DeepSeek-V4.1: of the picture encoder; 0 leaves it out", "the shape's");
  add.toggle("--sparse", flags->sparse, "DeepSeek-V4.1: zeros that take no room on the disk, for `deepinfer model info`");
  add.seed("--seed", flags->seed, "the same seed gives the same bytes", "0");
  return {app, [flags] {
            const Result<> done = run_synth(*flags);
            return done ? kExitDone : report(done.error());
          }};
}

}  // namespace deepinfer::apps
