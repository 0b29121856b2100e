#include "apps/renderer.h"

#include <cstdio>
#include <fmt/format.h>

#include "io/mapped_file.h"
#include "recipe/chat_template.h"

namespace deepinfer::apps {

constexpr size_t kMaxTemplateBytes = 4 << 20;

Result<std::unique_ptr<recipe::PromptRenderer>> make_renderer(const engine::ModelText& text, const std::string& template_file) {
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

}  // namespace deepinfer::apps
