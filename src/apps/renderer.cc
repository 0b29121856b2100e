#include "apps/renderer.h"

#include <cstdio>
#include <fmt/format.h>

#include "io/mapped_file.h"
#include "recipe/chat_template.h"

namespace deepinfer::apps {

namespace {

constexpr size_t kMaxTemplateBytes = 4 << 20;

Result<std::unique_ptr<recipe::PromptRenderer>> make_template(const engine::ModelText& text, const std::string& template_file) {
  std::string source = text.chat_template, where = text.chat_template_path;
  if (!template_file.empty()) {
    DI_TRY(source, io::read_small_file(template_file, kMaxTemplateBytes));
    where = template_file;
  }
  if (source.empty()) {
    Result<std::string> guessed = recipe::default_chat_template(*text.tokenizer);
    if (!guessed) {
      fmt::print(stderr, "deepinfer: {}; chat is off, plain completions work (--chat-template FILE gives one)\n", guessed.error().message);
      return std::unique_ptr<recipe::PromptRenderer>();
    }
    source = std::move(*guessed);
    where = "the template guessed from the model's control tokens";
  }
  Result<std::unique_ptr<recipe::ChatTemplate>> made = recipe::ChatTemplate::create(std::move(source), *text.tokenizer);
  if (!made) return Error{made.error().code, fmt::format("{}: {}", where, made.error().message)};
  if (!(*made)->note().empty()) fmt::print(stderr, "deepinfer: {}: {}\n", where, (*made)->note());
  return std::unique_ptr<recipe::PromptRenderer>(std::move(made).value());
}

}  // namespace

void RendererFlags::add_to(Flags& flags) {
  flags.text("--chat-template", chat_template, "FILE", "a Jinja template instead of the model's own");
  flags.choice("--dialect", dialect, {"auto", "template", "v4-preview", "v4", "v4.1"},
               "form of prompts and answers; auto goes by the model's files");
  flags.choice("--history-reasoning", history_reasoning, {"reference", "keep"},
               "DeepSeek: earlier reasoning is left out as the makers do, or kept");
  flags.choice("--developer-as", developer_as, {"dialect", "system", "user"},
               "DeepSeek: role of developer messages; dialect: v4.1 system, v4 user");
}

Result<Renderer> make_renderer(const engine::ModelText& text, const RendererFlags& flags) {
  Renderer out;
  if (const std::optional<recipe::Dialect> named = recipe::dialect_of_name(flags.dialect)) {
    out.dialect = *named;
  } else if (flags.chat_template.empty()) {
    out.dialect = recipe::pick_dialect(text.config_json, *text.tokenizer);
    if (out.dialect != recipe::Dialect::kTemplate) {
      fmt::print(stderr, "deepinfer: prompts and answers in the dialect {}, by the vocabulary (--dialect names another)\n", recipe::dialect_name(out.dialect));
    }
  }
  if (out.dialect == recipe::Dialect::kTemplate) {
    DI_TRY(out.prompts, make_template(text, flags.chat_template));
    return out;
  }
  if (!flags.chat_template.empty()) {
    return Error{Code::kInvalidArgument, fmt::format("--chat-template: the dialect {} has no template", flags.dialect)};
  }
  recipe::DialectOptions options;
  if (flags.history_reasoning == "keep") options.history_reasoning = recipe::HistoryReasoning::kKeep;
  if (flags.developer_as == "system") options.developer_as = recipe::DeveloperAs::kSystem;
  if (flags.developer_as == "user") options.developer_as = recipe::DeveloperAs::kUser;
  DI_TRY(out.prompts, recipe::make_dialect_renderer(out.dialect, *text.tokenizer, options));
  return out;
}

}  // namespace deepinfer::apps
