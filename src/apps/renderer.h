// How a model's prompts are written: DeepSeek's models speak a dialect of this project's own code, others are rendered by a chat template:
// the operator's file, else the model's own, else one guessed from its control tokens.
#pragma once

#include <memory>
#include <string>

#include "apps/flags.h"
#include "base/result.h"
#include "engine/model_text.h"
#include "recipe/dialect.h"
#include "recipe/prompt.h"

namespace deepinfer::apps {

struct RendererFlags {
  std::string chat_template;  // a file; it wins over a dialect that was not named
  std::string dialect = "auto", history_reasoning = "reference", developer_as = "dialect";

  void add_to(Flags& flags);
};

struct Renderer {
  recipe::Dialect dialect = recipe::Dialect::kTemplate;
  // Null if the model has no template and none fits: then only plain completions are possible, which a line on stderr says.
  std::unique_ptr<recipe::PromptRenderer> prompts;
};

// A dialect that was picked is named on stderr, since a wrong one is silent.
// Errors: the file cannot be read; the template does not compile (naming where it stands); the vocabulary lacks tokens of the dialect.
Result<Renderer> make_renderer(const engine::ModelText& text, const RendererFlags& flags);

}  // namespace deepinfer::apps
