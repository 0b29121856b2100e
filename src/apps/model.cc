// deepinfer model info: what a checkpoint holds and would cost, from its metadata alone.
// deepinfer model synth: a random model of a given shape, for benchmarks without a download.
#include <cstdio>
#include <cstdlib>

#include "apps/commands.h"
#include "apps/flags.h"
#include "model/dense_synth.h"
#include "model/model_info.h"

namespace deepinfer::apps {
namespace {

struct InfoFlags {
  std::string file, kv_format = "bf16";
  std::vector<std::string> contexts;
  bool json = false;
};

KvFormat kv_format_of(const std::string& name) { return name == "q8" ? KvFormat::kQ8 : name == "f32" ? KvFormat::kF32 : KvFormat::kBf16; }

int run_info(const InfoFlags& flags) {
  std::vector<int64_t> contexts;
  for (const std::string& text : flags.contexts) {
    char* end = nullptr;
    const long long tokens = std::strtoll(text.c_str(), &end, 10);
    if (end == text.c_str() || *end != '\0' || tokens < 1 || tokens > model::DenseConfig::kMaxContext)
      return report(Error{Code::kInvalidArgument, "--context: '" + text + "' is not a number of tokens"});
    contexts.push_back(tokens);
  }
  const Result<model::CheckpointInfo> info = model::read_checkpoint_info(flags.file);
  if (!info) return report(info.error());
  const KvFormat format = kv_format_of(flags.kv_format);
  const std::string text = flags.json ? model::checkpoint_info_json(*info, format, contexts) : model::checkpoint_info_text(*info, format, contexts);
  std::fputs(text.c_str(), stdout);
  if (text.empty() || text.back() != '\n') std::fputc('\n', stdout);
  return kExitDone;
}

struct SynthFlags {
  std::string shape = "qwen3-0.6b", type = "Q8_0", file;
  std::optional<uint64_t> seed;
};

DType dtype_of(const std::string& name) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16, DType::kQ4_0})
    if (dtype_info(dtype).name == name) return dtype;
  return DType::kQ8_0;
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
  add.toggle("--json", flags->json, "prints JSON");
  return {app, [flags] { return run_info(*flags); }};
}

Command add_model_synth(CLI::App& model) {
  CLI::App* app = model.add_subcommand("synth", "Writes a model with random weights: the speed of a shape without its download.");
  app->footer("Example:\n  deepinfer model synth qwen3-q8.gguf --shape qwen3-0.6b --type Q8_0");
  auto flags = std::make_shared<SynthFlags>();
  std::vector<std::string> shapes;
  for (const std::string_view name : model::dense_synth_names()) shapes.emplace_back(name);
  Flags add(*app);
  add.text("FILE", flags->file, "FILE", "the .gguf file to write")->required();
  add.choice("--shape", flags->shape, shapes, "whose sizes it has");
  add.choice("--type", flags->type, {"F32", "F16", "BF16", "Q8_0", "Q4_0"}, "number format of its matrices");
  add.seed("--seed", flags->seed, "the same seed gives the same bytes", "0");
  return {app, [flags] {
            const std::optional<model::DenseConfig> shape = model::dense_synth_shape(flags->shape);
            const Result<> done = model::write_dense_synth(flags->file, *shape, dtype_of(flags->type), flags->seed.value_or(0));
            return done ? kExitDone : report(done.error());
          }};
}

}  // namespace deepinfer::apps
