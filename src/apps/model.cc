// deepinfer model info: what a checkpoint holds and would cost, from its metadata alone.
#include <cstdio>
#include <cstdlib>

#include "apps/commands.h"
#include "apps/flags.h"
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

}  // namespace deepinfer::apps
