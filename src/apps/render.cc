// deepinfer render: the exact prompt that a Chat Completions request becomes, control tokens marked: what the model will read.
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
#include "recipe/chat_completions.h"

namespace deepinfer::apps {
namespace {

struct RenderFlags {
  std::string model, request = "-", chat_template;
  bool ids = false, json = false;
};

Result<recipe::Conversation> read_conversation(const std::string& text) {
  boost::system::error_code error;
  const boost::json::value body = boost::json::parse(text, error);
  if (error || !body.is_object()) return Error{Code::kInvalidArgument, "the request is not a JSON object" + (error ? ": " + error.message() : "")};
  recipe::Problems problems;
  recipe::FieldReader fields(body.get_object(), "", problems);
  recipe::Conversation conversation = recipe::parse_conversation(fields, {});
  if (problems.any()) return Error{Code::kInvalidArgument, fmt::format("the request: {}", problems.first().message)};
  return conversation;
}

void print_json(const recipe::Prompt& prompt, const std::vector<TokenId>& ids) {
  boost::json::array segments;
  for (const recipe::Segment& s : prompt.segments) {
    boost::json::object one{{"text", s.text}};
    if (s.kind == recipe::Segment::Kind::kSpecial) one["id"] = s.id;
    segments.push_back(std::move(one));
  }
  const boost::json::object out{{"ids", boost::json::value_from(ids)}, {"segments", std::move(segments)}, {"starts_in_reasoning", prompt.starts_in_reasoning()}};
  std::puts(boost::json::serialize(out).c_str());
}

Result<> run_render(const RenderFlags& flags) {
  DI_TRY(const std::string path, find_model(flags.model, process_environment()));
  DI_TRY(const engine::ModelText text, engine::open_text(path));
  DI_TRY(const std::unique_ptr<recipe::PromptRenderer> renderer, make_renderer(text, flags.chat_template));
  if (renderer == nullptr) return Error{Code::kUnsupported, path + " has no chat template; name one with --chat-template"};
  DI_TRY(const std::string body, flags.request == "-" ? read_stdin() : io::read_small_file(flags.request, kMaxInputBytes));
  DI_TRY(const recipe::Conversation conversation, read_conversation(body));
  DI_TRY(const recipe::Prompt prompt, renderer->render(conversation));
  const std::vector<TokenId> ids = recipe::prompt_tokens(prompt, *text.tokenizer);
  if (flags.json) print_json(prompt, ids);
  else if (flags.ids) fmt::print("{}\n", fmt::join(ids, " "));
  else fmt::print("{}\n{} tokens\n", recipe::prompt_text_marked(prompt), ids.size());
  return {};
}

}  // namespace

Command add_render(CLI::App& root) {
  CLI::App* app = root.add_subcommand("render", "Prints the exact prompt that a chat request becomes, control tokens marked.");
  app->footer("Example:\n  echo '{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}]}' | deepinfer render model.gguf");
  auto flags = std::make_shared<RenderFlags>();
  Flags add(*app);
  add.text("MODEL", flags->model, "MODEL", "a .gguf file or a safetensors folder; \"\": the default model")->required();
  add.text("REQUEST", flags->request, "FILE", "a JSON file as POSTed to /v1/chat/completions; - reads stdin");
  add.text("--chat-template", flags->chat_template, "FILE", "a Jinja template instead of the model's own");
  add.toggle("--ids", flags->ids, "prints token ids");
  add.toggle("--json", flags->json, "prints ids and segments as JSON");
  return {app, [flags] {
            const Result<> done = run_render(*flags);
            return done ? kExitDone : report(done.error());
          }};
}

}  // namespace deepinfer::apps
