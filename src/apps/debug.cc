// deepinfer debug dump: what a DeepSeek-V4.1 model computes for a prompt, array by array.
#include <cstdio>
#include <cstdlib>
#include <fmt/format.h>

#include "apps/commands.h"
#include "apps/default_model.h"
#include "apps/flags.h"
#include "apps/text_input.h"
#include "apps/token_ids.h"
#include "engine/loaded_model.h"
#include "model/v41_dump.h"

namespace deepinfer::apps {
namespace {

struct DumpFlags {
  std::string model, prompt, output = "dump.safetensors";
  std::vector<std::string> layers;
  int32_t threads = 0;
  bool ids = false;
};

Result<std::vector<int32_t>> parse_layers(const std::vector<std::string>& texts) {
  std::vector<int32_t> layers;
  for (const std::string& text : texts) {
    DI_TRY(const std::vector<TokenId> numbers, parse_token_ids(text, model::V41Config::kMaxLayers));
    layers.insert(layers.end(), numbers.begin(), numbers.end());
  }
  return layers;
}

Result<> run_dump(const DumpFlags& flags) {
  DI_TRY(const std::vector<int32_t> layers, parse_layers(flags.layers));
  DI_TRY(const std::string path, find_model(flags.model));
  DI_TRY(engine::OpenModel open, engine::open_model(path));
  const std::unique_ptr<Workers> workers = Workers::create(flags.threads);
  DI_TRY(const engine::LoadedModel loaded, engine::load_weights(std::move(open), {}, *workers));
  auto* model = dynamic_cast<model::V41*>(loaded.model.get());
  if (model == nullptr) return Error{Code::kUnsupported, path + ": only DeepSeek-V4.1 models can be dumped"};
  DI_TRY(const std::string input, text_or_stdin(flags.prompt));
  std::vector<TokenId> tokens;
  if (flags.ids) {
    DI_TRY(tokens, parse_token_ids(input, model->info().vocab_size));
  } else {
    loaded.text.tokenizer->encode(input, tokenizer::Recognize::kAll, tokens);
  }
  DI_TRY(model::dump_v41(*model, tokens, layers, flags.output, *workers));
  fmt::print(stderr, "{} tokens, written to {}\n", tokens.size(), flags.output);
  return {};
}

}  // namespace

Command add_debug_dump(CLI::App& debug) {
  CLI::App* app = debug.add_subcommand("dump", "Writes what a DeepSeek-V4.1 model computes for a prompt, layer by layer, as safetensors.");
  app->footer("Example:\n  deepinfer debug dump models/nano 'The cat' --layer 3 --output dump.safetensors\n  deepinfer debug dump models/nano '5 17 260' --ids\n"
              "Names are those of tests/golden/v41-tiny/README.md.");
  auto flags = std::make_shared<DumpFlags>();
  Flags add(*app);
  add.text("MODEL", flags->model, "MODEL", "a safetensors folder")->required();
  add.text("PROMPT", flags->prompt, "TEXT", "the prompt, control tokens recognised; - reads stdin")->required();
  add.toggle("--ids", flags->ids, "PROMPT holds token ids");
  add.list("--layer", flags->layers, "N", "only this layer, and what belongs to none; may be repeated");
  add.text("-o,--output", flags->output, "FILE", "the file to write");
  add.number("-t,--threads", flags->threads, 1, 1024, "N", "compute threads", "one a core");
  return {app, [flags] {
            const Result<> done = run_dump(*flags);
            return done ? kExitDone : report(done.error());
          }};
}

}  // namespace deepinfer::apps
