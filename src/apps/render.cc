// deepinfer render: the exact prompt that a request of any protocol becomes, control tokens marked: what the model will read.
#include <boost/json.hpp>
#include <cstdio>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "apps/commands.h"
#include "apps/default_model.h"
#include "apps/flags.h"
#include "apps/renderer.h"
#include "apps/text_input.h"
#include "engine/loaded_model.h"
#include "io/mapped_file.h"
#include "recipe/encode_request.h"
#include "recipe/json_reader.h"
#include "recipe/protocol.h"
#include "recipe/request_json.h"

namespace deepinfer::apps {
namespace {

namespace json = boost::json;
using recipe::Protocol;

struct RenderFlags {
  std::string request = "-", protocol = "chat", model, tokenizer;
  RendererFlags renderer;
  bool ids = false, json = false;
};

Protocol protocol_of(std::string_view name) {
  if (name == "responses") return Protocol::kResponses;
  if (name == "messages") return Protocol::kMessages;
  return name == "completions" ? Protocol::kCompletions : Protocol::kChat;
}

Result<engine::ModelText> open_model_text(const RenderFlags& flags) {
  if (flags.tokenizer.empty()) {
    DI_TRY(const std::string path, find_model(flags.model));
    return engine::open_text(path);
  }
  engine::ModelText text;
  DI_TRY(const std::string json, io::read_small_file(flags.tokenizer, kMaxInputBytes));
  DI_TRY(text.tokenizer, tokenizer::Tokenizer::from_json(json, "", flags.tokenizer));
  return text;
}

Result<recipe::EncodedRequest> render_request(const RenderFlags& flags, const engine::ModelText& text, std::string body) {
  DI_TRY(const json::object object, recipe::read_json_object(std::move(body)));
  DI_TRY(const Renderer renderer, make_renderer(text, flags.renderer));
  recipe::RequestContext context;
  context.options.vocab_size = text.tokenizer->vocab_size();
  context.options.dialect = renderer.dialect;
  context.options.accepts_images = renderer.dialect != recipe::Dialect::kTemplate;
  recipe::Problems problems;
  const std::optional<recipe::ParsedRequest> request = recipe::parse_request(protocol_of(flags.protocol), object, context, problems);
  if (!request) return Error{Code::kInvalidArgument, fmt::format("the request: {}", problems.first().message)};
  return recipe::encode_request(*request, {.tokenizer = *text.tokenizer, .renderer = renderer.prompts.get(), .text_bos = text.tokenizer->add_bos()});
}

Result<> run_render(const RenderFlags& flags) {
  DI_TRY(const engine::ModelText text, open_model_text(flags));
  DI_TRY(std::string body, flags.request == "-" ? read_stdin() : io::read_small_file(flags.request, kMaxInputBytes));
  DI_TRY(const recipe::EncodedRequest encoded, render_request(flags, text, std::move(body)));
  const std::vector<TokenId>& ids = encoded.ids;
  if (flags.json) {
    std::puts(json::serialize(recipe::prompt_json(encoded)).c_str());
  } else if (flags.ids) {
    fmt::print("{}\n", fmt::join(ids, " "));
  } else {
    fmt::print("{}\n{} tokens\n", recipe::prompt_text_marked(encoded.prompt), ids.size());
  }
  return {};
}

}  // namespace

Command add_render(CLI::App& root) {
  CLI::App* app = root.add_subcommand("render", "Prints the exact prompt that a request becomes, control tokens marked.");
  app->footer(
      "Example:\n  echo '{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}]}' | deepinfer render --model model.gguf\n"
      "  deepinfer render --tokenizer tokenizer.json --dialect v4.1 --protocol messages --ids request.json");
  auto flags = std::make_shared<RenderFlags>();
  Flags add(*app);
  add.text("REQUEST", flags->request, "FILE", "a JSON file as POSTed to the protocol's path; - reads stdin");
  add.choice("--protocol", flags->protocol, {"chat", "completions", "responses", "messages"}, "which path it is POSTed to");
  add.text("--model", flags->model, "MODEL", "a .gguf file or a safetensors folder", "the model that serve would take");
  add.text("--tokenizer", flags->tokenizer, "FILE", "a tokenizer.json instead of a model");
  flags->renderer.add_to(add);
  add.toggle("--ids", flags->ids, "prints token ids");
  add.toggle("--json", flags->json, "prints ids, segments and images as JSON");
  return {app, [flags] {
            const Result<> done = run_render(*flags);
            return done ? kExitDone : report(done.error());
          }};
}

}  // namespace deepinfer::apps
